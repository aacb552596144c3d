"""The recommended policy: window coverage and alignment (`policy.py`) behind the protocol of all policies."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from datakit.contamination.channels import ItemIndex, channel_table
from datakit.contamination.halves import finds_halves
from datakit.contamination.item_grams import index_items
from datakit.contamination.policy import WindowRules
from datakit.contamination.protocol import ChannelMatch, CommonGrams, GramCounts
from datakit.contamination.scan import scan, scan_counting, standing_pairs
from datakit.contamination.templates import affected_channels, without_templates


@dataclass(frozen=True)
class ContaminationConfig(WindowRules):
    """The rules of `WindowRules` as a policy. A scan finds the templates of a source, so they are ignored after the
    scan.
    """

    common_grams: ClassVar[CommonGrams] = "ignored_after_scan"

    def document_limit(self, num_documents: int) -> int:
        """Return the number of documents above which a gram is part of a template.

        >>> [ContaminationConfig().document_limit(n) for n in (1_000, 1_000_000)]
        [100, 1000]
        """
        return max(self.common_documents, int(num_documents * self.common_document_share))

    def channels(self, items: pl.DataFrame) -> pl.DataFrame:
        return channel_table(items)

    def index(self, items: pl.DataFrame, channels: pl.DataFrame) -> "CoverageIndex":
        del items
        return CoverageIndex(index_items(channels, self), self)

    def load_index(self, folder: Path) -> "CoverageIndex":
        return CoverageIndex(ItemIndex.load(folder), self)


@dataclass(frozen=True)
class CoverageIndex:
    """An `ItemIndex` with the rules for building and scanning it."""

    index: ItemIndex
    rules: WindowRules

    def is_matchable(self) -> NDArray[np.bool_]:
        return self.index.is_matchable()

    def finds_parts(self) -> NDArray[np.bool_]:
        return finds_halves(self.index.exact, self.rules)

    def save(self, folder: Path) -> None:
        self.index.save(folder)

    def scan(self, texts: Sequence[str]) -> list[ChannelMatch]:
        return scan(texts, self.index, self.rules)

    def scan_counting(self, texts: Sequence[str]) -> tuple[list[ChannelMatch], GramCounts]:
        return scan_counting(texts, self.index, self.rules)

    def marked_pairs(self, texts: Sequence[str]) -> list[tuple[int, int]]:
        return standing_pairs(texts, self.index, self.rules)

    def count_grams(self, texts: Sequence[str]) -> GramCounts:
        return self.scan_counting(texts)[1]

    def without(self, common: pl.DataFrame) -> "CoverageIndex":
        return CoverageIndex(without_templates(self.index, common, self.rules), self.rules)

    def affected_channels(self, common: pl.DataFrame) -> NDArray[np.int64]:
        return affected_channels(self.index, common)
