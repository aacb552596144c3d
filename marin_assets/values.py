"""Tables and pictures as Dagster's metadata: small, because events are rows of a database."""

import base64
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

PICTURE_BYTES = 100_000
TABLE_ROWS = 30


def counts_table(counts: Mapping[str, int], name: str, unit: str) -> dg.MetadataValue:
    """Return a two-column table, largest first."""
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:TABLE_ROWS]
    return dg.MetadataValue.table([dg.TableRecord({name: key, unit: int(value)}) for key, value in rows])


def records_table(records: Sequence[Mapping[str, Any]], columns: tuple[str, ...]) -> dg.MetadataValue:
    """Return a table of some columns of records, in their order; "none" without records (a table needs a schema)."""
    if not records:
        return dg.MetadataValue.text("none")
    rows = [dg.TableRecord({c: record[c] for c in columns}) for record in records[:TABLE_ROWS]]
    return dg.MetadataValue.table(rows)


def picture(draw: Callable[[Path], None]) -> dg.MetadataValue:
    """Return a PNG that a function draws, inline as Markdown. A sentence that says so replaces a picture that is too large."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.png"
        draw(path)
        return inline(path.read_bytes())


def inline(png: bytes) -> dg.MetadataValue:
    """Return the bytes of a PNG as Markdown."""
    if len(png) > PICTURE_BYTES:
        return dg.MetadataValue.text(f"the picture has {len(png)} bytes; the UI is given at most {PICTURE_BYTES}")
    return dg.MetadataValue.md(f"![picture](data:image/png;base64,{base64.b64encode(png).decode()})")
