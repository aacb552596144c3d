"""Repeated word n-grams of documents, as Gopher counts them (Rae et al. 2021, section A.1.1).

There are two shares of a document's characters: that of its most frequent n-gram, all occurrences together, and that of
words covered by an n-gram that occurred before. The second counts a word once, however many n-grams cover it ("taking
care not to count characters that occur in overlapping n-grams more than once"). datatrove skips over each repeated
n-gram instead and so misses the end of a longer repetition; benchmarks/quality_rules.py says how often the verdicts
differ.
"""

import numpy as np

from datakit.quality.word_signals import Words
from datakit.text.code_points import CodePoints
from datakit.text.compiled import compiled

TOP_SIZES = (2, 3, 4)
DUPLICATE_SIZES = (5, 6, 7, 8, 9, 10)
FIRST_SIZE, LAST_SIZE = TOP_SIZES[0], DUPLICATE_SIZES[-1]
MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)

TOP_NAMES = tuple(f"top_{n}_gram_char_frac" for n in TOP_SIZES)
DUPLICATE_NAMES = tuple(f"duplicate_{n}_gram_char_frac" for n in DUPLICATE_SIZES)


def repetition_signals(texts: CodePoints, words: Words) -> dict[str, np.ndarray]:
    """Return float64 [texts] by name; `words` are `datakit.quality.word_signals.words_of` the texts."""
    top, repeated = _gram_chars(words.bounds, words.chars, words.hashes)
    chars = np.maximum(texts.num_chars, 1)
    top_shares = {name: top[:, n - FIRST_SIZE] / chars for n, name in zip(TOP_SIZES, TOP_NAMES, strict=True)}
    return top_shares | {
        name: repeated[:, n - FIRST_SIZE] / chars for n, name in zip(DUPLICATE_SIZES, DUPLICATE_NAMES, strict=True)
    }


@compiled
def _gram_chars(bounds: np.ndarray, chars: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return float64 [texts, sizes] twice: characters of the most frequent n-gram (the first of equally frequent ones),
    and of words in n-grams that occurred before.

    An n-gram that occurs twice begins with an n-1-gram that does. So each size looks only where the size before found
    something: `places` and `grams` (hashes) [num_grams] say where. Each size counts in a hash table of its own: `keys`,
    `firsts` (places) and `counts` [1 << bits], at the upper bits of a hash or after them.
    """
    texts, most = bounds.size - 1, 1
    for text in range(texts):
        most = max(most, bounds[text + 1] - bounds[text])
    top, repeated = np.zeros((texts, LAST_SIZE - 1)), np.zeros((texts, LAST_SIZE - 1))
    places, grams, slots = np.empty(most, np.int64), np.empty(most, np.uint64), np.empty(most, np.int64)
    size = 2
    while size < 2 * most:
        size *= 2
    keys, firsts, counts = np.empty(size, np.uint64), np.empty(size, np.int32), np.empty(size, np.int32)
    ends = np.zeros(most + 1, np.int64)
    for text in range(texts):
        base, num_words = bounds[text], bounds[text + 1] - bounds[text]
        for word in range(num_words):
            ends[word + 1] = ends[word] + chars[base + word]
            places[word], grams[word] = word, words[base + word]
        num_grams = num_words
        for n in range(FIRST_SIZE, LAST_SIZE + 1):
            if num_words < n:
                break
            bits = 1
            while 1 << bits < 2 * num_grams:
                bits += 1
            counts[: 1 << bits] = 0
            longer, best, best_first, covered, covered_to = 0, 1, 0, 0, 0
            for gram in range(num_grams):
                place = places[gram]
                if place + n > num_words:
                    break
                key = grams[gram] * MULTIPLIER + words[base + place + n - 1]
                key = (key ^ (key >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
                key ^= key >> np.uint64(29)
                slot = np.int64(key >> np.uint64(64 - bits))
                while counts[slot] and keys[slot] != key:
                    slot = (slot + 1) & ((1 << bits) - 1)
                counts[slot] += 1
                if counts[slot] == 1:
                    keys[slot], firsts[slot] = key, place
                else:  # Words before `covered_to` are counted already.
                    covered += ends[place + n] - ends[max(place, covered_to)]
                    covered_to = place + n
                    if counts[slot] > best or (counts[slot] == best and firsts[slot] < best_first):
                        best, best_first = counts[slot], firsts[slot]
                places[longer], grams[longer], slots[longer] = place, key, slot
                longer += 1
            top[text, n - FIRST_SIZE] = best * (ends[best_first + n] - ends[best_first] + n - 1)
            repeated[text, n - FIRST_SIZE] = covered
            num_grams = 0
            for gram in range(longer):  # The next size looks where a gram occurred twice.
                if counts[slots[gram]] > 1:
                    places[num_grams], grams[num_grams] = places[gram], grams[gram]
                    num_grams += 1
    return top, repeated
