"""Spans of a text in bytes of its UTF-8. Spans on storage count bytes, so that a reader in any language finds the same
place.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

type Span = tuple[int, int]


def byte_spans(text: str, spans: Sequence[Span]) -> list[Span]:
    """Convert spans of characters to spans of bytes, in one pass over the text.

    Raises: ValueError for a span outside the text.

    >>> byte_spans("a – b", [(2, 3), (0, 5)])
    [(2, 5), (0, 7)]
    """
    places = sorted({place for span in spans for place in span})
    if places and not 0 <= places[0] <= places[-1] <= len(text):
        raise ValueError(f"spans from {places[0]} to {places[-1]} of a text of {len(text)} characters; they must lie in it")
    if text.isascii():
        return list(spans)
    sizes = (len(text[low:high].encode()) for low, high in pairwise([0, *places]))
    byte_of = dict(zip(places, accumulate(sizes), strict=True))
    return [(byte_of[start], byte_of[end]) for start, end in spans]


def cut_bytes(text: str, start: int, end: int) -> str:
    """Return the text of a byte span whose ends are between characters.

    >>> cut_bytes("a – b", 2, 5)
    '–'
    """
    return text[start:end] if text.isascii() else text.encode()[start:end].decode()
