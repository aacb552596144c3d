"""The result of `datakit.semantic_duplicates`: a table beside each part of the documents, and pairs to look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from datakit.dedup.duplicates_table import hex_ids
from datakit.dedup.numbered import Numbered
from datakit.dedup.scope_parts import ScopePart
from datakit.documents.parts import iterate_part, writing_part
from datakit.documents.schemas import KEPT_ID, SEMANTIC_FOLDER
from datakit.semantics.vectors import Scope
from datakit.text.arrays import load

SCHEMA = pa.schema([("id", pa.string()), (KEPT_ID, pa.string()), ("cosine", pa.float64())])
"""One row for each document, in the documents' order. `kept_id` is "" and `cosine` null if it stays."""
SHOWN_CHARS = 240
MOST_COSINES = 32


def write_removed(
    folder: Path,
    part: ScopePart,
    scope: Scope,
    rounds: Sequence[Numbered],
    cosines: Sequence[float],
    min_cosine: float,
    shown: int,
) -> dict[str, Any]:
    """Write the table of one part. Returns how many are removed at each cosine, and the first pairs of each."""
    number, kept, threshold, cosine = removals_of(part, scope, rounds, cosines)
    is_declared = threshold == cosines.index(min_cosine)
    places = number[is_declared] - part.first
    kept_ids = np.full(part.rows, "", object)
    kept_ids[places] = hex_ids(*scope.ids(kept[is_declared]).T)
    found = np.full(part.rows, np.nan)
    found[places] = cosine[is_declared]
    ids = hex_ids(*scope.ids(np.arange(part.first, part.end)).T)
    columns = [pa.array(ids), pa.array(kept_ids.tolist(), pa.string()), pa.array(found, mask=np.isnan(found))]
    with writing_part(folder / SEMANTIC_FOLDER / part.source / part.name, SCHEMA) as out:
        out.write(pa.Table.from_arrays(columns, schema=SCHEMA))
    pairs = []
    for place, (least, below) in enumerate(pairwise([*cosines, 2.0])):
        near = np.flatnonzero((threshold == place) & (cosine >= least) & (cosine < below))[:shown]
        pairs += [[place, ids[number[at] - part.first], int(number[at]), int(kept[at]), float(cosine[at])] for at in near]
    return {"rows": part.rows, "removed": np.bincount(threshold, minlength=len(cosines)).tolist(), "pairs": pairs}


def removals_of(
    part: ScopePart, scope: Scope, rounds: Sequence[Numbered], cosines: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return number, kept number, place of the threshold and cosine of what all rounds remove of a part.

    If the second round removes the document for which the first one removed another, that other one is compared with the
    document that stays, and stays itself if it is not near.
    """
    found = [_unpacked(each.between(part.first, part.end)) for each in rounds]
    for later in rounds[1:]:
        number, kept, threshold, cosine = found[0]
        instead = _kept_instead(later, kept, threshold)
        moved = np.flatnonzero(instead >= 0)
        kept[moved] = instead[moved]
        cosine[moved] = scope.cosines(number[moved], kept[moved])
        stands = cosine >= np.array(cosines)[threshold]
        found[0] = (number[stands], kept[stands], threshold[stands], cosine[stands])
    number, kept, threshold, cosine = (np.concatenate(columns) for columns in zip(*found, strict=True))
    order = np.lexsort((threshold, number))
    return number[order], kept[order], threshold[order], cosine[order]


def _unpacked(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    number, kept, threshold, bits = (np.ascontiguousarray(column) for column in rows.T)
    return number, kept.copy(), threshold, bits.view(np.float64).copy()


def _kept_instead(later: Numbered, numbers: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """Return int64 [numbers]: for which document a later round removed each, at its threshold; -1 if it stays."""
    instead = np.full(numbers.size, -1)
    files = numbers * len(later.paths) // later.below
    for index in np.unique(files).tolist():
        here = np.flatnonzero(files == index)
        rows = load(later.paths[index])
        keys = rows[:, 0] * MOST_COSINES + rows[:, 2]
        order = np.argsort(keys)
        wanted = numbers[here] * MOST_COSINES + threshold[here]
        at = np.searchsorted(keys[order], wanted)
        is_found = np.append(keys[order], -1)[at] == wanted
        instead[here[is_found]] = rows[order[at[is_found]], 1]
    return instead


@dataclass(frozen=True)
class Pair:
    """A document and the one for which it is removed at `removed_at`, but not at the next higher cosine."""

    removed_at: float
    number: int
    kept: int
    cosine: float


def shown_pairs(cosines: Sequence[float], pairs: Sequence[list[Any]], count: int) -> list[Pair]:
    """Return pairs to look at, from those of all parts: the first `count` of each cosine by their ids."""
    shown = list[Pair]()
    for place, removed_at in enumerate(cosines):
        of_cosine = sorted(pair for pair in pairs if pair[0] == place)[:count]
        shown += [Pair(removed_at, number, kept, cosine) for _, _, number, kept, cosine in of_cosine]
    return shown


def example(scope: Scope, texts: Sequence[Path], pair: Pair) -> dict[str, Any]:
    """Return a pair with the openings of its texts; `texts` has the documents of each part."""
    openings = {"text": _opening(scope, texts, pair.number), "kept_text": _opening(scope, texts, pair.kept)}
    return {"removed_at": pair.removed_at, "cosine": round(pair.cosine, 4)} | openings


def _opening(scope: Scope, texts: Sequence[Path], number: int) -> str:
    """Return the source of a document and its first words; characters that do not print are escaped."""
    part = scope.part_with(number)
    row = number - part.first
    (text,) = [table["text"][0].as_py() for table in iterate_part(texts[part.index], ["text"], row, row + 1)]
    opening = " ".join(text[: 4 * SHOWN_CHARS].split())[:SHOWN_CHARS]
    return f"{part.source}: " + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in opening)
