"""Proof that a scan can find: real items planted into the source's own clean documents, in the forms leaks take.

A scan that marks nothing says little unless the same code, index and thresholds mark a planted item. Recall is recorded by
form with every artifact; controls with an item's words in another order measure false alarms.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import xxhash

from datakit.canonical_text import blank_calculator_tags, canonical_bytes
from datakit.contamination_channels import ITEM_KEY, ItemIndex
from datakit.contamination_policy import STANDING_TIERS, ContaminationConfig
from datakit.contamination_scan import scan

FILLER_CHARACTERS = 2_000
_WRAP_WORDS = 8
_EDITED_SHARE = 0.12


@dataclass(frozen=True)
class Canary:
    """A benchmark item to plant: its row in the item table, its question, and its solution or gold answer."""

    item: int
    question: str
    answer: str
    seed: int


def _verbatim(canary: Canary) -> str:
    return f"Question: {canary.question}\nAnswer: {canary.answer}"


def _olmes(canary: Canary) -> str:
    """One paragraph, calculator tags cut, as OLMES renders GSM8K."""
    return " ".join(blank_calculator_tags(f"Question: {canary.question} Answer: {canary.answer}").split())


def _question_only(canary: Canary) -> str:
    return canary.question


def _wrapped(canary: Canary) -> str:
    words = _verbatim(canary).split()
    return "\n".join(" ".join(words[low : low + _WRAP_WORDS]) for low in range(0, len(words), _WRAP_WORDS))


def _unpunctuated(canary: Canary) -> str:
    return " ".join(canonical_bytes(_verbatim(canary)).decode().split())


def _edited(canary: Canary) -> str:
    """Every eighth word or so replaced, at random."""
    choose = random.Random(canary.seed)
    return " ".join("altered" if choose.random() < _EDITED_SHARE else word for word in _verbatim(canary).split())


def _shuffled(canary: Canary) -> str:
    """The same words in another order: must not be found."""
    words = canary.question.split()
    random.Random(canary.seed).shuffle(words)
    return " ".join(words)


VARIANTS: Mapping[str, Callable[[Canary], str]] = {
    "verbatim": _verbatim,
    "olmes": _olmes,
    "question_only": _question_only,
    "wrapped": _wrapped,
    "unpunctuated": _unpunctuated,
    "edited_12_percent": _edited,
}


def run_canaries(
    items: pl.DataFrame, channels: pl.DataFrame, clean_texts: Sequence[str], index: ItemIndex, config: ContaminationConfig
) -> dict[str, object]:
    """Plant `config.num_canaries` items in every variant and report recall by variant and false alarms.

    `false_positives.shuffled`: share of controls that are marked. `false_positives.other_items`: share of planted documents
    marked for an item whose question is not the planted one (siblings made from one template do that rightly).

    Raises: RuntimeError when the recall of verbatim plants is below `config.min_canary_recall`.
    """
    canaries = choose_canaries(items, channels, index, config.num_canaries)
    fillers = [text[:FILLER_CHARACTERS] for text in clean_texts] or [""]
    recall: dict[str, float] = {}
    num_others = 0
    for name, render in VARIANTS.items():
        marked = _marked_items(canaries, render, fillers, channels, index, config)
        recall[name] = _share(canary.item in found for canary, found in zip(canaries, marked, strict=True))
        questions = items["question"]
        num_others += sum(
            any(questions[item] != canary.question for item in found) for canary, found in zip(canaries, marked, strict=True)
        )
    shuffled = _marked_items(canaries, _shuffled, fillers, channels, index, config)
    if recall["verbatim"] < config.min_canary_recall:
        raise RuntimeError(
            f"only {recall['verbatim']:.0%} of {len(canaries)} benchmark items planted verbatim were found, "
            f"{config.min_canary_recall:.0%} are needed: this scan cannot be trusted, check the policy's thresholds"
        )
    return {
        "items": len(canaries),
        "clean_documents": len(clean_texts),
        "recall": recall,
        "false_positives": {
            "shuffled": _share(bool(found) for found in shuffled),
            "other_items": round(num_others / (len(canaries) * len(VARIANTS)), 4),
        },
    }


def choose_canaries(items: pl.DataFrame, channels: pl.DataFrame, index: ItemIndex, count: int) -> list[Canary]:
    """The first `count` items, in hash order of their keys, whose question is matchable.

    Raises: ValueError when no item has a matchable question: such a suite cannot be scanned for.
    """
    is_question = pl.col("channel") == "question"
    rows = channels.filter(pl.Series(index.exact.is_matchable()) & is_question)["item"].to_list()
    keys = items.select(ITEM_KEY).rows()
    keyed = [(xxhash.xxh3_64_intdigest("\x1f".join(keys[row]).encode()), row) for row in rows]
    if not keyed:
        raise ValueError(
            f"none of the {len(items)} benchmark items has a question long enough to be matched; this policy can find nothing"
        )
    canaries = []
    for seed, row in sorted(keyed)[:count]:
        item = items.row(row, named=True)
        canaries.append(Canary(row, item["question"], item["solution"] or item["answer"], seed))
    return canaries


def _marked_items(
    canaries: Sequence[Canary],
    render: Callable[[Canary], str],
    fillers: Sequence[str],
    channels: pl.DataFrame,
    index: ItemIndex,
    config: ContaminationConfig,
) -> list[set[int]]:
    """For each canary, the items found in the document it was planted in."""
    documents = [_planted(render(canary), fillers[i % len(fillers)]) for i, canary in enumerate(canaries)]
    item_of_channel = channels["item"].to_list()
    found: list[set[int]] = [set() for _ in canaries]
    for match in scan(documents, index, config):
        if match.tier in STANDING_TIERS:
            found[match.document].add(item_of_channel[match.channel])
    return found


def _planted(text: str, filler: str) -> str:
    middle = filler.rfind(" ", 0, len(filler) // 2) + 1
    return f"{filler[:middle]}\n\n{text}\n\n{filler[middle:]}"


def _share(found) -> float:
    values = list(found)
    return round(sum(values) / len(values), 4)
