"""Tables merged on disk: order, any split into tables, more tables than one merge takes."""

import random

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datakit.documents import sorted_tables
from datakit.documents.sorted_tables import merge_tables

SCHEMA = pa.schema([("key", pa.string()), ("number", pa.int64())])


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 17])
def test_tables_become_one_sorted_table_however_many_they_are(tmp_path, monkeypatch, count):
    monkeypatch.setattr(sorted_tables, "FAN_IN", 4)
    choose = random.Random(count)
    rows = [(choose.choice("aéb漢"), choose.randrange(50)) for _ in range(100)]
    paths = [tmp_path / f"{at}.parquet" for at in range(count)]
    for at, path in enumerate(paths):
        pl.DataFrame(sorted(rows[at::count]), schema=SCHEMA.names, orient="row").write_parquet(path, row_group_size=7)
    scratch = tmp_path / "scratch"
    written = merge_tables(paths, tmp_path / "all.parquet", SCHEMA, scratch)
    expected = sorted(rows) if count else []
    assert pl.read_parquet(tmp_path / "all.parquet").rows() == expected and written == len(expected)
    assert all(path.exists() for path in paths)  # what was given stays, so that a killed merge can begin again


def test_no_more_tables_than_the_fan_in_are_open_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(sorted_tables, "FAN_IN", 4)
    opened, most = [], []

    class Counted(pq.ParquetFile):
        def __enter__(self):
            opened.append(self)
            most.append(len(opened))
            return super().__enter__()

        def __exit__(self, *args):
            opened.remove(self)
            return super().__exit__(*args)

    monkeypatch.setattr(sorted_tables.pq, "ParquetFile", Counted)
    paths = [tmp_path / f"{at:03}.parquet" for at in range(40)]
    for at, path in enumerate(paths):
        pl.DataFrame([(str(at), at)], schema=SCHEMA.names, orient="row").write_parquet(path)
    merge_tables(paths, tmp_path / "all.parquet", SCHEMA, tmp_path)
    assert max(most) == 4
