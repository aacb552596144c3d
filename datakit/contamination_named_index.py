"""Benchmark items as the grams of a named policy, and documents cut the same way."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from datakit.arrays import load_all, save_all
from datakit.contamination_named import DatatrovePolicy, DolmaPolicy, GptPolicy, MarinPolicy, NamedPolicy, TuluPolicy
from datakit.contamination_named_words import (
    Item,
    datatrove_bytes,
    english_tokens,
    gpt_bytes,
    has_letter,
    line_hashes,
    lm_eval_text,
    marin_bytes,
    marin_paragraphs,
    num_unicode_words,
    tulu_bytes,
)
from datakit.ngram_index import GramIndex, Ints, UInt64s, build_index, gram_hashes, grams_at, hash_words, whole_grams


@dataclass(frozen=True)
class Cut:
    """Texts in the words of a policy. Segment `s` of text `texts[s]` has the words `bounds[s]` to `bounds[s + 1]`."""

    words: UInt64s
    bounds: Ints
    texts: Ints

    @property
    def first_words(self) -> Ints:
        """[texts + 1] first word of each text."""
        last = int(self.texts[-1]) + 1 if len(self.texts) else 0
        return self.bounds[np.searchsorted(self.texts, np.arange(last + 1))]


def cut(texts: Sequence[str], policy: NamedPolicy) -> Cut:
    """Cut texts; a segment is what no gram reaches across: a paragraph for Marin, else the whole text."""
    if isinstance(policy, DolmaPolicy):
        lines = [line_hashes(text) for text in texts]
        bounds = np.cumsum([0, *map(len, lines)], dtype=np.int64)
        return Cut(np.array([line for found in lines for line in found], np.uint64), bounds, np.arange(len(texts)))
    if isinstance(policy, MarinPolicy):
        paragraphs = [marin_paragraphs(text, policy.min_short_words, policy.gram_words) for text in texts]
        words = hash_words([marin_bytes(part) for parts in paragraphs for part in parts])
        return Cut(words.hashes, words.bounds, np.repeat(np.arange(len(texts)), [len(parts) for parts in paragraphs]))
    as_bytes = {"gpt3": gpt_bytes, "tulu": tulu_bytes, "datatrove": datatrove_bytes}[policy.kind]
    words = hash_words([as_bytes(text) for text in texts])
    return Cut(words.hashes, words.bounds, np.arange(len(texts)))


def grams_of(cut: Cut, n: int, policy: NamedPolicy) -> tuple[Ints, UInt64s]:
    """(first words, hashes) of every gram of `n` words that the policy takes from texts."""
    if isinstance(policy, MarinPolicy) and n < policy.gram_words:
        places = cut.bounds[:-1][np.diff(cut.bounds) == n]
        return places, grams_at(cut.words, places, n)
    hashes = gram_hashes(cut.words, n)
    places = np.flatnonzero(whole_grams(cut.bounds, n, len(hashes)))
    return places, hashes[places]


@dataclass(frozen=True)
class NamedIndex:
    """Grams of the channels by length, ascending; `num_tokens` [channels] is what a share of a prompt is a share of."""

    grams: tuple[GramIndex, ...]
    num_tokens: Ints

    def is_matchable(self) -> NDArray[np.bool_]:
        """Which channels have any gram."""
        found = np.zeros(len(self.num_tokens), np.bool_)
        for grams in self.grams:
            found[grams.channels] = True
        return found

    def save(self, folder: Path) -> None:
        for grams in self.grams:
            grams.save(folder / f"grams-{grams.n:03d}")
        save_all(folder, num_tokens=self.num_tokens)

    @classmethod
    def load(cls, folder: Path) -> "NamedIndex":
        return cls(tuple(GramIndex.load(path) for path in sorted(folder.glob("grams-*"))), **load_all(folder))


def named_channels(items: pl.DataFrame, policy: NamedPolicy) -> pl.DataFrame:
    """What the policy indexes of each item, a row an item: `item` (its row), `task`, `channel`, `text`."""
    channel = {"tulu": "question", "datatrove": "answer"}.get(policy.kind, "record")
    rows = [
        (number, item["task"], channel, item["question"] if channel == "question" else lm_eval_text(item))
        for number, item in enumerate(items.iter_rows(named=True))
    ]
    schema = {"item": pl.Int64, "task": pl.String, "channel": pl.String, "text": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def index_named(items: pl.DataFrame, channels: pl.DataFrame, policy: NamedPolicy) -> NamedIndex:
    """Index the channels of `named_channels`."""
    if isinstance(policy, TuluPolicy):
        spans = [english_tokens(text) for text in channels["text"]]
        phrases = [phrase for c, text in enumerate(channels["text"]) for phrase in _tulu_phrases(c, text, spans[c], policy)]
        return NamedIndex(_index_phrases(phrases), np.array([len(found) for found in spans], np.int64))
    if isinstance(policy, DatatrovePolicy):
        found = [gram for c, item in enumerate(items.iter_rows(named=True)) for gram in _label_grams(c, item, policy)]
        return NamedIndex(_index_phrases(found), np.zeros(len(channels), np.int64))
    return NamedIndex(tuple(_record_grams(channels, policy)), np.zeros(len(channels), np.int64))


type _Phrase = tuple[int, int, bytes]
"""Channel, position in it, words."""


def _tulu_phrases(channel: int, text: str, spans: list[tuple[int, int]], policy: TuluPolicy) -> Iterator[_Phrase]:
    n = policy.gram_tokens
    for at in range(len(spans) - n + 1):
        yield channel, at, tulu_bytes(text[spans[at][0] : spans[at + n - 1][1]])


def _label_grams(channel: int, item: Item, policy: DatatrovePolicy) -> Iterator[_Phrase]:
    n = policy.gram_words
    query = datatrove_bytes(f"Question: {item['question']}\nAnswer:").split()
    label = datatrove_bytes(item["solution"] or item["answer"]).split()
    for at in range(len(label) - n + 1):
        yield channel, at, b" ".join(label[at : at + n])
    for taken in range(1, n):
        if len(query) >= n - taken and len(label) >= taken:
            yield channel, taken - n, b" ".join(query[taken - n :] + label[:taken])


def _index_phrases(phrases: list[_Phrase]) -> tuple[GramIndex, ...]:
    words = hash_words([phrase for _, _, phrase in phrases])
    lengths = np.diff(words.bounds)
    channels = np.array([channel for channel, _, _ in phrases], np.int64)
    positions = np.array([position for _, position, _ in phrases], np.int64)
    return tuple(
        _built(grams_at(words.hashes, words.bounds[:-1][rows], n), channels[rows], positions[rows], n)
        for n in np.unique(lengths[lengths > 0]).tolist()
        for rows in [np.flatnonzero(lengths == n)]
    )


def _record_grams(channels: pl.DataFrame, policy: MarinPolicy | GptPolicy | DolmaPolicy) -> Iterator[GramIndex]:
    texts = channels["text"].to_list()
    pieces = cut(texts, policy)
    n_of = _gram_lengths(channels, pieces, policy)
    for n in np.unique(np.concatenate(n_of)).tolist():
        places, hashes = grams_of(pieces, n, policy)
        segments = np.searchsorted(pieces.bounds, places, side="right") - 1
        of = pieces.texts[segments]
        kept = np.array([n in lengths for lengths in n_of], np.bool_)[of] & _says_something(texts, places, n, policy)
        yield _built(hashes[kept], of[kept], (places - pieces.first_words[of])[kept], n)


def _gram_lengths(channels: pl.DataFrame, pieces: Cut, policy: MarinPolicy | GptPolicy | DolmaPolicy) -> list[list[int]]:
    """For every channel, how long its grams are."""
    if isinstance(policy, DolmaPolicy):
        return [[1]] * len(channels)
    if isinstance(policy, MarinPolicy):
        return [list(range(policy.min_short_words, policy.gram_words + 1))] * len(channels)
    num_words = np.diff(pieces.first_words)
    tasks = channels["task"].to_numpy()
    n_of_task = {}
    for task in np.unique(tasks):
        length = np.percentile(num_words[tasks == task], policy.length_percentile, method="lower")
        n_of_task[task] = [int(np.clip(length, policy.min_gram_words, policy.gram_words))]
    return [n_of_task[task] for task in tasks]


def _says_something(texts: list[str], places: Ints, n: int, policy: MarinPolicy | GptPolicy | DolmaPolicy) -> NDArray[np.bool_]:
    """Which grams of the records the policy keeps: Marin those with a letter, Dolma lines of enough words."""
    if isinstance(policy, DolmaPolicy):
        enough = [num_unicode_words(line) >= policy.min_words for text in texts for line in text.split("\n")]
        return np.array(enough, np.bool_)[places]
    if isinstance(policy, GptPolicy):
        return np.ones(len(places), np.bool_)
    letters = [
        has_letter(word)
        for text in texts
        for words in marin_paragraphs(text, policy.min_short_words, policy.gram_words)
        for word in words
    ]
    counted = np.concatenate(([0], np.cumsum(letters)))
    return counted[places + n] > counted[places]


def _built(grams: UInt64s, channels: Ints, positions: Ints, n: int) -> GramIndex:
    order = np.lexsort((positions, channels))
    return build_index(grams[order], np.ones(len(grams)), channels[order], positions[order], n)
