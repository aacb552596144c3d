"""Documents on storage: one schema, sorted unique ids, bounded reads, reproducible bytes."""

import itertools
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from datakit.documents.parts import (
    ROW_GROUP_ROWS,
    document_paths,
    iterate_documents,
    iterate_part,
    part_name,
    read_documents,
    write_parquet,
    write_sorted_parts,
    writing_part,
)
from datakit.documents.schemas import DOCUMENT_SCHEMA, columns
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.storage.digests import text_digest
from lineage.writing.write import writing

TEXTS = st.lists(st.text(st.characters(codec="utf-8"), max_size=40), min_size=1, max_size=30, unique=True)


def frame(texts: list[str]) -> pl.DataFrame:
    rows = [(text_digest(text), text, "s", f'{{"source_id": "{i}"}}') for i, text in enumerate(texts)]
    return pl.DataFrame(rows, schema=DOCUMENT_SCHEMA.names, orient="row")


def stored(root: Path, documents: pl.DataFrame, target_bytes: int = 1 << 20) -> Artifact:
    with writing(Store(str(root)), ArtifactSpec(("docs",), None, "tests.docs", "1", {})) as out:
        write_sorted_parts(out.folder, "documents", documents, target_bytes)
    return out.artifact


def test_part_names_sort_as_their_numbers() -> None:
    assert part_name(7, 106) == "part-00007-of-00106.parquet"


@given(TEXTS, st.integers(1, 60))
def test_parts_hold_every_document_once_in_id_order(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int
) -> None:
    artifact = stored(tmp_path_factory.mktemp("docs"), frame(texts), target_bytes=size)
    read = read_documents(artifact)
    assert read["id"].to_list() == sorted(text_digest(text) for text in texts)
    assert set(read["text"]) == set(texts)
    for path in document_paths(artifact):
        assert pq.read_schema(path).equals(DOCUMENT_SCHEMA)


def test_the_order_of_rows_changes_no_byte(tmp_path: Path) -> None:
    documents = frame([f"text {i}" for i in range(500)])
    assert stored(tmp_path / "a", documents).data_version == stored(tmp_path / "b", documents.reverse()).data_version


def test_a_repeated_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="documents: 1 ids occur twice"):
        write_sorted_parts(tmp_path, "documents", frame(["a", "b", "a"]))


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="metadata"):
        write_sorted_parts(tmp_path, "documents", frame(["a"]).drop("metadata"))


def test_reading_is_bounded_by_row_groups_and_keeps_the_order(tmp_path: Path) -> None:
    artifact = stored(tmp_path, frame([f"text {i}" for i in range(ROW_GROUP_ROWS * 2 + 5)]))
    (path,) = document_paths(artifact)
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [ROW_GROUP_ROWS, ROW_GROUP_ROWS, 5]
    batches = list(iterate_documents(artifact, columns=["id"]))
    assert [batch.height for batch in batches] == [ROW_GROUP_ROWS, ROW_GROUP_ROWS, 5]
    assert pl.concat(batches).equals(read_documents(artifact, columns=["id"]))


def test_row_groups_end_where_texts_say_whatever_the_batches(tmp_path: Path) -> None:
    """Documents of 6 MiB stand by three; the same rows in other batches are the same bytes."""
    rows = pa.Table.from_pylist(frame([f"{i}" * (6 << 20) for i in range(8)]).to_dicts(), schema=DOCUMENT_SCHEMA)
    for name, cuts in (("whole", [0, 8]), ("pieces", [0, 1, 4, 5, 8])):
        with writing_part(tmp_path / name) as part:
            for start, stop in itertools.pairwise(cuts):
                part.write(rows.slice(start, stop - start))
    metadata = pq.read_metadata(tmp_path / "whole")
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [3, 3, 2]
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "pieces").read_bytes()


@settings(max_examples=examples(20))
@given(st.integers(0, 5000), st.integers(0, 5000))
def test_a_slice_of_a_part_is_its_rows(tmp_path_factory: pytest.TempPathFactory, start: int, stop: int) -> None:
    path = tmp_path_factory.mktemp("part") / "f.parquet"
    write_parquet(path, pa.table({"id": [str(i) for i in range(4500)]}))
    read = [value for table in iterate_part(path, ["id"], start, stop) for value in table["id"].to_pylist()]
    assert read == [str(i) for i in range(4500)][start:stop]


@pytest.mark.parametrize("change", [lambda t: t.append_column("url", [["u"]]), lambda t: t.drop_columns("metadata")])
def test_a_batch_that_would_change_the_schema_is_refused_with_both(tmp_path: Path, change: Callable) -> None:
    good = pa.Table.from_pylist(frame(["a"]).to_dicts(), schema=DOCUMENT_SCHEMA)
    wanted = pytest.raises(ValueError, match=r"frozen: id: string, text: large_string, .*\n  batch: ")
    with wanted as refused, writing_part(tmp_path / "f.parquet") as part:
        part.write(good)
        part.write(change(good))
    assert columns(change(good).schema) in str(refused.value)


def test_text_is_zstd_without_a_dictionary(tmp_path: Path) -> None:
    write_parquet(tmp_path / "f.parquet", pa.Table.from_pylist(frame(["a", "b"]).to_dicts(), schema=DOCUMENT_SCHEMA))
    group = pq.read_metadata(tmp_path / "f.parquet").row_group(0)
    by_name = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert {column.compression for column in by_name.values()} == {"ZSTD"}
    assert not by_name["text"].has_dictionary_page and by_name["source"].has_dictionary_page


def test_a_split_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"docs has no documents under heldout/"):
        read_documents(stored(tmp_path, frame(["a"])), split="heldout")
