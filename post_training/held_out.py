"""Scores of a checkpoint on held-out prompts: sampled accuracy, and pass@k without bias."""

import json
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.jobs.job import Job
from lineage.shards.measure import measuring
from post_training.asking import EncodedPrompts, Words
from post_training.environments.verify import verifier_of, verify
from post_training.rows import rounded
from post_training.sampler import compiled_sampler
from post_training.stage import HeldOutConfig
from trainer.checkpoint import read_model, read_model_config
from trainer.model.build import model_shapes

SAMPLES_FILE, RESULT_FILE = "samples.parquet", "result.json"
SCHEMA = {"prompt_id": pl.String, "sample": pl.Int64, "text": pl.String, "verdict": pl.String, "ended": pl.Boolean}


def pass_at_k(right: Sequence[int], count: int, k: int) -> float:
    """Mean over prompts of the chance that k of `count` samples include a right one: 1 - C(n - c, k) / C(n, k) (Chen et al.
    2021, arXiv 2107.03374). Raises: ValueError for a k above `count`."""
    if not 1 <= k <= count:
        raise ValueError(f"k is {k}; 1 to {count}, the samples of a prompt, are allowed")
    places = np.arange(k)
    return float(np.mean([1 - np.prod(np.maximum(count - c - places, 0) / (count - places)) for c in right]))


def score_held_out(job: Job) -> Artifact:
    """Sample the completions of held-out prompts, judge them, and commit samples and scores."""
    config = from_jsonable(HeldOutConfig, job.spec.config)
    checkpoint, environment, tokenizer = (job.inputs[name] for name in ("checkpoint", "environment", "tokenizer"))
    assert isinstance(checkpoint, Artifact) and isinstance(environment, Artifact) and isinstance(tokenizer, Artifact)
    words, model_config = Words.of(tokenizer), read_model_config(checkpoint)
    model = read_model(checkpoint, model_shapes(model_config))
    seq_len = model_config.max_seq_len
    encoded = EncodedPrompts.of(environment, "held_out", words, seq_len - config.sampling.max_new_tokens)
    count, at_once = min(len(encoded.prompts), config.most_prompts), config.sampling.prompts
    sampler = compiled_sampler(config.sampling, seq_len, words.stop)
    judge = verifier_of(environment)
    longest = rounded(max(map(len, encoded.tokens)), seq_len)
    rows = []
    with measuring() as cost:
        for first in range(0, count, at_once):
            wanted = [min(place, count - 1) for place in range(first, first + at_once)]
            places = [place for place in wanted for _ in range(config.sampling.completions)]
            tokens, lengths = encoded.rows(wanted, longest, words.stop)
            key = jax.random.fold_in(jax.random.PRNGKey(config.seed), first)
            drawn = jax.tree.map(np.asarray, sampler(model, jnp.asarray(tokens), jnp.asarray(lengths), key))
            live = (min(first + at_once, count) - first) * config.sampling.completions
            texts = [words.text(drawn.tokens[row, : drawn.lengths[row]].tolist()) for row in range(live)]
            prompts = [encoded.prompts[place] for place in places[:live]]
            ended = drawn.ended
            for row, verdict in enumerate(verify(judge, prompts, texts)):
                sample = row % config.sampling.completions
                # A truncated completion is not an answer, even if it begins like a right one.
                outcome = verdict.outcome if ended[row] or verdict.outcome == "failed" else "wrong"
                rows.append((prompts[row].prompt_id, sample, texts[row], outcome, bool(ended[row])))
        with job.writing(job.spec, cost) as out:
            table = pl.DataFrame(rows, schema=SCHEMA, orient="row")
            table.write_parquet(out.folder / SAMPLES_FILE, compression="zstd")
            result = scores(table, config.sampling.completions)
            (out.folder / RESULT_FILE).write_text(json.dumps(result, indent=1) + "\n")
            out.extra["held_out"] = result
            out.record(rows_out=len(table))
    return out.artifact


def scores(table: pl.DataFrame, completions: int) -> dict:
    """Return the accuracy of single samples with its standard error over prompts, and pass@k for k = 1, 2, 4, ... completions.

    A prompt with a failed verdict is left out and counted.
    """
    by_prompt = table.group_by("prompt_id", maintain_order=True).agg(
        right=(pl.col("verdict") == "right").sum(), failed=(pl.col("verdict") == "failed").sum()
    )
    known = by_prompt.filter(pl.col("failed") == 0)
    right = known["right"].to_numpy()
    if not right.size:
        raise ValueError("every held-out prompt has a failed verdict, so there is no accuracy; repair the verifier")
    shares = right / completions
    ks = [2**power for power in range(completions.bit_length()) if 2**power <= completions]
    return {
        "prompts": len(known),
        "failed_prompts": len(by_prompt) - len(known),
        "completions": completions,
        "accuracy": float(shares.mean()),
        "standard_error": float(shares.std(ddof=1) / np.sqrt(right.size)) if right.size > 1 else None,
        "pass_at_k": {str(k): pass_at_k(right.tolist(), completions, k) for k in ks},
    }
