"""Clusters looked up by document equal clusters read from the whole table."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datakit.dedup import cluster_lookup
from datakit.dedup.cluster_lookup import sort_clusters
from datakit.documents import parts
from datakit.documents.parts import write_parquet
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.writing.write import writing

SPEC = ArtifactSpec(key=("sorted",), partition=None, stage="test.sorted", stage_version="1", config={}, inputs=())
SCHEMA = pa.schema([("source", pa.string()), ("id", pa.string()), ("cluster_id", pa.string()), ("is_kept", pa.bool_())])
IDS = [f"{number * 9:02x}" + "0" * 28 + f"{number:02d}" for number in range(28)] + ["f" * 32, "f" * 15 + "0" * 17]
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(IDS)), unique=True, max_size=50)


@pytest.fixture(scope="module", autouse=True)
def small_row_groups():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "ROW_GROUP_ROWS", 3)
        patch.setattr("lineage.tables.shuffle.RANGE_BYTES", 400)
        yield


def cluster_of(source: str, document: str) -> str:
    return f"{'abc'.index(source)}{document[1:]}"


def table_of(rows: list[tuple[str, str]]) -> pa.Table:
    """As `duplicates.parquet`, whose rows are sorted by something else than the id."""
    columns = {"source": "s", "id": "i", "cluster_id": "c", "is_kept": True}
    records = [
        dict(zip(columns, (source, i, cluster_of(source, i), int(i[0], 16) % 2 == 0), strict=True)) for source, i in rows
    ]
    return pa.Table.from_pylist(records, schema=SCHEMA)


@given(ROWS, st.sets(st.sampled_from(["a", "b"]), min_size=1), st.sampled_from(IDS), st.sampled_from(IDS))
def test_rows_of_a_source_between_two_ids(tmp_path_factory, rows, sources, one, other):
    folder, first, last = tmp_path_factory.mktemp("clusters"), *sorted((one, other))
    write_parquet(folder / "duplicates.parquet", table_of(rows))
    with writing(Store(str(folder / "store")), SPEC) as out:
        clusters = sort_clusters(out, folder / "duplicates.parquet", sorted(sources), len(rows))
        assert clusters.num_documents == sum(source in sources for source, _ in rows)
        for source in sources:
            between = clusters.between(source, first, last)
            own = [i for name, i in rows if name == source and first <= i <= last]
            wanted = [(i, cluster_of(source, i), int(i[0], 16) % 2 == 0) for i in own]
            assert between.rows() == sorted(wanted)
            assert clusters.between(source, "", "").is_empty()


def test_a_part_opens_the_files_of_its_ids_alone(tmp_path, monkeypatch):
    write_parquet(tmp_path / "duplicates.parquet", table_of([("a", i) for i in IDS[::-1]]))
    with writing(Store(str(tmp_path / "store")), SPEC) as out:
        clusters = sort_clusters(out, tmp_path / "duplicates.parquet", ["a"], len(IDS))
        opened, load = [], cluster_lookup.load
        monkeypatch.setattr(cluster_lookup, "load", lambda path: (opened.append(path), load(path))[1])
        assert clusters.between("a", IDS[4], IDS[5]).height == 2
        assert len(clusters.paths) == 4 and len(opened) == 1
