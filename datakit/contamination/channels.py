"""Benchmark items as matchable channels, and the index that documents are matched against (`item_grams.py` makes it)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from datakit.contamination.alignment import AlignedChannels
from datakit.text.arrays import load, load_all, save, save_all
from datakit.text.ngram_index import Floats, GramIndex, Ints, UInt64s
from lineage.artifact.store import Artifact

CHANNELS = ("question", "passage", "answer", "solution", "code")
ITEM_KEY = ("suite", "task", "item_id")
_ITEMS_FILE = "items.parquet"


@dataclass(frozen=True)
class ChannelGrams:
    """The grams of every channel in flat arrays: channel `c` has the grams `bounds[c]` to `bounds[c + 1]`, by position.

    `hashes` and `weights` [grams]; `needed_weight` [channels] flags a channel, `partial_weight` [channels] is a part of
    it (both infinite if it cannot be matched); `total_weight` [channels] is the weight of a verbatim copy.
    """

    hashes: UInt64s
    weights: Floats
    bounds: Ints
    total_weight: Floats
    needed_weight: Floats
    partial_weight: Floats
    index: GramIndex

    def of(self, channel: int) -> slice:
        return slice(int(self.bounds[channel]), int(self.bounds[channel + 1]))

    def is_matchable(self) -> NDArray[np.bool_]:
        return np.isfinite(self.needed_weight)

    def needed_coverage(self, channel: int) -> float:
        return float(self.needed_weight[channel] / self.total_weight[channel])

    def save(self, folder: Path) -> None:
        self.index.save(folder / "index")
        save_all(
            folder,
            hashes=self.hashes,
            weights=self.weights,
            bounds=self.bounds,
            total_weight=self.total_weight,
            needed_weight=self.needed_weight,
            partial_weight=self.partial_weight,
        )

    @classmethod
    def load(cls, folder: Path) -> "ChannelGrams":
        return cls(index=GramIndex.load(folder / "index"), **load_all(folder))


@dataclass(frozen=True)
class ItemIndex:
    """The index that documents are matched against: channels with their own words, with numbers masked, and word for
    word.

    `prefixes` is a bit table of the beginnings of all grams (their first `seed_words` words, numbers masked). One
    lookup shows where no gram can begin, which is nearly everywhere in a document.
    """

    exact: ChannelGrams
    masked: ChannelGrams
    aligned: AlignedChannels
    prefixes: NDArray[np.uint8]

    def is_matchable(self) -> NDArray[np.bool_]:
        """Return which channels can be flagged at all."""
        return self.exact.is_matchable() | self.masked.is_matchable()

    def save(self, folder: Path) -> None:
        self.exact.save(folder / "exact")
        self.masked.save(folder / "masked")
        self.aligned.save(folder / "aligned")
        save(folder / "prefixes.npy", self.prefixes)

    @classmethod
    def load(cls, folder: Path) -> "ItemIndex":
        return cls(
            ChannelGrams.load(folder / "exact"),
            ChannelGrams.load(folder / "masked"),
            AlignedChannels.load(folder / "aligned"),
            load(folder / "prefixes.npy"),
        )


def read_suite_items(suites: Sequence[Artifact]) -> pl.DataFrame:
    """Return the items of every suite: the key columns, the text channels, `choices`, `answer_index`; sorted by key.

    Raises: ValueError if there is no item, or if two suites hold the same key.
    """
    columns = [*ITEM_KEY, *CHANNELS, "choices", "answer_index"]
    frames = [pl.read_parquet(suite.folder() / _ITEMS_FILE, columns=columns) for suite in suites]
    items = pl.concat(frames).sort(ITEM_KEY) if frames else pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    if items.is_empty():
        raise ValueError(f"no benchmark items in the {len(frames)} suite(s) given; bind a suite with items to the policy")
    repeated = items.filter(items.select(ITEM_KEY).is_duplicated())
    if not repeated.is_empty():
        raise ValueError(f"two suites hold the item {repeated.row(0)[:3]}; give each suite its own name")
    return items


def channel_table(items: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each non-empty channel: `item` (row of the item), `channel`, `text`; ordered by item, then
    channel.
    """
    parts = [
        items.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("item"), pl.lit(name).alias("channel"), text=name)
        for name in CHANNELS
    ]
    order = pl.col("channel").replace_strict({name: rank for rank, name in enumerate(CHANNELS)}, return_dtype=pl.Int8)
    return pl.concat(parts).filter(pl.col("text").str.contains(r"\w")).sort("item", order)
