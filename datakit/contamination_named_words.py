"""How each named policy cuts a text: into segments and words for matching, and into spans for showing.

Both cuts of a text give the same words in the same order, so a word's number leads to its characters. Words are bytes between
single spaces, ready for `ngram_index.hash_words`.
"""

import re
import string
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

import xxhash

from datakit.byte_spans import Span

type Item = Mapping[str, Any]

_TOKEN = re.compile(r"\S+")
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
_PUNCTUATION = string.punctuation.encode()
_ASCII_SPACES = b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f"
_LOWER = bytes.maketrans(
    string.ascii_uppercase.encode() + _ASCII_SPACES, string.ascii_lowercase.encode() + b" " * len(_ASCII_SPACES)
)
_TULU_SEPARATORS = b' ,.?!:;()"\n\\-'
_TULU_SPACES = bytes.maketrans(_TULU_SEPARATORS, b" " * len(_TULU_SEPARATORS))
_TULU_WORD = re.compile(r"""[^ ,.?!:;()"\n\\-]+""")
_NUMBER = re.compile(r"\d+([.,،٫⎖⎗⎘]\d+)?")
_NO_WORD = re.compile(r"[^\w\s]|_")
_WORD = re.compile(r"\w+")


def lm_eval_text(item: Item) -> str:
    """The prompt of lm-eval with its gold answer: the record that an index of rendered prompts holds."""
    question, answer = item["question"], item["solution"] or item["answer"]
    match item["task"]:
        case "mmlu":
            choices = "\n".join(f"{letter}. {choice}" for letter, choice in zip("ABCD", item["choices"], strict=False))
            return f"{question}\n{choices}\nAnswer: {'ABCD'[item['answer_index']]}"
        case "hellaswag":
            return f"{question} {answer}"
        case _:
            return f"Question: {question}\nAnswer: {answer}"


def has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


# --- Marin -----------------------------------------------------------------------------------------------------------------


def marin_paragraphs(text: str, min_short_words: int, gram_words: int) -> list[list[str]]:
    """Words of every paragraph; all words as one where no paragraph has a feature and together they are few enough for one."""
    paragraphs = [part.split() for part in text.split("\n\n")]
    short = text.split(None, gram_words - 1)
    is_short = min_short_words <= len(short) < gram_words
    if is_short and not any(len(words) >= min_short_words and has_letter("".join(words)) for words in paragraphs):
        return [short]
    return paragraphs


def marin_bytes(words: list[str]) -> bytes:
    return " ".join(words).encode()


# --- GPT-3 -----------------------------------------------------------------------------------------------------------------


def gpt_bytes(text: str) -> bytes:
    """Lower case, no ASCII punctuation, all white space as spaces.

    >>> gpt_bytes("Don't panic -- it's 42!").split()
    [b'dont', b'panic', b'its', b'42']
    """
    spaced = text if text.isascii() else _WIDE_SPACE.sub(" ", text)
    return spaced.encode().translate(_LOWER, _PUNCTUATION)


def gpt_spans(text: str) -> Iterator[Span]:
    for token in _TOKEN.finditer(text):
        if token[0].encode().translate(None, _PUNCTUATION):
            yield token.span()


# --- Tulu 3 ----------------------------------------------------------------------------------------------------------------

_HEAD = re.compile(r"""\.\.+|[\[\](){}<>"'“”‘’`,;:!?…$£€#&*|~=§%+−×÷–—_]""")
_TAIL = re.compile(
    r"""(?:\.\.+|['’]s|[\[\](){}<>"'“”‘’`,;:!?…*|~§%°–—_$&#+=]|(?<=[a-z0-9)\]"'%°])(?<!\bMr)(?<!Mrs)(?<!\bDr)\.)$"""
)
_CONTRACTION = re.compile(r"(?:n['’]t|['’](?:re|ve|ll|d|m))$", re.IGNORECASE)
_INFIX = re.compile(
    r"(?<=[^\W_])(?:--?|–|—)(?=[A-Za-z])|(?<=\d)[+*^-](?=\d)|(?<=[A-Za-z]),(?=[A-Za-z])|(?<=\w)[:<>=/](?=[A-Za-z])|°"
)


def english_tokens(text: str) -> list[Span]:
    """Spans of tokens much as spaCy's English tokenizer makes them: punctuation off the ends of words, few cuts inside."""
    spans: list[Span] = []
    for chunk in _TOKEN.finditer(text):
        low, high = chunk.span()
        while low < high and (head := _HEAD.match(text, low, high)):
            spans.append(head.span())
            low = head.end()
        tails: list[Span] = []
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


def tulu_bytes(text: str) -> bytes:
    return text.lower().encode().translate(_TULU_SPACES)


def tulu_spans(text: str) -> Iterator[Span]:
    return (word.span() for word in _TULU_WORD.finditer(text))


# --- datatrove -------------------------------------------------------------------------------------------------------------


def datatrove_bytes(text: str) -> bytes:
    """`simplify_text`: numbers are 0, punctuation a space, no diacritics.

    >>> datatrove_bytes("Élodie's 1,200 ducks").split()
    [b'elodie', b's', b'0', b'ducks']
    """
    simple = _NO_WORD.sub(" ", _NUMBER.sub("0", text.lower()))
    if not simple.isascii():
        simple = "".join(c for c in unicodedata.normalize("NFD", simple) if unicodedata.category(c) != "Mn")
    return " ".join(simple.split()).encode()


def datatrove_spans(text: str) -> Iterator[Span]:
    for token in _TOKEN.finditer(text):
        for _ in datatrove_bytes(token[0]).split():
            yield token.span()


# --- Dolma -----------------------------------------------------------------------------------------------------------------


def line_hashes(text: str) -> list[int]:
    return [xxhash.xxh3_64_intdigest(line) for line in text.split("\n")]


def line_spans(text: str) -> Iterator[Span]:
    start = 0
    for line in text.split("\n"):
        yield start, start + len(line)
        start += len(line) + 1


def num_unicode_words(line: str) -> int:
    return len(_WORD.findall(line))


def token_spans(text: str) -> Iterator[Span]:
    return (token.span() for token in _TOKEN.finditer(text))
