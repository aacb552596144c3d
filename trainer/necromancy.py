"""Guards of a new run that remember another run's last steps: what Marin's 32B restart did by hand ("necromancy").

`clip_update_norm` and `skip_bad_steps` compare a step with the ones before it, and protect nothing until they have seen half a
window. A run that starts from a checkpoint just before a spike meets the spike in those steps. So their rings are filled from
the history that lies in the checkpoint's own metrics: losses, gradient norms and norms of updates (reference:
marin_32b_retrospective.md, `exp1390_32b_necro`; there it bought a few thousand steps, and the cause was the missing QK-norm).
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import polars as pl

from lineage.store import Artifact
from trainer.optimizers.rolling import Ring, SkipState

COLUMNS = ("loss_nats", "grad_norm", "update_norm", "learning_rate")


@dataclass(frozen=True)
class History:
    """Of the steps that a run took and did not skip, in order."""

    losses: np.ndarray
    grad_norms: np.ndarray
    directions: np.ndarray
    """Norms of directions: updates over their rates, as `clip_update_norm` measures them."""


def history_of(checkpoint: Artifact) -> History:
    """What a checkpoint's metrics tell. Raises: ValueError for one that has none, or from before updates were recorded."""
    found = checkpoint.files("metrics.parquet")
    metrics = pl.read_parquet(found[0]) if found else pl.DataFrame()
    missing = [name for name in COLUMNS if name not in metrics.columns]
    if missing:
        raise ValueError(
            f"run.start.guards is 'rebuilt', and {checkpoint.name} has no {missing[0]} of its steps to rebuild them from; "
            "it must be 'fresh' for a checkpoint that this trainer did not write"
        )
    taken = metrics.filter(~pl.col("skipped"))
    moved = taken.filter(pl.col("learning_rate") > 0)
    return History(
        taken["loss_nats"].to_numpy(),
        taken["grad_norm"].to_numpy(),
        moved["update_norm"].to_numpy() / moved["learning_rate"].to_numpy(),
    )


def refilled(ring: Ring, values: np.ndarray) -> Ring:
    """An empty ring after the last finite values of a history were pushed, where the ring lies."""
    window = ring.values.shape[0]
    kept = values[np.isfinite(values)][-window:].astype(np.float32)
    filled = np.zeros(window, np.float32)
    filled[: kept.size] = kept
    return Ring(jax.device_put(filled, ring.values.sharding), jax.device_put(np.int32(kept.size), ring.count.sharding))


def remembering(optimizer: Any, skip: SkipState | None, history: History) -> tuple[Any, SkipState | None]:
    """An optimizer state and a guard with their empty rings filled; a ring that was carried along already remembers."""

    def fill(node: Any) -> Any:
        return refilled(node, history.directions) if _is_ring(node) and int(node.count) == 0 else node

    filled = jax.tree.map(fill, optimizer, is_leaf=_is_ring)
    if skip is None:
        return filled, None
    return filled, SkipState(
        refilled(skip.losses, history.losses), refilled(skip.grad_norms, history.grad_norms), skip.in_a_row
    )


def ring_names(optimizer: Any) -> set[str]:
    """Paths of the arrays of every ring in an optimizer's state."""
    found = jax.tree_util.tree_leaves_with_path(optimizer, is_leaf=_is_ring)
    return {
        jax.tree_util.keystr(path) + jax.tree_util.keystr(inner)
        for path, node in found
        if _is_ring(node)
        for inner, _ in jax.tree_util.tree_leaves_with_path(node)
    }


def _is_ring(node: object) -> bool:
    return isinstance(node, Ring)
