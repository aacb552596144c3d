"""The rollouts of an iteration as a table, format `rollouts/1`: a row for each completion, with all that the update reads."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import polars as pl
import pyarrow as pa
from jaxtyping import Bool, Float, PyTree

from lineage.writing.writer import Writer
from post_training.advantages import advantages, dead_groups
from post_training.environments.prompt import Prompt, Verdict
from post_training.rows import inside, masked, rounded
from post_training.spec import RewardRunSpec
from post_training.stage import ROLLOUTS_FILE

FORMAT = "rollouts/1"
SCHEMA = {
    "iteration": pl.Int64,
    "row": pl.Int64,
    "group": pl.Int64,
    "prompt_id": pl.String,
    "tokens": pl.List(pl.Int32),
    "prompt_length": pl.Int64,
    "text": pl.String,
    "log_probs": pl.List(pl.Float32),
    "before": pl.List(pl.Float32),
    "reference": pl.List(pl.Float32),
    "entropy": pl.List(pl.Float32),
    "kept": pl.List(pl.Binary),
    "policy_digest": pl.String,
    "policy_step": pl.Int64,
    "seed": pl.Int64,
    "temperature": pl.Float64,
    "top_p": pl.Float64,
    "max_new_tokens": pl.Int64,
    "ended": pl.Boolean,
    "verdict": pl.String,
    "components": pl.String,
    "detail": pl.String,
    "reward": pl.Float64,
    "advantage": pl.Float32,
    "used": pl.Boolean,
    "masked_why": pl.String,
}
"""`tokens` is prompt and completion with the end of text; the lists of floats have an entry for each token of the completion.
The sampler computed `log_probs`, the trainer `before` and `reference`, all under the sampling distribution, in nats. `kept` has
the bits of the kept set of each token if `top_p` is below 1. `reward` is null if the verifier failed. `masked_why` is empty for
a row that is used. `policy_digest` is `unknown` and `policy_step` null if the server did not name its weights."""
UNKNOWN_POLICY = "unknown"


@dataclass(frozen=True)
class Origin:
    """What sampled a row: the digest of the policy, the number of its updates, and the seed."""

    policy_digest: str
    policy_step: int | None
    """None, with the digest `UNKNOWN_POLICY`, if the server did not name its weights."""
    seed: int


@dataclass(frozen=True)
class Drawn:
    """What the sampler and the trainer computed for the completions of an iteration, as arrays [rows, tokens of a completion].

    Column c is token c of a completion. What is beyond its end means nothing.
    """

    tokens: np.ndarray
    """[rows, positions]: prompt and completion, padded."""
    prompt_lengths: np.ndarray
    lengths: np.ndarray
    """Of prompt and completion."""
    ended: np.ndarray
    log_probs: np.ndarray
    before: np.ndarray
    entropy: np.ndarray
    reference: np.ndarray | None = None
    kept: np.ndarray | None = None

    @property
    def mask(self) -> Float[np.ndarray, "R C"]:
        """1 at the tokens that each completion has."""
        return masked(self.prompt_lengths, self.lengths, self.log_probs.shape[1])

    def shortened(self, seq_len: int) -> "Drawn":
        """Return arrays no longer than the longest row needs, rounded up (`post_training.rows`)."""
        positions = rounded(int(self.lengths.max()), seq_len)
        arrays = {name: getattr(self, name) for name in ("log_probs", "before", "entropy", "reference", "kept")}
        short = {name: None if each is None else each[:, : positions - 1] for name, each in arrays.items()}
        return replace(self, tokens=self.tokens[:, :positions], **short)


def policy_digest(model: PyTree) -> str:
    """Digest of the bytes of all arrays of a model, in the order of its tree."""
    digest = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(model):
        array = np.asarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def rollout_table(
    spec: RewardRunSpec,
    iteration: int,
    policy: tuple[str, int],
    prompts: Sequence[Prompt],
    drawn: Drawn,
    texts: Sequence[str],
    verdicts: Sequence[Verdict],
    origins: Sequence[Origin] | None = None,
) -> pl.DataFrame:
    """Return the table of an iteration. `policy` is the digest and the step of the policy that is trained; it sampled every
    row unless `origins` names others.

    Raises: ValueError if a prompt is held out, because a run must not learn from it, or a policy is older than the run allows.
    """
    held = [prompt.prompt_id for prompt in prompts if prompt.split != "train"]
    if held:
        raise ValueError(
            f"{spec.run.name}, iteration {iteration}: prompt {held[0]!r} is held out; only train prompts are rolled out"
        )
    own = Origin(*policy, spec.run.seed)
    sampled_by = [own] * len(prompts) if origins is None else origins
    check_staleness(spec, iteration, policy[1], sampled_by)
    rewards = permuted(spec, iteration, np.array([np.nan if each.reward is None else each.reward for each in verdicts]))
    valid = ~np.isnan(rewards)
    masked = [_masked(spec, bool(known), bool(ended)) for known, ended in zip(valid, drawn.ended, strict=True)]
    shape = (spec.sampling.prompts, spec.sampling.completions)
    learned = rewards - _penalty(spec, drawn)
    advantage = advantages(spec.advantage, learned.reshape(shape), valid.reshape(shape)).reshape(-1)
    count, sampling = len(prompts), spec.sampling
    starts, ends = drawn.prompt_lengths, drawn.lengths
    completion = drawn.mask.astype(bool)
    numbers = {"log_probs": drawn.log_probs, "before": drawn.before, "reference": drawn.reference, "entropy": drawn.entropy}
    kept = None if drawn.kept is None else [
        [bits.tobytes() for bits in of_row[:count]] for of_row, count in zip(drawn.kept, (ends - starts).tolist(), strict=True)
    ]  # fmt: skip
    columns: dict[str, Any] = {
        "iteration": [iteration] * count,
        "row": range(count),
        "group": [row // sampling.completions for row in range(count)],
        "prompt_id": [prompt.prompt_id for prompt in prompts],
        "tokens": lists(drawn.tokens, inside(0, ends, drawn.tokens.shape[1])),
        "prompt_length": starts,
        "text": texts,
        **{name: [None] * count if each is None else lists(each, completion) for name, each in numbers.items()},
        "kept": [None] * count if kept is None else kept,
        "policy_digest": [origin.policy_digest for origin in sampled_by],
        "policy_step": [origin.policy_step for origin in sampled_by],
        "seed": [origin.seed for origin in sampled_by],
        "temperature": [sampling.temperature] * count,
        "top_p": [sampling.top_p] * count,
        "max_new_tokens": [sampling.max_new_tokens] * count,
        "ended": drawn.ended.astype(bool),
        "verdict": [verdict.outcome for verdict in verdicts],
        "components": [json.dumps(verdict.components, sort_keys=True) for verdict in verdicts],
        "detail": [verdict.detail for verdict in verdicts],
        "reward": [float(reward) if known else None for reward, known in zip(rewards, valid, strict=True)],
        "advantage": advantage.astype(np.float32),
        "used": [not why for why in masked],
        "masked_why": masked,
    }
    return pl.DataFrame({name: pl.Series(name, columns[name], dtype=kind) for name, kind in SCHEMA.items()})


def lists(values: np.ndarray, within: Bool[np.ndarray, "R S"]) -> pl.Series:
    """Return the values of each row that are within as a list, in order. A list for each row is a hundred times as slow."""
    offsets = np.concatenate([[0], within.sum(axis=1).cumsum()])
    return pl.Series(pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values[within])))


def check_staleness(spec: RewardRunSpec, iteration: int, step: int, origins: Sequence[Origin]) -> None:
    """Check that every row was sampled by a policy from `max_staleness` iterations ago or later. Raises: ValueError, also for
    an unknown policy unless the run trains on these."""
    for row, origin in enumerate(origins):
        if origin.policy_step is None:
            if spec.unnamed_weights == "refuse":
                raise ValueError(
                    f"{spec.run.name}, iteration {iteration}, row {row}: the policy that sampled it is unknown, so it may be "
                    f"older than max_staleness {spec.max_staleness} allows"
                )
            continue
        late = (step - origin.policy_step) / spec.updates
        if not 0 <= late <= spec.max_staleness:
            raise ValueError(
                f"{spec.run.name}, iteration {iteration}, row {row}: the policy of step {origin.policy_step} sampled it, which "
                f"is {late:g} iterations older than that of step {step}; at most {spec.max_staleness} are allowed"
            )


def permuted(spec: RewardRunSpec, iteration: int, rewards: Float[np.ndarray, " R"]) -> Float[np.ndarray, " R"]:
    """Return the rewards; for the control, those of other, random completions of the batch."""
    if spec.control == "none":
        return rewards
    return np.random.default_rng([spec.run.seed, 2, iteration]).permutation(rewards)


def _masked(spec: RewardRunSpec, known: bool, ended: bool) -> str:
    if not known:
        return "verifier failed"
    return "truncated" if not ended and spec.loss.truncated == "mask" else ""


def _penalty(spec: RewardRunSpec, drawn: Drawn) -> Float[np.ndarray, " R"]:
    """Return what the KL term subtracts from each reward, by the estimator k1 (`post_training.losses.kl_in_reward`)."""
    if spec.kl is None or spec.kl.where != "reward" or drawn.reference is None:
        return np.zeros(len(drawn.tokens))
    difference = (drawn.before.astype(np.float64) - drawn.reference) * drawn.mask
    return spec.kl.coefficient * difference.sum(axis=1)


def drawn_of(spec: RewardRunSpec, table: pl.DataFrame, stop: int) -> Drawn:
    """Return the arrays of a table, so that an update reads exactly what the table contains."""
    count = len(table)
    lengths = table["tokens"].list.len().to_numpy().astype(np.int32)
    starts = table["prompt_length"].to_numpy().astype(np.int32)
    positions = rounded(int(lengths.max()), spec.run.seq_len)
    width = min(spec.sampling.max_new_tokens, positions - 1)
    tokens = np.full((count, positions), stop, np.int32)
    tokens[inside(0, lengths, positions)] = table["tokens"].explode().to_numpy()
    completion = inside(0, lengths - starts, width)

    def spread(name: str) -> np.ndarray:
        values = np.zeros((count, width), np.float32)
        values[completion] = table[name].explode().to_numpy()
        return values

    kept = None
    if table["kept"].null_count() == 0:
        kept = np.full((count, width, -(-spec.run.model.vocab_size // 8)), 255, np.uint8)
        for row, held in enumerate(table["kept"].to_list()):
            kept[row, : len(held)] = [np.frombuffer(bits, np.uint8) for bits in held]
    reference = spread("reference") if table["reference"].null_count() == 0 else None
    ended = table["ended"].to_numpy()
    return Drawn(tokens, starts, lengths, ended, spread("log_probs"), spread("before"), spread("entropy"), reference, kept)


def write_rollouts(
    out: Writer, spec: RewardRunSpec, table: pl.DataFrame, policy: tuple[str, int], dropped: Mapping[str, int]
) -> None:
    """Write the table, and its summary into the manifest.

    `policy`: digest and step of the policy that is trained. `dropped`: what is not in the table, by reason.
    """
    table.write_parquet(out.folder / ROLLOUTS_FILE, compression="zstd")
    out.facts["rollouts"] = {
        "format": FORMAT,
        "policy_digest": policy[0],
        "policy_step": policy[1],
    }
    out.extra["iteration"] = summary(spec, table, policy[1])
    failed = table.filter(pl.col("masked_why") != "").group_by("masked_why").len().sort("masked_why")
    drops = dict(failed.iter_rows()) | {reason: count for reason, count in dropped.items() if count}
    tokens = int(table["log_probs"].list.len().sum())
    out.record(rows_out=len(table), drops=drops, tokens_out=tokens)


def summary(spec: RewardRunSpec, table: pl.DataFrame, step: int) -> Mapping[str, Any]:
    """Return means over the completions of an iteration. `post_training.checks` says which values are healthy.

    `step` is that of the policy that is trained. The mismatch of sampler and trainer is that of the rows which this policy
    sampled; None if there is none.
    """
    shape = (spec.sampling.prompts, spec.sampling.completions)
    rewards = table["reward"].fill_null(np.nan).to_numpy().reshape(shape)
    lengths = table["log_probs"].list.len().to_numpy()
    fresh = table.filter(pl.col("policy_step") == step)
    sampler, before = (joined(fresh, name) for name in ("log_probs", "before"))
    entropy = joined(table, "entropy")
    known = rewards[~np.isnan(rewards)]
    facts: dict[str, Any] = {
        "reward": float(known.mean()) if known.size else None,
        "right": float((table["verdict"] == "right").sum() / len(table)),
        "failed_verdicts": int((table["verdict"] == "failed").sum()),
        "dead_groups": float(dead_groups(rewards, ~np.isnan(rewards)).mean()),
        "length": float(lengths.mean()),
        "truncated": float((~table["ended"]).sum() / len(table)),
        "entropy": float(entropy.mean()),
        "mismatch": float(np.abs(sampler - before).mean()) if len(fresh) else None,
        "most_mismatch": float(np.abs(sampler - before).max()) if len(fresh) else None,
        "used": int(table["used"].sum()),
    }
    if spec.max_staleness:
        facts["unknown_policies"] = table["policy_step"].null_count()
        # A mean over the rows with a known policy would hide the others: with one unknown row no bound is known.
        late = None if facts["unknown_policies"] else (step - table["policy_step"].to_numpy()) / spec.updates
        ages = (None, None) if late is None else (float(late.mean()), float(late.max()))
        facts |= dict(zip(("staleness", "most_staleness"), ages, strict=True))
    if table["reference"].null_count() == 0:
        facts["kl"] = float((joined(table, "before") - joined(table, "reference")).sum() / len(table))
    return facts


def joined(table: pl.DataFrame, name: str) -> Float[np.ndarray, " tokens"]:
    """Return the numbers of a column of lists, one row after another, as float64."""
    return table[name].explode().to_numpy().astype(np.float64)


def rollouts_config(spec: RewardRunSpec) -> dict[str, Any]:
    """Return the fields of a run without those that a subclass adds."""
    names = RewardRunSpec.__dataclass_fields__
    return {name: getattr(spec, name) for name in names}
