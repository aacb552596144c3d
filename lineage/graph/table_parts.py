"""Changes of the saved lineage tables, a file for some of them, so that news does not rewrite the tables.

    .lineage/tables/00000007.arrays          rows that came, and the addresses whose rows they replace

A reader applies the files in order. A writer takes the newest files that are no larger than its own news into its file, so
their sizes double and there are few. Once they would be half as large as the tables, the tables are written whole: each row is
written again log2(artifacts) times, not once for each news.

Crashes and others at work: the new file is written before those that are in it are deleted, so a kill leaves rows twice. Two
writers of one number: the later one stays, and the rows of the other are news again, because each file says how far the commit
log was read.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import polars as pl

from lineage.graph.table_file import Schemas, packed, unpacked
from lineage.storage.root import Storage

REPLACED = {"address": pl.String}
_NAME = re.compile(r"\d{8}\.arrays")
_ADDRESSES = {"artifacts": "address", "edges": "child"}
READ_AGAIN = 3
"""Times that a listing is read while another writer takes files into its own."""

type Frames = Mapping[str, pl.DataFrame]


@dataclass(frozen=True)
class Part:
    """One file of changes: rows of `artifacts`, `edges` and `seen`, and `replaced`, the addresses whose rows they are."""

    number: int
    frames: Frames

    @property
    def size(self) -> int:
        """Addresses that changed."""
        return self.frames["replaced"].height


def name_of(folder: str, number: int) -> str:
    """Return the address of a part below the root."""
    return f"{folder}/{number:08d}.arrays"


def read_parts(storage: Storage, folder: str, schemas: Schemas) -> list[Part]:
    """Return the parts in order. Raises: ValueError naming one that cannot be read, or that others keep on changing."""
    for _ in range(READ_AGAIN):
        numbers = [int(name[:8]) for name in storage.records(folder) if _NAME.fullmatch(name)]
        files = storage.read_each(lambda number: storage.read_bytes(name_of(folder, number)), numbers)
        if None not in files:
            return [
                Part(number, unpacked(data, {**schemas, "replaced": REPLACED}, storage.uri(name_of(folder, number))))
                for number, data in zip(numbers, files, strict=True)
                if data is not None
            ]
    raise ValueError(f"{storage.uri(folder)} changes all the time; ask again")


def applied(tables: Frames, part: Part) -> dict[str, pl.DataFrame]:
    """Return tables with the rows of a part in place of those of its addresses."""
    out = part.frames["replaced"]["address"].implode()
    changed = {
        name: pl.concat([tables[name].filter(~pl.col(column).is_in(out)), part.frames[name]])
        for name, column in _ADDRESSES.items()
    }
    return {**changed, "seen": part.frames["seen"]}


def add_part(
    storage: Storage, folder: str, parts: Collection[Part], news: Frames, replaced: Collection[str], rows: int
) -> bool:
    """Save news beside tables of `rows` rows, and merge small parts into its file.

    False, and nothing is written, if the parts would be half as large as the tables: then write them whole.
    """
    part = Part(1 + max((each.number for each in parts), default=0), {**news, "replaced": _addresses(replaced)})
    taken = list[Part]()
    for earlier in sorted(parts, key=lambda each: each.number, reverse=True):
        if earlier.size > part.size:
            break
        part = Part(part.number, _joined(earlier, part))
        taken.append(earlier)
    if 2 * part.size > rows:
        return False
    storage.replace(name_of(folder, part.number), packed(part.frames))
    for earlier in taken:
        storage.delete(name_of(folder, earlier.number))
    return True


def _joined(earlier: Part, later: Part) -> dict[str, pl.DataFrame]:
    replaced = set(earlier.frames["replaced"]["address"]) | set(later.frames["replaced"]["address"])
    return {**applied(earlier.frames, later), "replaced": _addresses(replaced)}


def _addresses(replaced: Collection[str]) -> pl.DataFrame:
    return pl.DataFrame({"address": sorted(replaced)}, schema=REPLACED)
