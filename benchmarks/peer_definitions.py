"""What other projects call contaminated, as small definitions over the same items and documents.

Each is a class with `of(items)`, its index, and `is_flagged(text)`. They are written for clearness and parity, not speed: sets
stand where the originals have Bloom filters or Elasticsearch. Differences that could matter are named in each docstring.
"""

import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from benchmarks.leak_forms import Item, lm_eval


class Definition(Protocol):
    @classmethod
    def of(cls, items: Iterable[Item]) -> Self: ...

    def is_flagged(self, text: str) -> bool: ...


def rendered(item: Item) -> str:
    return lm_eval(item, random.Random(0))


def _grams(words: Sequence[str], n: int) -> Iterator[str]:
    return (" ".join(words[at : at + n]) for at in range(len(words) - n + 1))


_HEAD = re.compile(r"""\.\.+|[\[\](){}<>"'“”‘’`,;:!?…$£€#&*|~=§%+−×÷–—_]""")
_TAIL = re.compile(
    r"""(?:\.\.+|['’]s|[\[\](){}<>"'“”‘’`,;:!?…*|~§%°–—_$&#+=]|(?<=[a-z0-9)\]"'%°])(?<!\bMr)(?<!Mrs)(?<!\bDr)\.)$"""
)
_CONTRACTION = re.compile(r"(?:n['’]t|['’](?:re|ve|ll|d|m))$", re.IGNORECASE)
_INFIX = re.compile(
    r"(?<=[^\W_])(?:--?|–|—)(?=[A-Za-z])|(?<=\d)[+*^-](?=\d)|(?<=[A-Za-z]),(?=[A-Za-z])|(?<=\w)[:<>=/](?=[A-Za-z])|°"
)


def english_tokens(text: str) -> list[tuple[int, int]]:
    """Spans of tokens much as spaCy's English tokenizer makes them: punctuation off the ends of words, few cuts inside."""
    spans: list[tuple[int, int]] = []
    for chunk in re.finditer(r"\S+", text):
        low, high = chunk.span()
        while low < high and (head := _HEAD.match(text, low, high)):
            spans.append(head.span())
            low = head.end()
        tails: list[tuple[int, int]] = []
        while low < high and (tail := _TAIL.search(text, low, high)):
            tails.append(tail.span())
            high = tail.start()
        if (contraction := _CONTRACTION.search(text, low, high)) and contraction.start() > low:
            tails.append(contraction.span())
            high = contraction.start()
        for infix in _INFIX.finditer(text, low, high):
            spans += [(low, infix.start()), infix.span()] if infix.start() > low else [infix.span()]
            low = infix.end()
        spans += [(low, high)] if low < high else []
        spans += reversed(tails)
    return spans


@dataclass(frozen=True)
class Marin:
    """Half of a paragraph's 13-grams are eval 13-grams.

    `marin-community/marin`, `lib/marin/src/marin/datakit/decon.py`, feature filter 3: paragraphs between blank lines, tokens
    between white space with case and punctuation, 13-grams with a letter in them; a paragraph of 3 to 12 tokens is one exact
    feature. The optional drop set of corpus-common grams is left out, and a set stands for the Bloom filter of 1e-9.
    """

    features: frozenset[str]

    @classmethod
    def of(cls, items: Iterable[Item]) -> "Marin":
        texts = (rendered(item) for item in items)
        return cls(frozenset(feature for text in texts for part in text.split("\n\n") for feature in cls.features_of(part)))

    @staticmethod
    def features_of(paragraph: str) -> list[str]:
        tokens = paragraph.split()
        if 3 <= len(tokens) < 13:
            return [" ".join(tokens)] if any(map(str.isalpha, paragraph)) else []
        return [gram for gram in _grams(tokens, 13) if any(map(str.isalpha, gram))]

    def is_flagged(self, text: str) -> bool:
        for paragraph in text.split("\n\n"):
            found = [feature in self.features for feature in self.features_of(paragraph)]
            if found and sum(found) / len(found) >= 0.5:
                return True
        return False


@dataclass(frozen=True)
class Dolma:
    """One line of the document is, character for character, a line of an eval text with at least 13 words.

    OLMo's decontamination with Dolma's Bloom filter in paragraph mode (`allenai/dolma`, its decontamination run book:
    paragraphs of at least 13 Unicode words, split at newlines, exact match drops the document).
    """

    paragraphs: frozenset[str]

    @classmethod
    def of(cls, items: Iterable[Item]) -> "Dolma":
        lines = (line for item in items for line in rendered(item).split("\n"))
        return cls(frozenset(line for line in lines if len(re.findall(r"\w+", line)) >= 13))

    def is_flagged(self, text: str) -> bool:
        return any(line in self.paragraphs for line in text.split("\n"))


@dataclass(frozen=True)
class Tulu3:
    """More than half of a prompt's tokens lie in 8-grams that the document holds as phrases.

    `allenai/open-instruct`, `decontamination/search.py` (8-grams of spaCy tokens of the question, `match_phrase` in
    Elasticsearch, share of the question's tokens in a document) with the 0.5 of the Tulu 3 paper. `english_tokens` stands for
    spaCy's tokenizer (the same spans for 96 % of 9,651 questions). Phrases are compared as `tulu_analyzer` of `index.py` cuts
    them, lower case and few separators; that file defines it without giving it to the field, and the standard analyzer, which
    drops all punctuation, marks ten times as many documents of our corpus (610 of 14,922, most of them formulas). No limit of
    hits a phrase (the original sees the ten best documents). Marks documents, where the original goes on to drop them only if
    they reach 2 % of an eval.
    """

    phrases: dict[str, list[tuple[int, int]]]
    lengths: tuple[int, ...]
    num_tokens: tuple[int, ...]

    WORD = re.compile(r"""[^ ,.?!:;()"\n\\-]+""")

    @classmethod
    def of(cls, items: Iterable[Item]) -> "Tulu3":
        phrases: dict[str, list[tuple[int, int]]] = defaultdict(list)
        num_tokens, lengths = [], set()
        for number, item in enumerate(items):
            spans = english_tokens(item["question"])
            num_tokens.append(len(spans))
            for at in range(len(spans) - 7):
                words = cls.WORD.findall(item["question"][spans[at][0] : spans[at + 7][1]].lower())
                if words:
                    phrases[" ".join(words)].append((number, at))
                    lengths.add(len(words))
        return cls(dict(phrases), tuple(sorted(lengths)), tuple(num_tokens))

    def is_flagged(self, text: str) -> bool:
        words = self.WORD.findall(text.lower())
        covered: dict[int, set[int]] = defaultdict(set)
        for length in self.lengths:
            for phrase in _grams(words, length):
                for number, at in self.phrases.get(phrase, ()):
                    covered[number].update(range(at, at + 8))
        return any(len(tokens) / self.num_tokens[number] > 0.5 for number, tokens in covered.items())


@dataclass(frozen=True)
class Datatrove:
    """One 12-gram of an answer, or across the seam of question and answer, is in the document.

    datatrove 0.10.1, `pipeline/decont/n_grams.py` with its defaults (query-only grams off) and `utils/text.py:
    simplify_text`: lower case, every number `0`, punctuation a space, diacritics dropped. Its words are spaCy's; here spaces
    separate them, which after `simplify_text` differs on a few words ("dont", "cannot" are two each there). Compared with the
    real package: benchmarks/notes/2026-11-21-planted-leaks.md.
    """

    grams: frozenset[str]

    NUMBER = re.compile(r"\d+([.,،٫⎖⎗⎘]\d+)?")
    PUNCTUATION = re.compile(r"[^\w\s]|_")

    @classmethod
    def of(cls, items: Iterable[Item]) -> "Datatrove":
        return cls(frozenset(gram for item in items for gram in cls.item_grams(item)))

    @classmethod
    def item_grams(cls, item: Item) -> Iterator[str]:
        query = cls.words(f"Question: {item['question']}\nAnswer:")
        label = cls.words(item["solution"] or item["answer"])
        yield from _grams(label, 12)
        for taken in range(1, 12):
            if len(query) >= 12 - taken and len(label) >= taken:
                yield " ".join(query[taken - 12 :] + label[:taken])

    @classmethod
    def words(cls, text: str) -> list[str]:
        text = cls.PUNCTUATION.sub(" ", cls.NUMBER.sub("0", text.lower()))
        return "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn").split()

    def is_flagged(self, text: str) -> bool:
        return any(gram in self.grams for gram in _grams(self.words(text), 12))


PEERS: dict[str, type[Definition]] = {"Marin": Marin, "Dolma": Dolma, "Tulu 3": Tulu3, "datatrove": Datatrove}
