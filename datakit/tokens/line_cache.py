"""Encode repeated lines once: the reference engine is slow, and documents repeat themselves.

A third of the characters of 160 MB of code, documentation and prose are in lines that occurred before in the same 4 MB,
most of them in the same document (2026-11-23). Texts are cut before lines that are not blank. Most split patterns end a
word there: white space with line feeds is one word up to its last line feed, and nothing else continues after one. For
other patterns a cut matters only if a token crosses it. So a tokenizer must pass two tests (`choose_engine` of
`datakit.tokens.engines`): it has no such token (`tokens_across_lines`), and on samples and adversarial texts its lines
have the ids of the text.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
from tokenizers import Tokenizer

LINE = re.compile(r"[^\n]*\n(?:\s*[\r\n])?(?:\s+\Z)?|[^\n]+")
ACROSS = re.compile(r"\n[^\S\r\n]*(?:\S|[^\S\r\n]\Z)")


def lines(text: str) -> list[str]:
    """Return a text as its lines, each with the blank lines after it.

    >>> lines("if x:\n    y\n\n  \nz\n ")
    ['if x:\n', '    y\n\n  \n', 'z\n ']
    """
    return LINE.findall(text)


def tokens_across_lines(tokenizer: Tokenizer) -> list[str]:
    """Return tokens with a line feed and something of the next line, like GPT-2's line feed followed by blanks."""
    ids = [[token] for token in range(tokenizer.get_vocab_size())]
    return [text for text in tokenizer.decode_batch(ids, skip_special_tokens=False) if ACROSS.search(text)]


def encode_repeated_once(texts: Sequence[str], encode: Callable[[Sequence[str]], Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Return uint32 ids [tokens] of each text: every repeated line is encoded once, and what is between as it is."""
    cut = [lines(text) for text in texts]
    times = Counter(chain.from_iterable(cut))
    pieces = [list(_joined_unique(of_text, times)) for of_text in cut]
    distinct = list(dict.fromkeys(chain.from_iterable(pieces)))
    ids = {piece: encoded.tobytes() for piece, encoded in zip(distinct, encode(distinct), strict=True)}
    return [np.frombuffer(b"".join([ids[piece] for piece in of_text]), np.uint32) for of_text in pieces]


def _joined_unique(of_text: Sequence[str], times: Mapping[str, int]) -> Iterator[str]:
    unique: list[str] = []
    for line in of_text:
        if times[line] == 1:
            unique.append(line)
            continue
        if unique:
            yield "".join(unique)
            unique = []
        yield line
    if unique:
        yield "".join(unique)
