"""Fill the guards of a new run with the last steps of another run, as Marin's 32B restart did by hand ("necromancy").

`clip_update_norm` and `skip_bad_steps` compare a step with earlier ones and protect nothing before half a window is full.
A run that starts from a checkpoint just before a loss spike meets the spike in those steps. So their rings are filled from the
metrics of the checkpoint: losses, gradient norms, and update norms before the clip. Source: `exp1390_32b_necro` of
Marin (docs/references.md#marin-32b-qk-norm), where it gained a few thousand steps; the cause was the missing QK-norm.

A rebuilt ring equals, bit for bit, the ring that the earlier run would have had with the same window.
"""

import json
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from lineage.artifact.store import Artifact
from lineage.order.history import START
from trainer.optimizers.rolling import Ring, SkipState

COLUMNS = ("loss_nats", "grad_norm", "direction_norm", "skipped")


@dataclass(frozen=True)
class History:
    """The values that the guards would have seen, in order of steps."""

    losses: np.ndarray
    """Losses of every step; `accept_step` also remembers the steps that it skips, as OLMo-core and Levanter do."""
    grad_norms: np.ndarray
    directions: np.ndarray
    """Update norms before `clip_update_norm`, of steps that were not skipped: a skipped step leaves the optimizer unchanged."""
    skipped_last: int
    """Length of the current run of skipped steps."""


def history_of(checkpoint: Artifact) -> History:
    """Return what the guards remember of a checkpoint's steps, from its metrics. Raises: ValueError if a column is missing."""
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
    """Metrics of every step that the guards remember; for rebuilt guards, those of the earlier run come first."""
    files = checkpoint.files("metrics.parquet")
    metrics = pl.read_parquet(files[0]) if files else pl.DataFrame()
    missing = [name for name in COLUMNS if name not in metrics.columns]
    if missing:
        raise ValueError(
            f"run.start.guards is 'rebuilt', and {checkpoint.name} has no {missing[0]} of its steps to rebuild them from; "
            "it must be 'fresh' for a checkpoint that this version of the trainer did not write"
        )
    start = json.loads(checkpoint.file("spec.json").read_text()).get("start") or {}
    earlier = [_metrics(checkpoint.input(START))] if start.get("guards") == "rebuilt" else []
    return pl.concat([*earlier, metrics.select(COLUMNS)])


def filled_ring(ring: Ring, values: np.ndarray) -> Ring:
    """An empty ring after all finite values of a history were pushed; on the device of the ring."""
    window = ring.values.shape[0]
    finite = values[np.isfinite(values)].astype(np.float32)
    filled = np.zeros(window, np.float32)
    last = np.arange(max(0, finite.size - window), finite.size)
    filled[last % window] = finite[last]
    return Ring(jax.device_put(filled, ring.values.sharding), jax.device_put(np.int32(finite.size), ring.count.sharding))


def restore_guards(optimizer: Any, skip: SkipState | None, history: History) -> tuple[Any, SkipState | None]:
    """An optimizer state and a guard with their rings filled."""
    filled = jax.tree.map(
        lambda node: filled_ring(node, history.directions) if _is_ring(node) else node, optimizer, is_leaf=_is_ring
    )
    if skip is None:
        return filled, None
    in_a_row = jax.device_put(jnp.int32(history.skipped_last), skip.in_a_row.sharding)
    return filled, SkipState(
        filled_ring(skip.losses, history.losses), filled_ring(skip.grad_norms, history.grad_norms), in_a_row
    )


def ring_names(names: Set[str]) -> set[str]:
    """Paths of an optimizer's arrays that belong to a ring: nothing else there has a field `values`."""
    return {name for name in names if f"{name.rpartition('.')[0]}.values" in names}


def _is_ring(node: object) -> bool:
    return isinstance(node, Ring)
