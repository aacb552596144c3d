"""When a checkpoint saw a document: exactly the batch rows that hold it."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from test_audit import BATCH_SIZE, BOOKS, ITEMS, SEQ_LEN, WEB, Doc, Source, audit_node, run_audit, with_leak

from evals.audit.training_matches import READS_SCHEMA, document_reads, item_matches
from lineage.order.order import DataOrder


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 12), st.integers(0, 12), st.integers(0, 99))
@settings(max_examples=examples(8))
def test_reads_are_the_rows_that_hold_the_document(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], step: int, before: int, seed: int
) -> None:
    docs = tuple(Doc(100 + i, SEQ_LEN + n) for i, n in enumerate(lengths))
    node = audit_node(ITEMS, (Source("s", docs, component="s", statuses={}), WEB), step=step, seed=seed, before=before)
    checkpoint = run_audit(tmp_path_factory.mktemp("seen"), node).input("checkpoint")
    runs = [(checkpoint.input("start"), before)] if before else []
    wanted = set()
    for leg, (ended, steps) in enumerate([*runs, (checkpoint, step)]):
        order = DataOrder.open(ended.input("mixture"), SEQ_LEN)
        for at in range(steps):
            for row, tokens in enumerate(order.batch(at * BATCH_SIZE, BATCH_SIZE)):
                wanted |= {(leg, ended.name, doc.id, at, row, n) for doc in docs if (n := int(np.sum(tokens == doc.number)))}
    reads = document_reads(checkpoint, [doc.id for doc in docs])
    rows = reads.select("leg", "checkpoint", "id", "step", "row", "tokens").iter_rows()
    assert set(rows) == wanted
    assert reads.schema == pl.Schema(READS_SCHEMA)


def test_an_item_is_reported_with_its_documents_and_what_they_are(tmp_path: Path) -> None:
    checkpoint = run_audit(tmp_path, audit_node(ITEMS, (BOOKS, with_leak()), step=40)).input("checkpoint")
    leaked = item_matches(checkpoint, "law/0")
    assert (leaked.documents["id"].to_list(), leaked.documents["tier"].to_list()) == ([WEB.docs[1].id], ["near"])
    assert leaked.is_matched and "matched" in leaked.statuses
    assert document_reads(checkpoint, leaked.documents["id"].to_list()).height > 0
    fragment = item_matches(checkpoint, "suite/math/1")
    assert [tier for tier in fragment.documents["tier"] if tier != "fragment"] == [] and fragment.documents.height == 2
    assert not fragment.is_matched
    short = item_matches(checkpoint, "law/1")
    assert short.documents.is_empty() and set(short.statuses) == {"unknown"}


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("law", "no item 'law' among those .*; give task/item_id or suite/task/item_id"),
        ("law/9", r"no item 'law/9' among those that marks\[\w+\] was scanned for; .* its tasks are law, math"),
        ("other/law/0", "no item 'other/law/0'"),
    ],
)
def test_an_item_that_nobody_looked_for_is_an_error(item: str, message: str, tmp_path: Path) -> None:
    checkpoint = run_audit(tmp_path, audit_node(ITEMS, (BOOKS, WEB), step=4)).input("checkpoint")
    with pytest.raises(ValueError, match=message):
        item_matches(checkpoint, item)
