"""`Policy` and `PolicyIndex`: what a contamination policy must provide, and nothing about how any policy works.

A policy is a frozen config. It says which text of an item it matches (`channels`), builds and loads an index of these
channels, and the index scans documents. A policy may ignore grams that many documents of the scanned source hold,
before the scan or after it (`common_grams`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from datakit.text.ngram_index import Ints, UInt64s
from lineage.match_tiers import Tier

BATCH_CHARACTERS = 1 << 18
"""Text scanned at once; the working arrays fit into about a second-level cache."""
COUNT_SCHEMA = {"is_masked": pl.Boolean, "gram": pl.UInt64, "documents": pl.Int64}
"""Grams of the items, with numbers masked or not, and how many documents hold each."""
_NONE = (np.empty(0, np.uint64), np.empty(0, np.int64))

type Finder = Callable[[Sequence[str]], list[tuple[int, int]]]
"""From documents to (document, channel) of every match that marks its document."""
type CommonGrams = Literal["kept", "ignored_before_scan", "ignored_after_scan"]
"""What a policy does with grams that more documents of the source hold than `document_limit`. `ignored_after_scan`
counts them during the scan and scans matching documents again; `ignored_before_scan` counts them in a pass of its own.
"""


@dataclass(frozen=True)
class ChannelMatch:
    """A channel found in a document; the span is bytes of the document's own text in UTF-8."""

    document: int
    channel: int
    tier: Tier
    score: float
    start_byte: int
    end_byte: int
    longest_run: int


@dataclass(frozen=True)
class GramCounts:
    """(grams of the items, number of texts that hold each), with the original numbers and with masked numbers."""

    exact: tuple[UInt64s, Ints] = _NONE
    masked: tuple[UInt64s, Ints] = _NONE


class PolicyIndex(Protocol):
    """The channels of the items, ready to scan documents."""

    def is_matchable(self) -> NDArray[np.bool_]:
        """[channels] whether the channel can be found at all."""
        ...

    def finds_parts(self) -> NDArray[np.bool_]:
        """[channels] whether half of the channel and an edited copy would be found too."""
        ...

    def save(self, folder: Path) -> None:
        """Write the arrays of the index; `Policy.load_index` reads them."""
        ...

    def scan(self, texts: Sequence[str]) -> list[ChannelMatch]:
        """Return what each document holds, ordered by (document, channel)."""
        ...

    def scan_counting(self, texts: Sequence[str]) -> tuple[list[ChannelMatch], GramCounts]:
        """Return `scan`, and in how many of the texts each gram of the items occurs; no counts if the policy counts
        none in a scan.
        """
        ...

    def marked_pairs(self, texts: Sequence[str]) -> list[tuple[int, int]]:
        """Return (document, channel) of every match that marks its document."""
        ...

    def count_grams(self, texts: Sequence[str]) -> GramCounts:
        """Return in how many of the texts each gram of the items occurs, without a scan."""
        ...

    def without(self, common: pl.DataFrame) -> "PolicyIndex":
        """Return the index that ignores the grams of a COUNT_SCHEMA table."""
        ...

    def affected_channels(self, common: pl.DataFrame) -> NDArray[np.int64]:
        """Return the channels with a gram of a COUNT_SCHEMA table."""
        ...


class Policy(Protocol):
    """A definition of contamination with all its thresholds."""

    @property
    def policy(self) -> str:
        """Its name."""
        ...

    @property
    def num_canaries(self) -> int:
        """How many items every scan plants."""
        ...

    @property
    def min_canary_recall(self) -> float:
        """The share of verbatim plants that a scan must find."""
        ...

    @property
    def common_grams(self) -> CommonGrams: ...

    def document_limit(self, num_documents: int) -> int:
        """Return the largest number of documents that may hold a gram that counts, in a source of `num_documents`."""
        ...

    def channels(self, items: pl.DataFrame) -> pl.DataFrame:
        """Return what the policy matches of every item, one row a channel: `item` (row of the item), `channel`, `text`."""
        ...

    def index(self, items: pl.DataFrame, channels: pl.DataFrame) -> PolicyIndex:
        """Build the index of the channels of `channels`."""
        ...

    def load_index(self, folder: Path) -> PolicyIndex:
        """Load an index that was saved to a folder."""
        ...


@lru_cache(maxsize=2)
def load_index(folder: Path, policy: Policy) -> PolicyIndex:
    """Return a saved index, cached in the process. Shards share it and do not change it."""
    return policy.load_index(folder)


@lru_cache(maxsize=1)
def index_without(folder: Path, policy: Policy, common: Path | None) -> PolicyIndex:
    """Return a saved index that ignores the grams of a COUNT_SCHEMA file, or the index itself for None. Cached in the
    process.

    The path of the file holds the identity of its artifact, so one path has one content.
    """
    index = load_index(folder, policy)
    return index if common is None else index.without(pl.read_parquet(common))


def count_table(counts: Sequence[GramCounts]) -> pl.DataFrame:
    """COUNT_SCHEMA: the sum of the counts."""
    kinds = [(False, [count.exact for count in counts]), (True, [count.masked for count in counts])]
    frames = []
    for is_masked, of_kind in kinds:
        grams, rows = np.unique(np.concatenate([_NONE[0], *(each for each, _ in of_kind)]), return_inverse=True)
        documents = np.zeros(len(grams), np.int64)
        np.add.at(documents, rows, np.concatenate([_NONE[1], *(each for _, each in of_kind)]))
        columns = {"is_masked": np.full(len(grams), is_masked), "gram": grams, "documents": documents}
        frames.append(pl.DataFrame(columns, schema=COUNT_SCHEMA))
    return pl.concat(frames)


def text_batches(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield (number of the first, texts) of about BATCH_CHARACTERS each; a longer text is a batch of its own."""
    low, size = 0, 0
    for number, text in enumerate(texts):
        size += len(text)
        if size >= BATCH_CHARACTERS:
            yield low, texts[low : number + 1]
            low, size = number + 1, 0
    if low < len(texts):
        yield low, texts[low:]
