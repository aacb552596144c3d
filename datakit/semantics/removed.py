"""The result of `datakit.semantic_duplicates`: a table beside each part of the documents, and pairs to look at."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from datakit.dedup.numbered import Numbered
from datakit.documents.parts import iterate_part, writing_part
from datakit.documents.schemas import KEPT_ID, SEMANTIC_FOLDER
from datakit.semantics.vectors import Scope, VectorPart
from datakit.text.arrays import load

SCHEMA = pa.schema([("id", pa.string()), (KEPT_ID, pa.string()), ("cosine", pa.float64())])
"""One row for each document, in the documents' order. `kept_id` is "" and `cosine` null if it stays."""
SHOWN_CHARS = 240
MOST_COSINES = 32


def write_removed(
    folder: Path,
    part: VectorPart,
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
    kept_ids[places] = scope.ids(kept[is_declared])
    found = np.full(part.rows, np.nan)
    found[places] = cosine[is_declared]
    ids = scope.ids(part.first + np.arange(part.rows))
    columns = [pa.array(ids), pa.array(kept_ids.tolist(), pa.string()), pa.array(found, mask=np.isnan(found))]
    with writing_part(folder / SEMANTIC_FOLDER / part.source / part.documents.name, SCHEMA) as out:
        out.write(pa.Table.from_arrays(columns, schema=SCHEMA))
    pairs = []
    for place, (least, below) in enumerate(pairwise([*cosines, 2.0])):
        near = np.flatnonzero((threshold == place) & (cosine >= least) & (cosine < below))[:shown]
        pairs += [[place, ids[number[at] - part.first], int(number[at]), int(kept[at]), float(cosine[at])] for at in near]
    return {"rows": part.rows, "removed": np.bincount(threshold, minlength=len(cosines)).tolist(), "pairs": pairs}


def removals_of(
    part: VectorPart, scope: Scope, rounds: Sequence[Numbered], cosines: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return number, kept number, place of the threshold and cosine of what all rounds remove of a part.

    If the second round removes the document for which the first one removed another, that other one is compared with the
    document that stays, and stays itself if it is not near.
    """
    found = [_unpacked(each.between(part.first, part.first + part.rows)) for each in rounds]
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


def examples(scope: Scope, cosines: Sequence[float], pairs: Sequence[list[list[Any]]], count: int) -> list[dict[str, Any]]:
    """Return pairs to look at: of each cosine those that it removes and that lie below the next one, by their ids."""
    shown = []
    for place, cosine in enumerate(cosines):
        for _, _, number, kept, found in sorted(pair for part in pairs for pair in part if pair[0] == place)[:count]:
            texts = {"text": _opening(scope, number), "kept_text": _opening(scope, kept)}
            shown.append({"removed_at": cosine, "cosine": round(found, 4)} | texts)
    return shown


def _opening(scope: Scope, number: int) -> str:
    """Return the source of a document and its first words; characters that do not print are escaped."""
    part = scope.part_of(number)
    (text,) = [table["text"][0].as_py() for table in iterate_part(part.documents, ["text"], *_row(part, number))]
    opening = " ".join(text[: 4 * SHOWN_CHARS].split())[:SHOWN_CHARS]
    return f"{part.source}: " + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in opening)


def _row(part: VectorPart, number: int) -> tuple[int, int]:
    return number - part.first, number - part.first + 1
