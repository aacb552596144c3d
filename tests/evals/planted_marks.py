"""What a contamination stage and a corpus stage leave behind, with planted matches and nothing removed."""

from collections.abc import Collection, Sequence

import polars as pl
from test_audit import ITEM_SCHEMA, MATCH_SCHEMA

from lineage.artifact.store import Artifact
from lineage.writing.writer import Writer


def leave_marks(out: Writer, rows: Sequence[tuple], suite: Artifact, matched: Collection[str]) -> None:
    """Write rows of matches, and the items of a suite, of which the `task/item` names in `matched` are matched."""
    pl.DataFrame(rows, schema=MATCH_SCHEMA, orient="row").write_parquet(out.folder / "matches.parquet")
    items = pl.read_parquet(suite.file("items.parquet")).select(*ITEM_SCHEMA)
    names = [f"{task}/{item}" for _, task, item in items.iter_rows()]
    status = pl.Series(["matched" if name in matched else "clean" for name in names], dtype=pl.String)
    items.with_columns(status=status, num_documents=0).write_parquet(out.folder / "items.parquet")
    out.extra["contamination"] = {"policy": "tests"}
    out.extra["canaries"] = {"items": 4, "recall": {"verbatim": 1.0}, "false_positives": {"shuffled": 0.0}}


def leave_corpus(out: Writer, documents: pl.DataFrame) -> None:
    """Write a corpus that trains on all documents: nothing is held out or removed."""
    for split, rows in (("train", documents), ("heldout", documents.clear())):
        (out.folder / split).mkdir()
        rows.write_parquet(out.folder / split / "part-00000-of-00001.parquet")
    pl.DataFrame(schema={"id": pl.String, "reason": pl.String}).write_parquet(out.folder / "dropped.parquet")
