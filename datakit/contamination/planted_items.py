"""Prove that a scan can find leaks: plant real items into clean documents of the source, in the forms that leaks take.

A scan that marks nothing is evidence only if the same code, index and thresholds mark a planted item. Every artifact
records recall by form, and false marks: on controls with an item's words in another order, on items other than the
planted one, and on the source's own text with its words shuffled, which keeps the source's vocabulary, numbers and
tables and holds no item.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import polars as pl
import xxhash

from datakit.contamination.channels import ITEM_KEY
from datakit.contamination.leak_forms import LEAK_FORMS, Item
from datakit.contamination.protocol import Finder, Policy, PolicyIndex
from datakit.text.canonical_text import canonical_bytes

FILLER_CHARACTERS = 2_000
SCRAMBLED_PER_CANARY = 8
"""Documents with shuffled words for each planted item: 192 by default."""
_MIN_QUESTION_WORDS = 8
"""Fewest question words of a canary under any policy: text holds shorter questions by chance, and policies are compared
on the same items.
"""


@dataclass(frozen=True)
class Canary:
    """A benchmark item to plant: its row in the item table, and the fields of that row."""

    item: int
    fields: Item
    seed: int

    @property
    def question(self) -> str:
        return self.fields["question"]

    def leaked(self, form: str) -> str | None:
        """Return the item in a form of `LEAK_FORMS`, the same at every call; None if the form does not apply."""
        return LEAK_FORMS[form](self.fields, random.Random(self.seed))


def _shuffled(canary: Canary) -> str:
    """Return the same words in another order: a scan must not find it."""
    words = canary.question.split()
    random.Random(canary.seed).shuffle(words)
    return " ".join(words)


VARIANTS = ("verbatim", "olmes", "question_only", "wrapped", "unpunctuated", "edited_12_percent")
"""The forms of every scan: those that apply to any item. The proof of a policy measures all forms once."""
SHUFFLED = "shuffled"
SCRAMBLED = "clean_text"
FORMS = (SCRAMBLED, *VARIANTS, SHUFFLED)
"""Kinds of documents that `Plants` makes; the one with the most text first, because workers begin with it."""


def num_clean_texts(policy: Policy) -> int:
    """Return how many clean documents `plants` needs."""
    return policy.num_canaries * SCRAMBLED_PER_CANARY


@dataclass(frozen=True)
class Plants:
    """Items to plant into clean documents of the source, for each of FORMS. It is sent between processes."""

    canaries: tuple[Canary, ...]
    clean_texts: tuple[str, ...]
    """Openings of clean documents: at most `num_clean_texts`."""
    num_fillers: int

    @property
    def fillers(self) -> Sequence[str]:
        return self.clean_texts[: self.num_fillers] or ("",)

    def documents(self, form: str) -> list[str]:
        """Return documents of a form: one planted item each, or for SCRAMBLED the clean documents with their words shuffled."""
        if form == SCRAMBLED:
            return [_scrambled(text, seed) for seed, text in enumerate(self.clean_texts)]
        leaks = [_shuffled(canary) if form == SHUFFLED else canary.leaked(form) or "" for canary in self.canaries]
        return [planted(leak, self.fillers[at % len(self.fillers)]) for at, leak in enumerate(leaks)]


def plants(
    items: pl.DataFrame, channels: pl.DataFrame, clean_texts: Sequence[str], index: PolicyIndex, policy: Policy
) -> Plants:
    """Choose `policy.num_canaries` items to plant.

    Raises: ValueError if no item can be planted, because such a suite cannot be scanned for.
    """
    canaries = choose_canaries(items, channels, index, policy.num_canaries)
    if not canaries:
        raise ValueError(
            f"none of the {len(items)} benchmark items can be planted, so this policy can find nothing: no question is long "
            "enough to be matched, or each is in so many documents of the source that it counts as a template"
        )
    return Plants(tuple(canaries), tuple(text[:FILLER_CHARACTERS] for text in clean_texts), policy.num_canaries)


def canary_report(
    planted: Plants, marked: Mapping[str, Sequence[set[int]]], questions: pl.Series, policy: Policy
) -> dict[str, object]:
    """Return recall by form and false alarms. `marked`: for each of FORMS the items that each of its documents is marked
    for.

    `false_positives.shuffled`: share of plants of shuffled items that are marked. `.other_items`: share of planted
    documents marked for an item with another question (items made from one template do this rightly). `.clean_text`:
    share of `scrambled_documents` that are marked.

    Raises: RuntimeError if the recall of verbatim plants is below `policy.min_canary_recall`.
    """
    canaries = planted.canaries
    recall = {
        name: share(canary.item in items for canary, items in zip(canaries, marked[name], strict=True)) for name in VARIANTS
    }
    if recall["verbatim"] < policy.min_canary_recall:
        raise RuntimeError(
            f"only {recall['verbatim']:.0%} of {len(canaries)} benchmark items planted verbatim were found, "
            f"{policy.min_canary_recall:.0%} are needed: this scan cannot be trusted, check the policy's thresholds"
        )
    num_others = sum(_marked_for_others(canaries, marked[name], questions) for name in VARIANTS)
    return {
        "items": len(canaries),
        "clean_documents": len(planted.fillers),
        "scrambled_documents": len(planted.clean_texts),
        "recall": recall,
        "false_positives": {
            "shuffled": share(map(bool, marked[SHUFFLED])),
            "other_items": round(num_others / (len(canaries) * len(VARIANTS)), 4),
            "clean_text": share(map(bool, marked[SCRAMBLED])) if planted.clean_texts else 0.0,
        },
    }


def choose_canaries(
    items: pl.DataFrame, channels: pl.DataFrame, index: PolicyIndex, count: int, among: pl.Series | None = None
) -> list[Canary]:
    """Return the first `count` items, in hash order of their keys, that can be matched and whose question is long
    enough.

    `among` [channels]: which may be chosen; all by default.
    """
    is_question = channels["channel"] == "question"
    wanted = pl.Series(index.is_matchable()) & (is_question if is_question.any() else ~is_question)
    wanted = wanted if among is None else wanted & among
    matchable = channels.filter(wanted)["item"].unique().to_list()
    questions, keys = items["question"].to_list(), items.select(ITEM_KEY).rows()
    keyed = sorted((xxhash.xxh3_64_intdigest("\x1f".join(keys[row]).encode()), row) for row in matchable)
    long = ((seed, row) for seed, row in keyed if len(canonical_bytes(questions[row]).split()) >= _MIN_QUESTION_WORDS)
    chosen = islice(long, count)
    return [Canary(row, items.row(row, named=True), seed) for seed, row in chosen]


def items_found(documents: Sequence[str], find: Finder, item_of_channel: Sequence[int]) -> list[set[int]]:
    """Return for each document the items that it is marked for."""
    items: list[set[int]] = [set() for _ in documents]
    for document, channel in find(documents):
        items[document].add(item_of_channel[channel])
    return items


def _marked_for_others(canaries: Sequence[Canary], marked_items: Sequence[set[int]], questions: pl.Series) -> int:
    """Return how many plants are marked for an item with another question than theirs."""
    pairs = zip(canaries, marked_items, strict=True)
    return sum(any(questions[item] != canary.question for item in marked) for canary, marked in pairs)


def _scrambled(text: str, seed: int) -> str:
    """Return the words of a text in another order, with its white space in place."""
    pieces = re.split(r"(\s+)", text)
    words = pieces[::2]
    random.Random(seed).shuffle(words)
    pieces[::2] = words
    return "".join(pieces)


def planted(text: str, filler: str) -> str:
    """Return a clean text with another text in its middle."""
    middle = filler.rfind(" ", 0, len(filler) // 2) + 1
    return f"{filler[:middle]}\n\n{text}\n\n{filler[middle:]}"


def share(flags) -> float:
    """Return the share of true values, rounded to 4 digits."""
    values = list(flags)
    return round(sum(values) / len(values), 4)
