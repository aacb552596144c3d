"""Word n-grams as numpy hashes, and an index from them to the places in benchmark items that hold them.

There is no Python string per n-gram: words are hashed as slices of one flat byte buffer, n-grams as sums of word
hashes. A bit table rejects nearly all n-grams of a document before any exact lookup.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datakit.text.arrays import load_all, save_all
from datakit.text.compiled import compiled

type UInt64s = NDArray[np.uint64]
type Ints = NDArray[np.int64]
type Floats = NDArray[np.float64]

_SPACE, _ZERO, _NINE = b" 09"
_BASE = 0x9E3779B97F4A7C15
_WORD_BASE = np.uint64(_BASE)
_NUMBER_HASH = np.uint64(0xD6E8FEB86659FD93)
_BITS_PER_GRAM = 16
_BLOCK = 1 << 10
_UNROLLED = 8
_MIN_TABLE_BITS = 1 << 16
_AT = np.uint64
"""An index of this type is not tested for being negative."""


@dataclass(frozen=True)
class Words:
    """Words of several texts in one flat array. Text `t` has the words `bounds[t]` to `bounds[t + 1]`."""

    hashes: UInt64s
    is_number: NDArray[np.bool_]
    num_bytes: Ints
    bounds: Ints

    def masked(self) -> UInt64s:
        """Return the hashes in which every number counts as the same word."""
        return np.where(self.is_number, _NUMBER_HASH, self.hashes)


def hash_words(texts: Sequence[bytes]) -> Words:
    """Hash the words of canonical texts (`canonical_text.canonical_bytes`) to 64 bits; equal words have equal hashes in
    any text.
    """
    text_starts = np.cumsum([0] + [len(text) + 1 for text in texts], dtype=np.int64)
    return hash_buffer(np.frombuffer(b" ".join(texts), np.uint8), text_starts)


def hash_buffer(data: NDArray[np.uint8], text_starts: Ints) -> Words:
    """Apply `hash_words` to texts in one buffer, given their starts (`canonical_text.canonical_batch`)."""
    return Words(*_hash_words(data, text_starts))


@compiled
def _hash_words(data: NDArray[np.uint8], text_starts: Ints) -> tuple[UInt64s, NDArray[np.bool_], Ints, Ints]:
    """Compute the fields of `Words`. A word's hash is a polynomial over its bytes modulo 2**64, mixed so that all bits
    are good.

    Most words have at most `_UNROLLED` bytes. So many are read for each word and those behind its end count as zero, because a
    processor guesses wrong where a loop over the bytes of a word ends.
    """
    most = data.size // 2 + 2
    hashes, are_numbers, num_bytes = np.empty(most, np.uint64), np.empty(most, np.bool_), np.empty(most, np.int64)
    bounds, edges = np.zeros(text_starts.size, np.int64), np.empty(data.size + 2, np.int64)
    powers, text, num_edges, is_word = np.ones(_UNROLLED, np.uint64), 0, 0, False
    for k in range(1, _UNROLLED):
        powers[k] = powers[k - 1] * _WORD_BASE
    for place in range(data.size):
        edges[_AT(num_edges)] = place
        num_edges += is_word != (data[_AT(place)] != _SPACE)
        is_word = data[_AT(place)] != _SPACE
    edges[num_edges] = data.size
    count = (num_edges + 1) // 2
    for word in range(count):
        start, end = np.int64(edges[_AT(2 * word)]), np.int64(edges[_AT(2 * word + 1)])
        while text < text_starts.size and text_starts[text] <= start:
            bounds[text] = word
            text += 1
        size, hashed = end - start, np.uint64(0)
        if start + _UNROLLED <= data.size:
            for k in range(_UNROLLED):
                hashed += np.uint64(data[_AT(start + k)]) * np.uint64(k < size) * powers[_AT(k)]
        else:
            for k in range(min(size, _UNROLLED)):
                hashed += np.uint64(data[_AT(start + k)]) * powers[_AT(k)]
        power = powers[_UNROLLED - 1]
        for place in range(start + _UNROLLED, end):
            power *= _WORD_BASE
            hashed += np.uint64(data[_AT(place)]) * power
        is_number, place = True, start
        while is_number and place < end:
            is_number = _ZERO <= data[_AT(place)] <= _NINE
            place += 1
        hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)  # splitmix64's finalizer: a bijection
        hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashes[_AT(word)] = hashed ^ (hashed >> np.uint64(31))
        are_numbers[_AT(word)], num_bytes[_AT(word)] = is_number, size
    bounds[text:] = count
    return hashes[:count].copy(), are_numbers[:count].copy(), num_bytes[:count].copy(), bounds


def gram_hashes(words: UInt64s, n: int) -> UInt64s:
    """Return the hash of the n-gram that starts at each word, n - 1 fewer than words. N-grams may cross texts."""
    return grams_at(words, np.arange(max(len(words) - n + 1, 0)), n)


def grams_at(words: UInt64s, places: Ints, n: int) -> UInt64s:
    """Return `gram_hashes(words, n)[places]` without computing the others."""
    grams = np.zeros(len(places), np.uint64)
    for k, factor in enumerate(_factors(n)):
        grams += words[places + k] * factor
    return grams


def _factors(n: int) -> UInt64s:
    """Return the factors for the hashes of an n-gram's words."""
    return np.array([pow(_BASE, 2 * k + 3, 1 << 64) for k in range(n)], np.uint64)


def whole_grams(bounds: Ints, n: int, num_grams: int) -> NDArray[np.bool_]:
    """Return which of the flat n-grams lie within one text."""
    whole = np.ones(num_grams, np.bool_)
    for k in range(1, n):
        crossing = bounds[1:] - k
        whole[crossing[(crossing >= 0) & (crossing < num_grams)]] = False
    return whole


@dataclass(frozen=True)
class GramIndex:
    """Distinct n-grams of the channels, each with its postings (channel, word position in the channel).

    `grams` is sorted; the postings of gram `g` are `offsets[g]` to `offsets[g + 1]`.
    """

    n: int
    grams: UInt64s
    offsets: Ints
    channels: Ints
    positions: Ints
    table: NDArray[np.uint8]

    def lookup(self, grams: UInt64s) -> tuple[Ints, Ints]:
        """Return the positions in `grams` of the hashes that the index has, and which hashes they are."""
        passed = in_table(self.table, grams)
        if not len(passed) or not len(self.grams):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        numbers = np.minimum(np.searchsorted(self.grams, grams[passed]), len(self.grams) - 1)
        same = self.grams[numbers] == grams[passed]
        return passed[same], numbers[same]

    def lookup_at(self, words: UInt64s, bounds: Ints, places: Ints) -> tuple[Ints, Ints, Ints]:
        """Return which ascending places in the flat words begin an indexed gram that ends in the same text, the text, and
        the gram.
        """
        return _lookup_at(self.grams, self.table, words, bounds, places, _factors(self.n))

    def expand(self, where: Ints, grams: Ints) -> tuple[Ints, Ints, Ints]:
        """Return one row for each posting of the found grams: (where it was found, channel, position in the channel)."""
        counts = self.offsets[grams + 1] - self.offsets[grams]
        rows = np.repeat(self.offsets[grams] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return np.repeat(where, counts), self.channels[rows], self.positions[rows]

    def only(self, wanted: NDArray[np.bool_]) -> "GramIndex":
        """Return the index of the `wanted` [postings]. Its bit table stays, so it passes a few grams that are gone."""
        if wanted.all():
            return self
        offsets = np.concatenate(([0], np.cumsum(wanted)))[self.offsets]
        kept = np.flatnonzero(np.diff(offsets))
        return replace(
            self,
            grams=self.grams[kept],
            offsets=np.append(offsets[kept], offsets[-1]),
            channels=self.channels[wanted],
            positions=self.positions[wanted],
        )

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


def is_member(grams: UInt64s, wanted: UInt64s) -> NDArray[np.bool_]:
    """Return `np.isin(grams, wanted)`, fast if few of many grams are wanted."""
    may = in_table(bit_table(wanted), grams)
    found = np.zeros(len(grams), np.bool_)
    found[may[np.isin(grams[may], wanted)]] = True
    return found


def in_table(table: NDArray[np.uint8], grams: UInt64s) -> Ints:
    """Return positions of the grams that the bit table may hold: all that it does hold and few others."""
    return _in_table(table, grams, np.ones(1, np.uint64))


def grams_in_table(table: NDArray[np.uint8], words: UInt64s, n: int) -> Ints:
    """Compute `in_table(table, gram_hashes(words, n))` without an array of all grams."""
    return _in_table(table, words, _factors(n))


@compiled
def _lookup_at(
    grams: UInt64s, table: NDArray[np.uint8], words: UInt64s, bounds: Ints, places: Ints, factors: UInt64s
) -> tuple[Ints, Ints, Ints]:
    found, texts, numbers = np.empty(places.size, np.int64), np.empty(places.size, np.int64), np.empty(places.size, np.int64)
    passed, count, text, bits = 0, 0, 0, 0
    while 1 << bits < table.size * 8:
        bits += 1
    hashes = np.empty(places.size, np.uint64)
    for place in places:
        while bounds[_AT(text + 1)] <= place:
            text += 1
        if place + factors.size > bounds[_AT(text + 1)]:
            continue
        gram = np.uint64(0)
        for k in range(factors.size):
            gram += words[_AT(place + k)] * factors[_AT(k)]
        bit = gram >> np.uint64(64 - bits)
        found[_AT(passed)], texts[_AT(passed)], hashes[_AT(passed)] = place, text, gram
        passed += table[bit >> np.uint64(3)] >> (bit & np.uint64(7)) & 1
    for number in range(passed):
        gram, low, high = hashes[_AT(number)], 0, grams.size
        while low < high:
            middle = (low + high) // 2
            if grams[_AT(middle)] < gram:
                low = middle + 1
            else:
                high = middle
        if low < grams.size and grams[_AT(low)] == gram:
            found[_AT(count)], texts[_AT(count)], numbers[_AT(count)] = found[_AT(number)], texts[_AT(number)], low
            count += 1
    return found[:count].copy(), texts[:count].copy(), numbers[:count].copy()


@compiled
def _in_table(table: NDArray[np.uint8], words: UInt64s, factors: UInt64s) -> Ints:
    places, count, bits = np.empty(words.size, np.int64), 0, 0
    while 1 << bits < table.size * 8:
        bits += 1
    grams = np.empty(_BLOCK, np.uint64)
    for low in range(0, words.size - factors.size + 1, _BLOCK):
        size = min(_BLOCK, words.size - factors.size + 1 - low)
        grams[:] = 0
        for k in range(
            factors.size
        ):  # The words of an n-gram are added one after another, so that the processor adds many grams at once.
            for i, word in enumerate(words[low + k : low + k + size]):
                grams[i] += word * factors[k]
        for i in range(size):
            bit = grams[i] >> np.uint64(64 - bits)
            places[count] = low + i
            count += table[bit >> np.uint64(3)] >> (bit & np.uint64(7)) & 1
    return places[:count].copy()


def bit_table(grams: UInt64s) -> NDArray[np.uint8]:
    """Return a table of 2^k bits in which the upper k bits of each hash set one bit. It has at least 16 bits for each hash."""
    num_bits = max(_MIN_TABLE_BITS, 1 << (len(grams) * _BITS_PER_GRAM - 1).bit_length()) if len(grams) else _MIN_TABLE_BITS
    slots = grams >> np.uint64(64 - num_bits.bit_length() + 1)
    table = np.zeros(num_bits // 8, np.uint8)
    np.bitwise_or.at(table, slots >> np.uint64(3), np.uint8(1) << (slots & np.uint64(7)).astype(np.uint8))
    return table
