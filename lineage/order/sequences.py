"""How the documents of a token cache become sequences of one length: end to end and cut (here), or packed
(`lineage.order.packing`).

Both answer the same two questions, for many at once: which tokens a sequence consists of, and which sequences hold a
document.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Sequences(Protocol):
    """The sequences of one component, numbered from 0."""

    @property
    def count(self) -> int:
        """Return how many there are."""
        ...

    @property
    def is_packed(self) -> bool:
        """Whether a piece is (part of) one document, and the rest of a sequence is padding."""
        ...

    def pieces(self, sequences: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (which, starts, lengths), int64 [pieces]: sequence `sequences[which]` consists of tokens `[start,
        start + length)` of the cache, piece by piece. Sorted by `which`; pieces keep their order in the sequence.
        """
        ...

    def holding(self, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (document, sequences, tokens), int64 [found]: how many tokens of the document with the span
        `spans[document]` are in a sequence. A document is in a sequence at most once; a document that no sequence holds
        has no row.
        """
        ...


@dataclass(frozen=True)
class Chunked:
    """Concatenated and cut: sequence `i` is tokens `[i * seq_len, (i + 1) * seq_len)`; a last incomplete sequence is
    not read.
    """

    seq_len: int
    num_tokens: int

    @property
    def count(self) -> int:
        return self.num_tokens // self.seq_len

    @property
    def is_packed(self) -> bool:
        return False

    def pieces(self, sequences: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        values = np.asarray(sequences, np.int64)
        return np.arange(values.size), values * self.seq_len, np.full(values.size, self.seq_len)

    def holding(self, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        starts, stops = spans[:, 0], spans[:, 1]
        firsts = starts // self.seq_len
        ends = np.minimum(-(-stops // self.seq_len), self.count)
        counts = np.where(starts < stops, np.maximum(ends - firsts, 0), 0)
        document = np.repeat(np.arange(len(spans)), counts)
        within = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
        sequence = firsts[document] + within
        low = np.maximum(starts[document], sequence * self.seq_len)
        high = np.minimum(stops[document], (sequence + 1) * self.seq_len)
        return document, sequence, high - low
