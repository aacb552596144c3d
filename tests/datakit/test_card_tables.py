"""Card statistics read one row group at a time equal statistics over all rows."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datakit.cards.tables import Clusters, Lengths, Matches, first_by_reason
from datakit.documents import parts
from datakit.documents.parts import texts_of, write_parquet

ROWS = 3
"""Of a row group here."""


@pytest.fixture(scope="module", autouse=True)
def small_row_groups():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "ROW_GROUP_ROWS", ROWS)
        yield


def written(path: Path, rows: pl.DataFrame) -> Path:
    table = rows.to_arrow()
    strings = {pa.large_string(): pa.string(), pa.string_view(): pa.string()}
    write_parquet(path, table.cast(pa.schema([(f.name, strings.get(f.type, f.type)) for f in table.schema])))
    return path


@given(st.lists(st.text(max_size=12), min_size=1, max_size=20), st.floats(0, 1))
def test_lengths_have_the_quantiles_of_all(tmp_path_factory, texts, share):
    path = written(tmp_path_factory.mktemp("lengths") / "part.parquet", pl.DataFrame({"text": texts}))
    counted, lengths = Lengths.of([path]), [len(text) for text in texts]
    assert counted.total == sum(lengths) and counted.documents.sum() == len(lengths)
    assert counted.quantile(share) == pytest.approx(np.quantile(lengths, share), rel=1e-12, abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99), st.booleans(), st.sampled_from("ab")), max_size=24))
def test_the_largest_cluster_is_that_of_all_rows(tmp_path_factory, rows):
    """Clusters continue over borders of row groups, and rows of other sources are in between."""
    unique = sorted({(cluster, number): (kept, source) for cluster, number, kept, source in rows}.items())
    table = pl.DataFrame(
        [(source, f"{number:02d}-{cluster}", str(cluster), kept) for (cluster, number), (kept, source) in unique],
        schema={"source": pl.String, "id": pl.String, "cluster_id": pl.String, "is_kept": pl.Boolean},
        orient="row",
    )
    clusters = Clusters.of(written(tmp_path_factory.mktemp("clusters") / "duplicates.parquet", table), "a", 2)
    mine = table.filter(source="a")
    sizes = mine.group_by("cluster_id").len().sort(["len", "cluster_id"], descending=[True, False])
    assert (clusters.documents, clusters.gone) == (mine.height, mine.filter(~pl.col("is_kept")).height)
    largest = mine.filter(cluster_id=sizes["cluster_id"][0]).sort("id") if mine.height else mine
    assert (clusters.largest, list(clusters.first)) == (largest.height, largest.select("id", "is_kept").head(2).rows())


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(["near", "fragment"]), st.sampled_from([0.5, 0.75, 1.0])), max_size=20
    )
)
def test_matches_are_counted_and_the_strongest_kept(tmp_path_factory, rows):
    table = pl.DataFrame(sorted((f"{i}", tier, score) for i, tier, score in rows), schema=["id", "tier", "score"], orient="row")
    table = table.cast({"id": pl.String, "tier": pl.String, "score": pl.Float64})
    matches = Matches.of(written(tmp_path_factory.mktemp("matches") / "matches.parquet", table), 4)
    assert (matches.documents, matches.by_tier) == (
        table["id"].n_unique(),
        dict(sorted(table.group_by("tier").len().iter_rows())),
    )
    strongest = table.sort(["score", "id"], descending=[True, False]).head(4)
    assert [*matches.strongest.iter_rows()] == strongest.rows() or not rows


def test_the_first_of_every_reason_are_kept(tmp_path):
    dropped = pl.DataFrame({"id": [f"{i:02d}" for i in range(12)], "reason": ["a", "b", "a", "c"] * 3})
    paths = [written(tmp_path / f"{i}.parquet", dropped[6 * i : 6 * i + 6]) for i in range(2)]
    first_rows = first_by_reason([("corpus", path) for path in paths], 2)
    assert first_rows.rows() == [
        ("corpus", i, r) for r, ids in (("a", "00 02"), ("b", "01 05"), ("c", "03 07")) for i in ids.split()
    ]
    assert first_by_reason([], 2).is_empty()


def test_texts_are_found_without_reading_what_cannot_hold_them(tmp_path, monkeypatch):
    rows = pl.DataFrame({"id": [f"{i:02d}" for i in range(18)], "text": [f"text {i}" for i in range(18)]})
    paths = [written(tmp_path / f"{i}.parquet", rows[9 * i : 9 * i + 9]) for i in range(2)]
    read, whole = [], parts.pq.ParquetFile.read_row_group

    def counted(self, *arguments, **options):
        read.append(arguments)
        return whole(self, *arguments, **options)

    monkeypatch.setattr(parts.pq.ParquetFile, "read_row_group", counted)
    assert texts_of(paths, ["04", "16", "04", "no such"]) == {"04": "text 4", "16": "text 16"}
    assert len(read) == 2
    assert texts_of(paths, []) == {} and len(read) == 2
