"""Guards of a new run that remember another run's last steps: what Marin's 32B restart did by hand ("necromancy").

`clip_update_norm` and `skip_bad_steps` compare a step with the ones before it, and protect nothing until they have seen half a
window. A run that starts from a checkpoint just before a spike meets the spike in those steps. So their rings are filled from
the history that lies in the checkpoint's own metrics: losses, gradient norms and norms of directions (reference:
marin_32b_retrospective.md, `exp1390_32b_necro`; there it bought a few thousand steps, and the cause was the missing QK-norm).

A rebuilt ring is, bit for bit, the one that the run before would have had with the same window, had it kept one.
"""

import json
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from lineage.history import START
from lineage.store import Artifact
from trainer.optimizers.rolling import Ring, SkipState

COLUMNS = ("loss_nats", "grad_norm", "direction_norm", "skipped")


@dataclass(frozen=True)
class History:
    """What the rules would have been shown, in order."""

    losses: np.ndarray
    """Of every step: `judge` remembers those that it skips, too, as OLMo-core's and Levanter's do."""
    grad_norms: np.ndarray
    directions: np.ndarray
    """Norms before `clip_update_norm`, of the steps that were taken: a skipped step leaves the optimizer as it was."""
    skipped_last: int
    """Steps skipped since the last that was not."""


def history_of(checkpoint: Artifact) -> History:
    """What a checkpoint's metrics tell. Raises: ValueError for one that has none, or from before directions were recorded."""
    metrics = _metrics(checkpoint)
    taken = metrics.filter(~pl.col("skipped"))
    skipped = metrics["skipped"].to_numpy()[::-1]
    return History(
        metrics["loss_nats"].to_numpy(),
        metrics["grad_norm"].to_numpy(),
        taken["direction_norm"].to_numpy(),
        len(skipped) if skipped.all() else int(np.argmin(skipped)),
    )


def _metrics(checkpoint: Artifact) -> pl.DataFrame:
    """Of every step that its guards remember: those of its run, after those of the run before where its own were rebuilt."""
    found = checkpoint.files("metrics.parquet")
    metrics = pl.read_parquet(found[0]) if found else pl.DataFrame()
    missing = [name for name in COLUMNS if name not in metrics.columns]
    if missing:
        raise ValueError(
            f"run.start.guards is 'rebuilt', and {checkpoint.name} has no {missing[0]} of its steps to rebuild them from; "
            "it must be 'fresh' for a checkpoint that this version of the trainer did not write"
        )
    start = json.loads(checkpoint.file("spec.json").read_text()).get("start") or {}
    earlier = [_metrics(checkpoint.input(START))] if start.get("guards") == "rebuilt" else []
    return pl.concat([*earlier, metrics.select(COLUMNS)])


def refilled(ring: Ring, values: np.ndarray) -> Ring:
    """An empty ring after the finite values of a history were pushed, each in its slot, where the ring lies."""
    window = ring.values.shape[0]
    finite = values[np.isfinite(values)].astype(np.float32)
    filled = np.zeros(window, np.float32)
    last = np.arange(max(0, finite.size - window), finite.size)
    filled[last % window] = finite[last]
    return Ring(jax.device_put(filled, ring.values.sharding), jax.device_put(np.int32(finite.size), ring.count.sharding))


def remembering(optimizer: Any, skip: SkipState | None, history: History) -> tuple[Any, SkipState | None]:
    """An optimizer state and a guard with their empty rings filled."""
    filled = jax.tree.map(
        lambda node: refilled(node, history.directions) if _is_ring(node) else node, optimizer, is_leaf=_is_ring
    )
    if skip is None:
        return filled, None
    in_a_row = jax.device_put(jnp.int32(history.skipped_last), skip.in_a_row.sharding)
    return filled, SkipState(refilled(skip.losses, history.losses), refilled(skip.grad_norms, history.grad_norms), in_a_row)


def ring_names(names: Set[str]) -> set[str]:
    """Those of the paths of an optimizer's arrays that are of a ring: nothing else there has `values`."""
    return {name for name in names if f"{name.rpartition('.')[0]}.values" in names}


def _is_ring(node: object) -> bool:
    return isinstance(node, Ring)
