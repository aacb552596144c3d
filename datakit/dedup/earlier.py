"""What earlier scopes kept, as far as documents of a growing scope may repeat it (`recipes` `Scope.earlier`).

One pass over the signatures of the earlier documents finds those that have an id or a band of a new document. A filter of
the new keys says so, which is never wrong about a document that has one, and rarely about others. Only what passes is
spilled, and joined like documents of the scope itself. So what is shuffled, compared and written grows with the new
documents. The earlier ones cost their signatures, read once: no index of them is made (docs/log.md, 2026-11-27).

The filter is a Bloom filter in a file that the workers map: 4 bytes a key, at most 1 GiB. Beyond 130 M keys more earlier
documents pass than have a key, and none is missed.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from datakit.dedup.band_join import Spilled, flat_signatures, links_of_range
from datakit.dedup.part_files import save_part
from datakit.dedup.scope_parts import ScopePart
from datakit.documents.parts import iterate_part
from datakit.text.arrays import load
from lineage.shards.run import SCRATCH_FOLDER
from lineage.tables.ranges import is_first, sorted_by

FILTER_FILE = "keys.npy"
BITS_OF_KEY = 32
LEAST_BITS, MOST_BITS = 1 << 16, 1 << 33
PROBES = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
"""Odd numbers: a key times each gives, in its highest bits, the place of one bit of the filter."""


def write_filter(folder: Path, spilled: Spilled, parts: Sequence[ScopePart], keys: int) -> dict[str, int]:
    """Write the filter of the ids and bands of some parts, `keys` in number."""
    bits = min(MOST_BITS, max(LEAST_BITS, 1 << (BITS_OF_KEY * keys - 1).bit_length()))
    path = folder / SCRATCH_FOLDER / FILTER_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    held = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(bits >> 3,))
    for part in parts:
        bands = spilled.load("bands", part)[spilled.load("signed", part)]
        for values in (spilled.load("ids", part)[:, 0], *bands.T):
            for factor in PROBES:
                place = _places(values, factor, bits)
                for bit in range(8):
                    held[place[place & np.uint64(7) == bit] >> np.uint64(3)] |= np.uint8(1 << bit)
    held.flush()
    return {"bits": bits}


def holds(held: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return bool, shaped like `keys`: whether a filter may have each."""
    left = np.arange(keys.size)
    for factor in PROBES:
        place = _places(keys.ravel()[left], factor, 8 * held.size)
        left = left[(held[place >> np.uint64(3)] >> (place & np.uint64(7)).astype(np.uint8)) & np.uint8(1) == 1]
    found = np.zeros(keys.size, dtype=bool)
    found[left] = True
    return found.reshape(keys.shape)


def spill_kept(folder: Path, part: ScopePart, signatures: Path, clusters: Path, width: int, keys: Path) -> dict[str, int]:
    """Write ids, bands and `rows` of those documents of an earlier part that its scope kept and the filter holds.

    `keys` is the filter, `clusters` the file of the part that names the removed ones. Returns how many they are.
    """
    held = load(keys)
    gone = pl.read_parquet(clusters).filter(~pl.col("is_kept"))["id"]
    empty = pa.table({"id": pa.array([], pa.string()), "bands": pa.array([], pa.list_(pa.uint64()))})
    found, first = [flat_signatures(empty, width) | {"rows": np.zeros(0, np.int64)}], 0
    for table in iterate_part(signatures, ["id", "bands"]):
        signed = flat_signatures(table, width)
        passes = holds(held, signed["ids"][:, 0]) | (holds(held, signed["bands"]).any(axis=1) & signed["signed"])
        at = np.flatnonzero(passes)
        at = at[~pl.Series(table["id"].take(at).to_pylist(), dtype=pl.String).is_in(gone.implode()).to_numpy()]
        found.append({name: values[at] for name, values in signed.items()} | {"rows": first + at})
        first += table.num_rows
    part.check_rows(first, signatures)
    save_part(folder, part, **{name: np.concatenate([each[name] for each in found]) for name in found[0]})
    return {"documents": sum(each["rows"].size for each in found), "read": first}


def links_to_new(spilled: Spilled, most: int, rows: pa.Table) -> pa.Table:
    """Return the components of a range's new documents, and of the earlier ones that they meet, as stars."""
    return links_of_range(met(spilled, most, rows))


def met(spilled: Spilled, most: int, rows: pa.Table) -> pa.Table:
    """Return the rows of a range of (`band`, `number`) whose band has a new document. Of earlier ones a band keeps the
    `most` of the smallest ids: the walk compares with no other.
    """
    ordered = sorted_by(rows, "band")
    number, band = ordered["number"].to_numpy(), np.cumsum(is_first(ordered, "band")) - 1
    is_earlier, count = number < spilled.settled, int(band[-1]) + 1 if band.size else 0
    stays = (np.bincount(band[~is_earlier], minlength=count) > 0)[band]
    is_full = np.bincount(band[is_earlier], minlength=count) > most
    crowd = np.flatnonzero(is_earlier & stays & is_full[band])
    high, low = spilled.ids(number[crowd]).T
    crowd = crowd[np.lexsort((low, high, band[crowd]))]
    place = np.arange(crowd.size) - np.searchsorted(band[crowd], band[crowd])
    stays[crowd[place >= most]] = False
    return ordered.filter(pa.array(stays))


def _places(keys: np.ndarray, factor: int, bits: int) -> np.ndarray:
    """Return the place of one bit of each key."""
    return (keys * np.uint64(factor)) >> np.uint64(64 - (bits.bit_length() - 1))
