"""The named contamination policies as their authors describe them, with Python strings and sets: slow and obvious."""

import re
import string
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from datakit.contamination.leak_forms import lm_eval_text
from datakit.contamination.tulu import english_tokens

type Item = Mapping[str, Any]


def _grams(words: Sequence[str], n: int) -> Iterator[str]:
    return (" ".join(words[at : at + n]) for at in range(len(words) - n + 1))


def marin_features(text: str) -> list[str]:
    tokens = text.split()
    if 3 <= len(tokens) < 13:
        return [" ".join(tokens)] if any(map(str.isalpha, text)) else []
    return [gram for gram in _grams(tokens, 13) if any(map(str.isalpha, gram))]


def marin(items: Sequence[Item], texts: Sequence[str]) -> dict[int, float]:
    """Document -> the largest share of a paragraph, of those that are contaminated."""

    def paragraphs(text: str) -> list[list[str]]:
        features = [marin_features(part) for part in text.split("\n\n")]
        return features if any(features) else [marin_features(text) if len(text.split()) < 13 else []]

    known = {feature for item in items for part in paragraphs(lm_eval_text(item)) for feature in part}
    shares_of = {}
    for number, text in enumerate(texts):
        shares = [sum(feature in known for feature in part) / len(part) for part in paragraphs(text) if part]
        if max(shares, default=0) >= 0.5:
            shares_of[number] = max(shares)
    return shares_of


def dolma(items: Sequence[Item], texts: Sequence[str]) -> dict[int, float]:
    lines = {line for item in items for line in lm_eval_text(item).split("\n") if len(re.findall(r"\w+", line)) >= 13}
    return {number: 1.0 for number, text in enumerate(texts) if lines & set(text.split("\n"))}


def tulu(items: Sequence[Item], texts: Sequence[str]) -> dict[int, float]:
    def cut(text: str) -> list[str]:
        return re.findall(r"""[^ ,.?!:;()"\n\\-]+""", text.lower())

    shares_of = {}
    for number, text in enumerate(texts):
        document = "\n".join(["", *cut(text), ""])  # no word has a line break: a phrase is a substring between line breaks
        shares = []
        for item in items:
            spans = english_tokens(item["question"])
            covered = set()
            for at in range(len(spans) - 7):
                phrase = cut(item["question"][spans[at][0] : spans[at + 7][1]])
                if phrase and "\n".join(["", *phrase, ""]) in document:
                    covered.update(range(at, at + 8))
            shares.append(len(covered) / max(len(spans), 1))
        if max(shares) > 0.5:
            shares_of[number] = max(shares)
    return shares_of


def gpt3(items: Sequence[Item], texts: Sequence[str], shortest: int = 13, max_documents: int = 10) -> dict[int, float]:
    def words(text: str) -> list[str]:
        return "".join(c.lower() if c.isascii() else c for c in text if c not in string.punctuation).split()

    lengths = defaultdict(list)
    for item in items:
        lengths[item["task"]].append(len(words(lm_eval_text(item))))
    n_of = {task: min(max(sorted(of)[5 * (len(of) - 1) // 100], shortest), 13) for task, of in lengths.items()}
    known = {gram for item in items for gram in _grams(words(lm_eval_text(item)), n_of[item["task"]])}
    held = [{gram for n in set(n_of.values()) for gram in _grams(words(text), n)} & known for text in texts]
    num_documents = Counter(gram for grams in held for gram in grams)
    return {number: 1.0 for number, grams in enumerate(held) if any(num_documents[gram] <= max_documents for gram in grams)}


def datatrove(items: Sequence[Item], texts: Sequence[str]) -> dict[int, float]:
    def words(text: str) -> list[str]:
        text = re.sub(r"[^\w\s]|_", " ", re.sub(r"\d+([.,،٫⎖⎗⎘]\d+)?", "0", text.lower()))
        return "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn").split()

    known: set[str] = set()
    for item in items:
        query, label = words(f"Question: {item['question']}\nAnswer:"), words(item["solution"] or item["answer"])
        known.update(_grams(label, 12))
        joined = query + label
        ends = range(len(query) + 1, len(query) + min(len(label), 11) + 1)
        known.update(" ".join(joined[end - 12 : end]) for end in ends if end >= 12)
    return {number: 1.0 for number, text in enumerate(texts) if known & set(_grams(words(text), 12))}
