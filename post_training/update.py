"""An update of the policy from the rollouts of an iteration: the trainer's compiled step with this objective."""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jaxtyping import Array

from post_training.log_probs import full_kl, token_log_probs
from post_training.losses import LogProbs, policy_loss, ratios, token_weights
from post_training.order import order_of_rows
from post_training.rollouts import Drawn
from post_training.spec import Imitate, RewardRunSpec
from trainer.model.protocol import LanguageModel
from trainer.objectives import Objective, Sums
from trainer.spec.compute import Compute


class Completions(NamedTuple):
    """The arrays of an update, [rows, tokens of a completion] unless said; the first axis is split into microbatches."""

    tokens: Array | np.ndarray
    """[rows, positions]."""
    starts: Array | np.ndarray
    """[rows]: the lengths of the prompts."""
    before: Array | np.ndarray
    sampler: Array | np.ndarray
    reference: Array | np.ndarray
    """Zeros if the run has no reference."""
    advantage: Array | np.ndarray
    """[rows]."""
    mask: Array | np.ndarray
    weights: Array | np.ndarray
    """Weight of every token in the loss; they sum to 1 over the update, or to less with `fixed_length`."""
    kept: Array | np.ndarray | None = None


def objective(spec: RewardRunSpec, compute: Compute, reference: LanguageModel | None) -> Objective:
    """The loss of `post_training.losses` as an objective of the trainer. Only the estimator `full` reads `reference`."""
    full = reference if spec.kl is not None and spec.kl.estimator == "full" else None

    def of_batch(model: LanguageModel, batch: Completions, loads: Array | None = None) -> tuple[Array, Sums]:
        del loads
        heat = spec.sampling.temperature
        kept = None if batch.kept is None else jnp.asarray(batch.kept)
        read = jnp.asarray(batch.tokens), jnp.asarray(batch.starts), batch.mask.shape[1]
        current, entropy = token_log_probs(model, *read, compute, heat, kept)
        exact = None if full is None else full_kl(model, full, *read, compute, heat)
        before, sampler, other = (jnp.asarray(each) for each in (batch.before, batch.sampler, batch.reference))
        given = LogProbs(current, before, sampler, other, exact)
        mask, weights = jnp.asarray(batch.mask), jnp.asarray(batch.weights)
        if isinstance(spec.advantage, Imitate):
            token = -current * mask
        else:
            off_policy = spec.max_staleness > 0
            token = policy_loss(spec.loss, spec.kl, given, jnp.asarray(batch.advantage), mask, off_policy)
        rows = jnp.float32(mask.shape[0])  # so that microbatches of equal size have equal weight
        value = (token * weights).sum()
        moved = ratios(spec.loss, current - given.before, mask)
        outside = ((moved < 1 - spec.loss.clip_low) | (moved > 1 + spec.loss.clip_high)) * mask
        tokens = jnp.maximum(mask.sum(), 1.0)
        extras = {"entropy": (entropy * mask).sum() / tokens, "outside_clip": outside.sum() / tokens}
        return value, Sums(jax.lax.stop_gradient(value), rows, None, extras)

    return of_batch


def batches(spec: RewardRunSpec, iteration: int, table: pl.DataFrame, drawn: Drawn) -> Iterator[Completions]:
    """Yield the updates of an iteration: each inner epoch is a permutation of all rows, cut into batches."""
    rows, size = spec.sampling.rows, spec.run.batches.size(0)
    mask = drawn.mask * table["used"].to_numpy()[:, None]
    advantage = table["advantage"].to_numpy()
    reference = np.zeros_like(drawn.before) if drawn.reference is None else drawn.reference
    for epoch in range(spec.inner_epochs):
        order = order_of_rows(spec, iteration, epoch)
        for start in range(0, rows, size):
            at = order[start : start + size]
            # In NumPy: an operation of JAX would wait for the update that runs.
            weights = token_weights(spec.loss, mask[at], spec.sampling.max_new_tokens)
            parts = 1 if spec.run.microbatch_size is None else size // spec.run.microbatch_size
            yield Completions(
                drawn.tokens[at], drawn.prompt_lengths[at], drawn.before[at], drawn.log_probs[at], reference[at], advantage[at],
                mask[at], weights * parts, None if drawn.kept is None else drawn.kept[at],
            )  # fmt: skip
