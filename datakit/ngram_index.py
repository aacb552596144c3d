"""Word n-grams as numpy hashes, and an index from them to the places in benchmark items that hold them.

No Python string per n-gram: words are hashed as slices of one flat byte buffer, n-grams as sums of word hashes, and a bit
table throws away nearly all of a document's n-grams before any exact lookup.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datakit.arrays import load_all, save_all

type UInt64s = NDArray[np.uint64]
type Ints = NDArray[np.int64]
type Floats = NDArray[np.float64]

PIECE_BYTES = 1 << 16
"""Bytes hashed at once: the working arrays are 8 times as large and should stay near the caches."""
_SPACE = ord(" ")
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64
_BASE_INVERSE = pow(_BASE, -1, 1 << 64)
_NUMBER_HASH = np.uint64(0xD6E8FEB86659FD93)
_BITS_PER_GRAM = 16
_MIN_TABLE_BITS = 1 << 16


@dataclass(frozen=True)
class Words:
    """Words of several texts, flat. Text `t` has the words `bounds[t]` to `bounds[t + 1]`."""

    hashes: UInt64s
    is_number: NDArray[np.bool_]
    num_bytes: Ints
    bounds: Ints

    def masked(self) -> UInt64s:
        """Hashes in which every number is the same word."""
        return np.where(self.is_number, _NUMBER_HASH, self.hashes)


def hash_words(texts: Sequence[bytes]) -> Words:
    """Hash the words of canonical texts (`canonical_text.canonical_bytes`): 64 bits a word, the same in any text."""
    text_starts = np.cumsum([0] + [len(text) + 1 for text in texts], dtype=np.int64)
    return hash_buffer(np.frombuffer(b" ".join(texts), np.uint8), text_starts)


def hash_buffer(data: NDArray[np.uint8], text_starts: Ints) -> Words:
    """`hash_words` of texts that stand in one buffer, each from its start (`canonical_text.canonical_batch`)."""
    hashes, numbers, starts, lengths = [], [], [], []
    for low, high in _pieces(data):
        piece = data[low:high]
        word_starts, word_ends = _word_edges(piece)
        hashes.append(_slice_hashes(piece, word_starts, word_ends))
        lengths.append(word_ends - word_starts)
        numbers.append(_are_numbers(piece, word_starts, lengths[-1]))
        starts.append(word_starts + low)
    return Words(
        hashes=_joined(hashes, np.uint64),
        is_number=_joined(numbers, np.bool_),
        num_bytes=_joined(lengths, np.int64),
        bounds=np.searchsorted(_joined(starts, np.int64), text_starts),
    )


def gram_hashes(words: UInt64s, n: int) -> UInt64s:
    """Hash of the n-gram that starts at each word; n - 1 fewer than there are words. Grams may cross texts."""
    count = max(len(words) - n + 1, 0)
    grams = np.zeros(count, np.uint64)
    for k in range(n):
        grams += words[k : k + count] * np.uint64(pow(_BASE, 2 * k + 3, 1 << 64))
    return grams


def grams_at(words: UInt64s, places: Ints, n: int) -> UInt64s:
    """`gram_hashes(words, n)[places]`, without the others."""
    grams = np.zeros(len(places), np.uint64)
    for k in range(n):
        grams += words[places + k] * np.uint64(pow(_BASE, 2 * k + 3, 1 << 64))
    return grams


def whole_grams(bounds: Ints, n: int, num_grams: int) -> NDArray[np.bool_]:
    """Which of the flat n-grams lie within one text."""
    whole = np.ones(num_grams, np.bool_)
    for k in range(1, n):
        crossing = bounds[1:] - k
        whole[crossing[(crossing >= 0) & (crossing < num_grams)]] = False
    return whole


@dataclass(frozen=True)
class GramIndex:
    """Distinct n-grams of the channels, each with its postings (channel, word position in the channel).

    `grams` is sorted; postings of gram `g` are `offsets[g]` to `offsets[g + 1]`.
    """

    n: int
    grams: UInt64s
    offsets: Ints
    channels: Ints
    positions: Ints
    table: NDArray[np.uint8]

    def lookup(self, grams: UInt64s) -> tuple[Ints, Ints]:
        """Positions in `grams` of those that the index has, and which they are."""
        passed = in_table(self.table, grams)
        if not len(passed) or not len(self.grams):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        found = np.minimum(np.searchsorted(self.grams, grams[passed]), len(self.grams) - 1)
        same = self.grams[found] == grams[passed]
        return passed[same], found[same]

    def lookup_at(self, words: UInt64s, bounds: Ints, places: Ints) -> tuple[Ints, Ints]:
        """Those of the places in flat words where a gram of the index begins and ends in the same text, and which gram."""
        ends = bounds[np.searchsorted(bounds, places, side="right")]
        whole = places[places + self.n <= ends]
        where, found = self.lookup(grams_at(words, whole, self.n))
        return whole[where], found

    def expand(self, where: Ints, grams: Ints) -> tuple[Ints, Ints, Ints]:
        """One row a posting of the found grams: (where it was found, channel, position in the channel)."""
        counts = self.offsets[grams + 1] - self.offsets[grams]
        rows = np.repeat(self.offsets[grams] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return np.repeat(where, counts), self.channels[rows], self.positions[rows]

    def save(self, folder: Path) -> None:
        save_all(
            folder,
            n=np.array(self.n, np.int64),
            grams=self.grams,
            offsets=self.offsets,
            channels=self.channels,
            positions=self.positions,
            table=self.table,
        )

    @classmethod
    def load(cls, folder: Path) -> "GramIndex":
        arrays = load_all(folder)
        return cls(n=int(arrays.pop("n")), **arrays)


def build_index(grams: UInt64s, weights: Floats, channels: Ints, positions: Ints, n: int) -> GramIndex:
    """Index gram occurrences of weight > 0, given in (channel, position) order; equal grams must have equal weights."""
    kept = np.flatnonzero(weights > 0)
    kept = kept[np.argsort(grams[kept], kind="stable")]
    ordered = grams[kept]
    firsts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(kept)])
    return GramIndex(
        n=n,
        grams=ordered[firsts],
        offsets=np.append(firsts, len(kept)).astype(np.int64),
        channels=channels[kept],
        positions=positions[kept],
        table=bit_table(ordered[firsts]),
    )


def in_table(table: NDArray[np.uint8], grams: UInt64s) -> Ints:
    """Positions of the grams that the bit table may hold: all that it does hold, few others."""
    shift = 64 - (len(table) * 8).bit_length() + 1
    slots = (grams >> np.uint64(shift + 3)).view(np.int64)  # numpy would copy unsigned indices
    bits = (grams >> np.uint64(shift)).astype(np.uint8) & 7
    return np.flatnonzero(table.take(slots) >> bits & 1)


def bit_table(grams: UInt64s) -> NDArray[np.uint8]:
    """One bit a hash, by its upper bits; at least 16 bits for each."""
    num_bits = max(_MIN_TABLE_BITS, 1 << (len(grams) * _BITS_PER_GRAM - 1).bit_length()) if len(grams) else _MIN_TABLE_BITS
    slots = grams >> np.uint64(64 - num_bits.bit_length() + 1)
    table = np.zeros(num_bits // 8, np.uint8)
    np.bitwise_or.at(table, slots >> np.uint64(3), np.uint8(1) << (slots & np.uint64(7)).astype(np.uint8))
    return table


def _pieces(data: NDArray[np.uint8]) -> Iterator[tuple[int, int]]:
    """Cut at spaces into pieces of about PIECE_BYTES; a longer word stays whole."""
    low = 0
    while low < len(data):
        high, reach = min(low + PIECE_BYTES, len(data)), 64
        while high < len(data) and data[high] != _SPACE:
            spaces = np.flatnonzero(data[high : high + reach] == _SPACE)
            high = min(high + (int(spaces[0]) if len(spaces) else reach), len(data))
            reach *= 2
        yield low, high
        low = high


def _are_numbers(piece: NDArray[np.uint8], starts: Ints, lengths: Ints) -> NDArray[np.bool_]:
    """Which words are digits alone. Few begin with one, so only those are looked at to their end."""
    numbers = (piece[starts] - np.uint8(48)) < 10
    maybe = np.flatnonzero(numbers)
    if len(maybe):
        length = lengths[maybe]
        firsts = np.cumsum(length) - length
        at = np.repeat(starts[maybe] - firsts, length) + np.arange(int(length.sum()))
        numbers[maybe] = np.logical_and.reduceat((piece[at] - np.uint8(48)) < 10, firsts)
    return numbers


def _word_edges(piece: NDArray[np.uint8]) -> tuple[Ints, Ints]:
    padded = np.zeros(len(piece) + 2, np.bool_)
    padded[1:-1] = piece != _SPACE
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    return edges[::2], edges[1::2]


def _slice_hashes(piece: NDArray[np.uint8], starts: Ints, ends: Ints) -> UInt64s:
    """Polynomial hashes of slices of a buffer by prefix sums modulo 2**64, then mixed so that all bits are good."""
    prefix = np.zeros(len(piece) + 1, np.uint64)
    np.cumsum(piece * _powers(_BASE, len(piece)), out=prefix[1:])
    return _mixed((prefix[ends] - prefix[starts]) * _powers(_BASE_INVERSE, len(piece) + 1)[starts])


def _powers(base: int, count: int) -> UInt64s:
    """[count] powers from the zeroth on, modulo 2**64; a view of a table that all pieces share."""
    return _power_table(base, max(count, PIECE_BYTES + 1024))[:count]


@lru_cache(maxsize=2)  # both bases at the size of a piece; a longer word's tables push them out, and no more is kept
def _power_table(base: int, size: int) -> UInt64s:
    """Making it anew for every piece was a tenth of a scan (2026-11-21)."""
    powers = np.full(size, base, np.uint64)
    powers[0] = 1
    powers = np.cumprod(powers, dtype=np.uint64)
    powers.flags.writeable = False
    return powers


def _mixed(values: UInt64s) -> UInt64s:
    """splitmix64's finaliser: a bijection, so it adds no collisions."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _joined(arrays: list, dtype: type) -> NDArray:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)
