"""Duplicates among accepted completions: equal documents, and near ones by verified Jaccard similarity.

Candidates share a band of MinHash (preset 20x5, `datakit.dedup.minhash`: at J = .8 one is missed with probability 4e-4), and
the similarity of each is computed exactly. Completions of fewer than five words have no near duplicates, only equal ones.
"""

from collections import defaultdict
from collections.abc import Sequence

from datakit.dedup.minhash import preset, sign_texts
from datakit.text.shingles import jaccard, shingle_hashes
from lineage.storage.digests import text_digest

PRESET = "20x5"


def duplicates_of(documents: Sequence[str], completions: Sequence[str], min_jaccard: float) -> dict[int, tuple[int, str]]:
    """Return place -> (the earlier place that stays, `equal` or `near`) of every duplicate."""
    duplicates: dict[int, tuple[int, str]] = {}
    first: dict[str, int] = {}
    for place, document in enumerate(documents):
        earlier = first.setdefault(text_digest(document), place)
        if earlier != place:
            duplicates[place] = (earlier, "equal")
    return duplicates | _near([place for place in range(len(documents)) if place not in duplicates], completions, min_jaccard)


def _near(places: Sequence[int], completions: Sequence[str], min_jaccard: float) -> dict[int, tuple[int, str]]:
    config = preset(PRESET)
    bands, sizes = sign_texts([completions[place] for place in places], config)
    kept_in: dict[int, list[int]] = defaultdict(list)
    near = {}
    for row, place in enumerate(places):
        if not sizes[row]:
            continue
        own, shingles = [int(band) for band in bands[row]], shingle_hashes(completions[place], config.ngram_words)
        candidates = sorted({earlier for band in own for earlier in kept_in[band]})
        same = (e for e in candidates if jaccard(shingles, shingle_hashes(completions[e], config.ngram_words)) >= min_jaccard)
        kept = next(same, None)
        if kept is not None:
            near[place] = (kept, "near")
            continue
        for band in own:
            kept_in[band].append(place)
    return near
