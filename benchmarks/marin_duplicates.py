"""What Marin's fuzzy deduplication would remove, for comparison only: nothing of ours is built on it.

The definition of dupekit as Marin's data pipeline calls it (lib/dupekit, `minhash_ops.rs`): text lower-cased, ASCII
punctuation dropped, runs of whitespace one space; *character* 5-grams; 286 minima in 26 bands of 11 rows; documents that share
a band are one cluster, transitively and unverified; one document of it stays (here the one of the smallest id). The hash
functions are ours, so single chance collisions differ from dupekit's (`benchmarks/dedup.py` prints both). Research, section 4:
character 5-grams of unrelated long documents have Jaccard .2, so about half of what it removes repeats nothing.
"""

import string
from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from datakit.dedup.minhash import band_hashes, lowest_hashes, preset
from datakit.text.shingles import ORDER_MULTIPLIER, batches, mix, unique_in_segments

MARIN = preset("26x11")
CHARS = 5
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def clean_text(text: str) -> str:
    """Lower case, without ASCII punctuation, single spaces."""
    return " ".join(text.lower().translate(_NO_PUNCTUATION).split())


def char_shingle_sets(texts: Sequence[str], chars: int = CHARS) -> tuple[np.ndarray, np.ndarray]:
    """uint64 hashes of every text's distinct runs of `chars` characters, and int64 [texts + 1] bounds.

    A shorter text has one, of all its characters.
    """
    shingles, sizes = [np.zeros(0, np.uint64)], []
    for text in texts:
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.uint64) + np.uint64(1)
        width = min(chars, codes.size)
        windows = codes.size - width + 1 if width else 0
        combined = codes[:windows].copy()
        for offset in range(1, width):
            combined *= ORDER_MULTIPLIER
            combined += codes[offset : offset + windows]
        shingles.append(mix(combined))
        sizes.append(windows)
    return unique_in_segments(np.concatenate(shingles), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


def marin_removals(ids: Sequence[str], texts: Sequence[str]) -> list[str]:
    """The ids that leave, in their order. Everything is in memory: it is for corpora that fit."""
    minima = [lowest_hashes(*char_shingle_sets([clean_text(t) for t in batch]), MARIN) for batch in batches(texts)]
    if not minima:
        return []
    _, band = np.unique(band_hashes(np.concatenate(minima), MARIN), return_inverse=True)
    band = band.reshape(len(ids), MARIN.bands)
    rows = np.repeat(np.arange(len(ids)), MARIN.bands)
    graph = coo_array(
        (np.ones(rows.size, np.int8), (rows, len(ids) + band.ravel())), shape=(len(ids) + int(band.max()) + 1,) * 2
    )
    cluster = connected_components(graph, directed=False)[1][: len(ids)]
    order = np.argsort(np.array(ids), kind="stable")
    _, first = np.unique(cluster[order], return_index=True)
    kept = set(order[first].tolist())
    return [document for i, document in enumerate(ids) if i not in kept]
