"""One way to ask any contamination policy, recommended or named: its channels, its index, its scan."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import polars as pl

from datakit.contamination_channels import ItemIndex, channel_table, index_items
from datakit.contamination_named import GptPolicy, NamedPolicy
from datakit.contamination_named_index import NamedIndex, index_named, named_channels
from datakit.contamination_named_scan import NO_GRAMS, grams_by_document, scan_named
from datakit.contamination_policy import STANDING_TIERS, ContaminationConfig
from datakit.contamination_scan import ChannelMatch, scan, standing_pairs
from datakit.ngram_index import Ints, UInt64s

type Policy = ContaminationConfig | NamedPolicy
type PolicyIndex = ItemIndex | NamedIndex
BATCH_CHARACTERS = 1 << 18
"""Text scanned at once: working arrays near the size of a second-level cache."""
type Scanner = Callable[[Sequence[str]], list[ChannelMatch]]
"""From documents to what each of them holds, ordered by (document, channel)."""
type Finder = Callable[[Sequence[str]], list[tuple[int, int]]]
"""From documents to (document, channel) of what marks them."""


def policy_channels(items: pl.DataFrame, policy: Policy) -> pl.DataFrame:
    """What the policy matches of every item: `item` (row of the item), `channel`, `text`, a row a channel."""
    return channel_table(items) if isinstance(policy, ContaminationConfig) else named_channels(items, policy)


def build_index(items: pl.DataFrame, channels: pl.DataFrame, policy: Policy) -> PolicyIndex:
    """Index the channels of `policy_channels`."""
    if isinstance(policy, ContaminationConfig):
        return index_items(channels, policy)
    return index_named(items, channels, policy)


@lru_cache(maxsize=2)
def load_index(folder: Path, policy: Policy) -> PolicyIndex:
    """An index that was saved to a folder, kept by the process: its shards share it, nobody changes it."""
    return ItemIndex.load(folder) if isinstance(policy, ContaminationConfig) else NamedIndex.load(folder)


def scanner(index: PolicyIndex, policy: Policy, ignored: UInt64s = NO_GRAMS) -> Scanner:
    """The policy's scan. `ignored`: grams that it leaves out because too many documents hold them (`counts_documents`)."""
    if isinstance(policy, ContaminationConfig):
        assert isinstance(index, ItemIndex)
        return lambda texts: scan(texts, index, policy)
    assert isinstance(index, NamedIndex)
    return lambda texts: scan_named(texts, index, policy, ignored)


def finder(index: PolicyIndex, policy: Policy, ignored: UInt64s = NO_GRAMS) -> Finder:
    """The policy's scan for who asks only what is marked for what."""
    if isinstance(policy, ContaminationConfig):
        assert isinstance(index, ItemIndex)
        return lambda texts: standing_pairs(texts, index, policy)
    scan = scanner(index, policy, ignored)
    return lambda texts: [(match.document, match.channel) for match in scan(texts) if match.tier in STANDING_TIERS]


def text_batches(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """(number of the first, texts) of about BATCH_CHARACTERS each; a longer text is a batch of its own."""
    low, size = 0, 0
    for number, text in enumerate(texts):
        size += len(text)
        if size >= BATCH_CHARACTERS:
            yield low, texts[low : number + 1]
            low, size = number + 1, 0
    if low < len(texts):
        yield low, texts[low:]


def counts_documents(policy: Policy) -> bool:
    """Whether the policy has to know in how many documents each gram is, before it marks any."""
    return isinstance(policy, GptPolicy) and policy.max_documents > 0


def document_counts(texts: Sequence[str], index: PolicyIndex, policy: Policy) -> tuple[UInt64s, Ints]:
    """(grams of the items, how many of the texts hold each), of a policy that counts documents."""
    assert isinstance(policy, GptPolicy) and isinstance(index, NamedIndex)
    return grams_by_document(texts, index, policy)


def too_common(grams: UInt64s, num_documents: Ints, policy: Policy) -> UInt64s:
    """The grams, which may repeat, that more documents hold than the policy allows."""
    assert isinstance(policy, GptPolicy)
    counted = pl.DataFrame({"gram": grams, "documents": num_documents}).group_by("gram").sum()
    return counted.filter(pl.col("documents") > policy.max_documents)["gram"].sort().to_numpy()
