"""The stage `trainer.pair_scores`: log-probabilities of both sides of every pair of some caches, under one checkpoint.

A run of the objective `dpo` reads them as its reference. With the scores of a reference as an input, the artifact also says how
well the checkpoint prefers the chosen sides: the accuracy of its implicit rewards, beside that of the log-probabilities alone.
"""

import logging
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jaxtyping import Array

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable, to_jsonable
from lineage.jobs.job import Job
from lineage.order.history import MIXTURE, REFERENCE, is_imported
from lineage.order.token_cache import TokenCache
from lineage.shards.measure import measuring
from trainer.checkpoint import read_model, read_model_config
from trainer.model.build import model_shapes
from trainer.model.protocol import LanguageModel
from trainer.pair_data import FACTS, FILE
from trainer.preferences import accuracy, side_lengths, side_log_probs
from trainer.spec.compute import Compute, ComputeConfig
from trainer.spec.pair_stage import PairScoresConfig
from trainer.tokenizer_check import tokenizer_of

log = logging.getLogger("trainer")

BATCH_TOKENS = 8192
SCHEMA = {
    "component": pl.String,
    "id": pl.String,
    "chosen": pl.Float32,
    "rejected": pl.Float32,
    "chosen_tokens": pl.Int32,
    "rejected_tokens": pl.Int32,
}


def score_pairs(job: Job) -> Artifact:
    """Run a job: score every pair of the input `caches` under the input `checkpoint`.

    Raises: ValueError for caches of text, pairs longer than the model reads, or a checkpoint of another tokenizer.
    """
    config, checkpoint = from_jsonable(PairScoresConfig, job.spec.config), job.inputs["checkpoint"]
    caches, reference = job.inputs["caches"], job.inputs.get(REFERENCE)
    assert isinstance(checkpoint, Artifact) and isinstance(caches, tuple) and not isinstance(reference, tuple)
    opened = [(cache, TokenCache.open(cache)) for cache in caches]
    model_config = read_model_config(checkpoint)
    for cache, pairs in opened:
        _check(cache, pairs, checkpoint, model_config.max_seq_len)
    with measuring() as cost, job.writing(job.spec, cost) as out:
        model = read_model(checkpoint, model_shapes(model_config))
        table = pl.concat([_scored(model, cache, config.compute) for _, cache in opened])
        if reference is not None:
            table = _with_reference(table, reference)
        table.write_parquet(out.folder / FILE, compression="zstd")
        out.facts[FACTS] = {
            "checkpoint": checkpoint.data_version,
            "tokenizer": caches[0].manifest.extra["tokens"]["tokenizer"],
            "caches": {cache.component: artifact.data_version for artifact, cache in opened},
            "compute": to_jsonable(config.compute),
            **summary(table),
        }
        out.record(rows_in=len(table), rows_out=len(table))
    log.info("%s: %s", job.spec.name, summary(table))
    return out.artifact


def summary(table: pl.DataFrame) -> dict[str, float]:
    """What a table of scores says: numbers of pairs, accuracies with ties counted half, mean log-probabilities in nats."""
    values = table.select("chosen", "rejected").to_numpy()
    numbers = {
        "pairs": len(table),
        "log_prob_accuracy": _accuracy(values),
        "chosen_log_prob": float(values[:, 0].mean()),
        "rejected_log_prob": float(values[:, 1].mean()),
    }
    if "reference_chosen" in table.columns:
        before = table.select("reference_chosen", "reference_rejected").to_numpy()
        numbers |= {
            "reward_accuracy": _accuracy(values - before),
            "reference_log_prob_accuracy": _accuracy(before),
            "reference_chosen_log_prob": float(before[:, 0].mean()),
            "margin": float((values - before) @ np.array([1.0, -1.0], np.float32) @ np.ones(len(table)) / len(table)),
        }
    return {name: round(value, 6) for name, value in numbers.items()}


def _accuracy(values: np.ndarray) -> float:
    return float(accuracy(jnp.asarray(values)))


def _check(artifact: Artifact, cache: TokenCache, checkpoint: Artifact, longest: int) -> None:
    if cache.row_tokens is None:
        raise ValueError(f"{artifact.name} holds text and no pairs; give caches of the format 'preferences'")
    if cache.row_tokens > 2 * longest:
        raise ValueError(f"{artifact.name} has sides of {cache.row_tokens // 2} tokens, {checkpoint.name} reads {longest}")
    if not is_imported(checkpoint) and (there := tokenizer_of(checkpoint.input(MIXTURE))) != cache.tokenizer:
        raise ValueError(
            f"{artifact.name} was made with the tokenizer of data version {cache.tokenizer}, {checkpoint.name} with {there}: "
            "the same ids are other words; make the pairs with the tokenizer of the checkpoint"
        )


def _scored(model: LanguageModel, cache: TokenCache, config: ComputeConfig) -> pl.DataFrame:
    width = cache.row_tokens
    assert width is not None
    compute = model.resolved(config, width // 2, segmented=False)
    parts = [
        np.concatenate(
            [side_log_probs_of(model, jnp.asarray(tokens), jnp.asarray(weights), compute), lengths_of(weights)], axis=1
        )[:n]
        for tokens, weights, n in batches(cache, width)
    ]
    values = np.concatenate([np.zeros((0, 4), np.float32), *parts])
    ids = cache.document_ids()
    columns = dict(zip(list(SCHEMA)[2:], values.T, strict=True))
    named = {"component": [cache.component] * len(ids), "id": ids, **columns}
    return pl.DataFrame(named).select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def lengths_of(weights: np.ndarray) -> np.ndarray:
    """Tokens of both completions of each pair, [pairs, 2]."""
    return np.asarray(side_lengths(jnp.asarray(weights)))


def batches(cache: TokenCache, width: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """(tokens, weights, number of pairs) of equal shape; the last is padded with rows of zeros."""
    height = max(1, BATCH_TOKENS // width)
    for first in range(0, cache.num_documents, height):
        count = min(height, cache.num_documents - first)
        span, missing = (first * width, (first + count) * width), ((0, height - count), (0, 0))
        tokens, weights = (read(*span).reshape(count, width) for read in (cache.read, cache.read_weights))
        yield np.pad(tokens.astype(np.int32), missing), np.pad(weights, missing), count


@eqx.filter_jit
def side_log_probs_of(model: LanguageModel, tokens: Array, weights: Array, compute: Compute) -> Array:
    """`side_log_probs`, compiled once for a shape; products as exact as `compute` says."""
    with jax.default_matmul_precision(compute.precision):
        return side_log_probs(model, tokens, weights, compute)


def _with_reference(table: pl.DataFrame, reference: Artifact) -> pl.DataFrame:
    """Raises: ValueError if the reference scored other pairs."""
    there = pl.read_parquet(reference.file(FILE)).select(
        "component", "id", reference_chosen="chosen", reference_rejected="rejected"
    )
    joined = table.join(there, on=["component", "id"], how="left", maintain_order="left")
    if missing := joined["reference_chosen"].null_count():
        raise ValueError(f"{reference.name} lacks {missing} of {len(table)} pairs; score the same pairs under the reference")
    return joined
