"""Tables of a contamination scan: documents by item, written in bounded memory."""

import json
import random
import weakref
from io import StringIO
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from test_contamination import PROSE
from test_contamination_stage import LEAK, QUESTIONS, clean_texts, marked

import datakit.contamination.marks as contamination_stage
from datakit.contamination.scan import ChannelMatch
from datakit.contamination.tables import MARKS, Piece, count, join_marks, join_matches, named, tables_of, write_piece
from datakit.contamination.tables import clean_texts as first_clean_texts
from datakit.documents.parts import ROW_GROUP_ROWS, value_counts, write_parquet
from datakit.text.byte_spans import cut_bytes
from lineage.artifact.store import Store
from lineage.storage.digests import text_digest
from marin_assets.cli.holders import print_holders

LEAKS = [f"– é 漢 {LEAK} {number}" for number in range(7)]


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    texts = [*clean_texts(20), *LEAKS, f"{PROSE} {LEAK}"]
    return marked(Store(str(tmp_path_factory.mktemp("scan"))), texts, QUESTIONS, part_bytes=4_000)


def test_the_table_answers_which_documents_hold_an_item(scan):
    table = pl.read_parquet(scan.folder() / "item_documents.parquet")
    assert table["item_id"].to_list() == sorted(table["item_id"].to_list())
    held = table.filter(item_id="0")
    assert held["id"].to_list() == sorted(text_digest(text) for text in [*LEAKS, f"{PROSE} {LEAK}"])
    texts = {part.name: dict(pl.read_parquet(part, columns=["id", "text"]).rows()) for part in documents(scan)}
    for row in held.iter_rows(named=True):
        assert cut_bytes(texts[row["part"]][row["id"]], row["start_byte"], row["end_byte"]) == LEAK
    assert set(held["source"]) == {"test"} and set(held["tier"]) == {"verbatim"}
    matches = pl.read_parquet(scan.folder() / "matches.parquet")
    assert table.select(matches.columns).sort(matches.columns).equals(matches.sort(matches.columns))
    statuses = pl.read_parquet(scan.folder() / "items.parquet").sort("item_id")
    assert statuses["num_documents"].to_list() == [8, 1, 0]


def documents(scan) -> list[Path]:
    return scan.input("normalized").files(under="documents/")


def test_the_command_lists_the_documents_of_an_item(scan, capsys):
    key, root = "/".join(scan.spec.key), scan.store.root
    print_holders("t/0", key, root, as_json=True, console=Console())
    listed = json.loads(capsys.readouterr().out)["documents"]
    assert sorted(row["id"] for row in listed) == sorted(text_digest(text) for text in [*LEAKS, f"{PROSE} {LEAK}"])
    console = Console(record=True, width=200, file=StringIO())
    print_holders("s/t/2", key, root, as_json=False, console=console)
    assert "0 documents hold s/t/2 or a part of it; scans: 1" in console.export_text()
    with pytest.raises(ValueError, match="no item 't/9' among those that were looked for"):
        print_holders("t/9", key, root, as_json=True, console=console)
    with pytest.raises(ValueError, match="no documents were scanned for benchmark items under 'datakit'"):
        print_holders("t/0", "datakit", root, as_json=True, console=console)


def test_the_table_is_the_same_for_any_cut(scan, tmp_path, monkeypatch):
    monkeypatch.setattr(contamination_stage, "SLICE_BYTES", 1)
    texts = pl.concat(pl.read_parquet(part) for part in documents(scan))["text"].to_list()
    again = marked(Store(str(tmp_path)), texts, QUESTIONS, part_bytes=2_000)
    tables = [pl.read_parquet(each.folder() / "item_documents.parquet").drop("part") for each in (scan, again)]
    assert tables[0].equals(tables[1])


class Alive:
    """Rows of the Parquet tables that are read and not yet let go of, and the most there ever were."""

    def __init__(self, monkeypatch) -> None:
        self.rows = self.most = 0
        read = pq.ParquetFile.read_row_group

        def counted(file, *args, **kwargs):
            return self.hold(read(file, *args, **kwargs))

        monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
        whole = pl.read_parquet
        monkeypatch.setattr(pl, "read_parquet", lambda *args, **kwargs: self.hold(whole(*args, **kwargs)))
        monkeypatch.setattr(pl, "scan_parquet", None)  # what it collects would not be counted

    def hold(self, table):
        rows = table.num_rows if isinstance(table, pa.Table) else table.height
        self.rows += rows
        self.most = max(self.most, self.rows)
        weakref.finalize(table, self._let_go, rows)
        return table

    def _let_go(self, rows: int) -> None:
        self.rows -= rows


@pytest.mark.parametrize("num_pieces", [4, 16])
def test_rows_in_memory_do_not_grow_with_the_source(tmp_path, monkeypatch, num_pieces):
    """Every document holds an item; a piece is one row group of documents."""
    names = pl.DataFrame([("s", "t", "0", "question"), ("s", "t", "1", "question")], orient="row").rename(
        dict(zip(("column_0", "column_1", "column_2", "column_3"), ("suite", "task", "item_id", "channel"), strict=True))
    )
    ids = sorted(f"{random.Random(at).getrandbits(128):032x}" for at in range(num_pieces * ROW_GROUP_ROWS))
    part, scratch = tmp_path / "part-00000-of-00001.parquet", tmp_path / "scratch"
    write_parquet(part, pa.table({"id": ids, "text": ids}))
    pieces = [Piece("source", part, at, at + 1) for at in range(num_pieces)]
    tallies = {}
    for at, piece in enumerate(pieces):
        mine = pl.Series("id", ids[at * ROW_GROUP_ROWS : (at + 1) * ROW_GROUP_ROWS])
        matches = [(each, ChannelMatch(row, row % 2, "near", 1.0, 0, 5, 5)) for row, each in enumerate(mine)]
        tallies[piece] = write_piece(scratch, piece, mine, named(matches[: -2 if at == num_pieces - 1 else None], names))
    alive = Alive(monkeypatch)
    join_marks(tmp_path / "out", part.name, tables_of(scratch, MARKS, pieces))
    join_matches(tmp_path / "out", scratch, pieces)
    joined = count(scratch, tallies)
    clean = first_clean_texts(scratch, pieces, 2, lambda path: None)
    assert alive.most <= 3 * ROW_GROUP_ROWS
    reasons = value_counts(pl.read_parquet(tmp_path / "out" / "marks" / part.name)["tier"])
    assert (joined.documents, joined.contaminated, clean) == (len(ids), len(ids) - 2, ids[-2:])
    assert reasons == {"": 2, "near": len(ids) - 2}
