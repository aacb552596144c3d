"""The perplexity gap of two checkpoints on raw text, byte by byte, so that their tokenizers may differ.

A token's nats are spread evenly over its bytes, so both models have a surprisal for every byte of the same text, and
the gap is a difference of sums over the same bytes. Documents and windows are those of `evals.tasks.perplexity`. A
positive gap means that the second model finds the text harder. For every document the stretch of `STRETCH_BYTES` with
the largest gap is kept: the place to look at first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Encoding, Tokenizer

from evals.scoring.intervals import ratio_bootstrap
from evals.tasks.perplexity import HeldoutDocument, token_nats
from evals.tasks.scorer import TokenScorer
from evals.tasks.tagged import tags_above
from serving.server.text import is_byte_level

STRETCH_BYTES = 64
SEED = 0


@dataclass(frozen=True)
class Reader:
    """A model with its tokenizer, and the token that opens a sequence."""

    scorer: TokenScorer
    tokenizer: Tokenizer
    start_token: int


@dataclass(frozen=True)
class DocumentGap:
    """Bits per byte of both models on a document, and its worst stretch with the additional bits of the second model
    there.
    """

    id: str
    tag: str
    num_bytes: int
    first: float
    second: float
    stretch: str
    stretch_bits: float

    @property
    def gap(self) -> float:
        return self.second - self.first


@dataclass(frozen=True)
class GapSummary:
    """Bits per byte of both and their gap with its 95 % interval over `num_documents`, for a tag or for everything
    ("").
    """

    tag: str
    num_documents: int
    num_bytes: int
    first: float
    second: float
    gap: float
    low: float
    high: float


def byte_bits(reader: Reader, texts: Sequence[str]) -> list[np.ndarray]:
    """Return the bits of every byte of every text.

    Raises: ValueError for a tokenizer whose tokens are not the bytes of the text (one that normalizes it).
    """
    encoded = reader.tokenizer.encode_batch(list(texts), add_special_tokens=False)
    nats = token_nats(reader.scorer, [np.asarray(e.ids, np.int64) for e in encoded], reader.start_token)
    spread = []
    for text, encoding, part in zip(texts, encoded, nats, strict=True):
        of_tokens = _bytes_of_tokens if is_byte_level(reader.tokenizer) else _bytes_of_places
        costs, lengths = of_tokens(reader.tokenizer, text, encoding, part)
        if lengths.sum() != len(text.encode()):
            raise ValueError(
                f"the tokenizer gives {lengths.sum()} bytes for a text of {len(text.encode())} ({text[:40]!r}): its tokens are "
                "not the bytes of the text, so they cannot be aligned"
            )
        spread.append(np.repeat(costs / math.log(2) / lengths, lengths))
    return spread


def _bytes_of_tokens(tokenizer: Tokenizer, text: str, encoding: Encoding, nats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return nats and bytes of every token of a byte-level tokenizer, where one character of a token means one byte."""
    return nats, np.array([len(tokenizer.id_to_token(token) or "") for token in encoding.ids], np.int64)


def _bytes_of_places(tokenizer: Tokenizer, text: str, encoding: Encoding, nats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return nats and bytes of every stretch that ends at the end of a token, by the places of tokens in the text; no
    bytes if tokens do not reproduce the text.

    The bytes of a character that are separate tokens share its place. A space that the tokenizer put before the text
    has no place: its nats go to the first stretch.
    """
    if not text or tokenizer.decode(encoding.ids, skip_special_tokens=False) != text:
        return np.zeros(0), np.zeros(0, np.int64)
    ends = np.maximum.accumulate([end for _, end in encoding.offsets])
    places, stretch = np.unique(ends[ends > 0], return_inverse=True)
    costs = np.bincount(np.concatenate([np.zeros(int((ends == 0).sum()), np.int64), stretch]), weights=nats)
    sizes = [len(text[start:end].encode()) for start, end in zip([0, *places[:-1]], places, strict=True)]
    return costs, np.array(sizes, np.int64)


def perplexity_gap(
    first: Reader, second: Reader, documents: Sequence[HeldoutDocument]
) -> tuple[list[GapSummary], list[DocumentGap]]:
    """Return summaries (all, then by tag, inner nodes too) and every document, the largest total gap first.

    Raises: ValueError for no document.
    """
    if not documents:
        raise ValueError("there is no document to compare the models on")
    texts = [document.text for document in documents]
    pairs = zip(documents, byte_bits(first, texts), byte_bits(second, texts), strict=True)
    gaps = [_document_gap(document, one, two) for document, one, two in pairs]
    tags = sorted({tag for gap in gaps for tag in (*tags_above(gap.tag), gap.tag)})
    below = {tag: [gap for gap in gaps if gap.tag == tag or gap.tag.startswith(f"{tag}/")] for tag in tags}
    summaries = [_summary("", gaps), *(_summary(tag, part) for tag, part in below.items())]
    return summaries, sorted(gaps, key=lambda g: (-g.gap * g.num_bytes, g.id))


def _document_gap(document: HeldoutDocument, first: np.ndarray, second: np.ndarray) -> DocumentGap:
    change = np.concatenate([[0.0], np.cumsum(second - first)])
    width = min(STRETCH_BYTES, first.size)
    sums = change[width:] - change[:-width]
    worst = int(sums.argmax())
    stretch = document.text.encode()[worst : worst + width].decode(errors="replace")
    means = float(first.mean()), float(second.mean())
    return DocumentGap(document.id, document.tag, first.size, *means, stretch, float(sums[worst]))


def _summary(tag: str, gaps: Sequence[DocumentGap]) -> GapSummary:
    sizes = np.array([g.num_bytes for g in gaps], np.float64)
    sides = [
        float((np.array(side) * sizes).sum() / sizes.sum()) for side in zip(*((g.first, g.second) for g in gaps), strict=True)
    ]
    interval = ratio_bootstrap(np.array([g.gap for g in gaps]) * sizes, sizes, SEED)
    return GapSummary(tag, len(gaps), int(sizes.sum()), sides[0], sides[1], *interval)
