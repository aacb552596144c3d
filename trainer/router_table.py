"""What routers did, by step and layer: the table `router.parquet` of a checkpoint with experts, which `trainer.plots` draws."""

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

FILE = "router.parquet"
SCHEMA = {
    "step": pl.Int64,
    "layer": pl.Int64,
    "loads": pl.List(pl.Int64),
    "load_max_over_mean": pl.Float64,
    "load_entropy": pl.Float64,
    "dead_experts": pl.Int64,
    "dropped_share": pl.Float64,
    "bias_norm": pl.Float64,
}
"""`loads` counts assignments by expert before any capacity. `load_entropy` is a share of the most there can be, log E.
Layers are counted from the first that has experts."""
WINDOW_TOKENS = 65_536
"""Tokens over which loads are added before they are judged: a small batch is uneven by chance."""
MOST_UNEVEN, DEAD_SHARE = 3.0, 0.1


def empty_table() -> pl.DataFrame:
    """Return a table of routers (SCHEMA) without rows."""
    return pl.DataFrame(schema=SCHEMA)


def router_rows(step: int, counts: tuple[ArrayLike, ArrayLike, ArrayLike]) -> list[tuple]:
    """A row for each layer of (loads [L, E], dropped [L], bias norms [L]). `step` counts this step too."""
    loads, dropped, norms = (np.asarray(each) for each in counts)
    return [(step, layer, *_row(loads[layer], int(dropped[layer])), float(norms[layer])) for layer in range(len(loads))]


def _row(loads: np.ndarray, dropped: int) -> tuple[list[int], float, float, int, float]:
    total = max(int(loads.sum()), 1)
    shares = loads / total
    entropy = -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0))) / np.log(max(len(loads), 2))
    return loads.tolist(), float(shares.max() * len(loads)), float(entropy), int((loads == 0).sum()), dropped / total


def router_values(rows: list[tuple]) -> dict[str, float]:
    """Values of a step for trackers."""
    names = list(SCHEMA)[3:]
    return {f"router/layer_{row[1]}/{name}": float(value) for row in rows for name, value in zip(names, row[3:], strict=True)}


class Balance(NamedTuple):
    """The loads of one layer over a window of steps."""

    layer: int
    first: int
    last: int
    max_over_mean: float
    least_over_mean: float


def balance_of(table: pl.DataFrame, per_token: int, window_tokens: int = WINDOW_TOKENS) -> list[Balance]:
    """Every layer over the last steps that together have at least `window_tokens` tokens; over all steps if they have fewer."""
    table_rows = []
    for (layer,), rows in table.sort("step").group_by("layer", maintain_order=True):
        loads = np.array(rows["loads"].to_list())
        tokens = np.cumsum(loads[::-1].sum(axis=1)) / per_token
        count = min(int(np.searchsorted(tokens, window_tokens)) + 1, len(loads))
        window = loads[-count:].sum(axis=0)
        mean = max(window.mean(), 1e-9)
        first, last = rows["step"][-count], rows["step"][-1]
        table_rows.append(Balance(int(layer), int(first), int(last), float(window.max() / mean), float(window.min() / mean)))
    return table_rows


def unbalanced(balances: list[Balance]) -> list[str]:
    """A sentence for each layer that is not balanced: an expert above `MOST_UNEVEN` of the mean load, or below `DEAD_SHARE`."""
    bad = [each for each in balances if each.max_over_mean > MOST_UNEVEN or each.least_over_mean < DEAD_SHARE]
    return [
        f"layer {each.layer}, steps {each.first} to {each.last}: the busiest expert has {each.max_over_mean:.2f} of the mean "
        f"load (at most {MOST_UNEVEN:g}), the idlest {each.least_over_mean:.2f} (at least {DEAD_SHARE:g})"
        for each in bad
    ]
