"""Exposure: the steps that saw a document are those whose batch holds its tokens."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from test_order import SEQ_LEN, Docs, derive_id, mixture_of

from lineage.order.batches import BatchPhase, BatchSchedule
from lineage.order.exposure import SCHEMA, exposures
from lineage.order.mixture import Phase, SimulatedEpoching
from lineage.order.order import DataOrder
from lineage.order.permutation import BlockShuffle, Shuffle

EVEN = (Phase(0, {"a": 1.0, "b": 1.0}),)


def order_of(root: Path, docs: list[Docs], phases: tuple[Phase, ...] = EVEN, **options) -> DataOrder:
    return DataOrder.open(mixture_of(root, docs, phases, **options), SEQ_LEN)


def ids_of(docs: list[Docs]) -> dict[str, list[str]]:
    return {d.component: [derive_id(d.component, i) for i in range(len(d.lengths))] for d in docs}


def scanned(order: DataOrder, sizes: list[int]) -> list[tuple[str, str, int, int, int, int]]:
    """Every exposure, by walking all batches forward; a sequence that a step reads twice exposes its documents twice."""
    rows = []
    for index, (step, row) in enumerate((step, row) for step, size in enumerate(sizes) for row in range(size)):
        component, sequence = order.sequence_at(index)
        low, high = sequence * SEQ_LEN, (sequence + 1) * SEQ_LEN
        cache = order.caches[order.names.index(component)]
        for document in cache.document_ids():
            start, stop = cache.document_span(document) or (0, 0)
            tokens = min(stop, high) - max(start, low)
            if tokens > 0:
                rows.append((component, document, step, row, sequence, tokens))
    return sorted(rows)


lengths = st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(lambda sizes: sum(sizes) >= SEQ_LEN).map(tuple)


@given(lengths, lengths, st.integers(1, 7), st.integers(1, 7), st.integers(0, 12))
def test_exposures_are_those_of_a_forward_scan(
    tmp_path_factory: pytest.TempPathFactory, a: tuple[int, ...], b: tuple[int, ...], size: int, later: int, num_steps: int
) -> None:
    docs = [Docs("a", a), Docs("b", b)]
    order = order_of(tmp_path_factory.mktemp("store"), docs)
    batches = BatchSchedule((BatchPhase(0, size), BatchPhase(4, later)))
    exposed = exposures(order, ids_of(docs), batches=batches, num_steps=num_steps)
    rows = scanned(order, [size if step < 4 else later for step in range(num_steps)])
    assert sorted(exposed.iter_rows()) == rows
    rest = BatchSchedule((BatchPhase(0, later),), before=batches.first(4))  # a resumed run has its own steps only
    continued = exposures(order, ids_of(docs), batches=rest, num_steps=max(0, num_steps - 4))
    assert sorted(continued.iter_rows()) == sorted((*row[:2], row[2] - 4, *row[3:]) for row in rows if row[2] >= 4)


@given(st.integers(1, 10), st.sampled_from(["splitmix", "feistel_levanter", "none", BlockShuffle(2, 2)]), st.integers(0, 12))
@settings(max_examples=examples(10))
def test_simulated_epochs_read_their_share_again_and_again_and_the_rest_never(
    tmp_path_factory: pytest.TempPathFactory, share: int, shuffle: Shuffle, num_steps: int
) -> None:
    """Against a forward scan; of 11 sequences `11 * share // 10` are read, as many times as an epoch of them fits."""
    docs = [Docs("a", (30, 7, 51)), Docs("b", (88,))]
    simulate = SimulatedEpoching(share, 10)
    order = order_of(tmp_path_factory.mktemp("store"), docs, shuffle=shuffle, simulate=simulate)
    exposed = exposures(order, ids_of(docs), batches=BatchSchedule.of(5), num_steps=num_steps)
    assert sorted(exposed.iter_rows()) == scanned(order, [5] * num_steps)
    _, sequences = order.locate(np.arange(4 * order.block_size))
    components, _ = order.locate(np.arange(4 * order.block_size))
    read, times = np.unique(sequences[components == 0], return_counts=True)
    assert len(read) == order.num_used(0) == 11 * share // 10
    assert times.max() - times.min() <= 1


def test_the_tokens_of_a_step_add_up_to_the_batch(tmp_path: Path) -> None:
    docs = [Docs("a", (20, 3, 33, 9, 15)), Docs("b", (41, 12))]
    exposed = exposures(order_of(tmp_path, docs), ids_of(docs), batches=BatchSchedule.of(4), num_steps=12)
    per_step = exposed.group_by("step").agg(pl.col("tokens").sum()).sort("step")
    assert per_step["step"].to_list() == list(range(12))
    assert set(per_step["tokens"]) == {4 * SEQ_LEN}


def test_the_batch_of_a_step_holds_the_tokens_of_the_document(tmp_path: Path) -> None:
    order = order_of(tmp_path, [Docs("a", (20, 30, 40))], (Phase(0, {"a": 1.0}),))
    document = derive_id("a", 1)
    start, stop = order.caches[0].document_span(document) or (0, 0)
    wanted = set(order.caches[0].read(start, stop).tolist())
    steps = exposures(order, {"a": [document]}, batches=BatchSchedule.of(3), num_steps=10)["step"].to_list()
    for step in range(10):
        assert bool(wanted & set(order.batch(step * 3, 3).ravel().tolist())) == (step in steps)
    assert len(set(steps)) > 0


def test_a_phase_without_a_component_exposes_none_of_it(tmp_path: Path) -> None:
    docs = [Docs("a", (90,)), Docs("b", (80,))]
    order = order_of(tmp_path, docs, (Phase(0, {"a": 1.0}), Phase(16, {"b": 1.0})))
    exposed = exposures(order, ids_of(docs), batches=BatchSchedule.of(4), num_steps=8)
    last = {row["component"]: (row["first"], row["last"]) for row in steps_of(exposed)}
    assert last == {"a": (0, 3), "b": (4, 7)}


def steps_of(exposed: pl.DataFrame) -> list[dict]:
    step = pl.col("step")
    return exposed.group_by("component").agg(step.min().alias("first"), step.max().alias("last")).to_dicts()


def test_a_tail_that_fills_no_sequence_is_never_seen(tmp_path: Path) -> None:
    docs = [Docs("a", (16, 0, 5))]  # two shards: tokens of documents 0 and 2, then of the empty 1
    order = order_of(tmp_path, docs, (Phase(0, {"a": 1.0}),))
    exposed = exposures(order, ids_of(docs), batches=BatchSchedule.of(2), num_steps=20)
    assert set(exposed["id"]) == {derive_id("a", 0)}


def test_no_steps_and_unknown_documents_give_no_rows_of_the_schema(tmp_path: Path) -> None:
    order = order_of(tmp_path, [Docs("a", (50,)), Docs("b", (50,))])
    for exposed in (
        exposures(order, {"a": [derive_id("a", 0)]}, batches=BatchSchedule.of(4), num_steps=0),
        exposures(order, {"a": ["f" * 32]}, batches=BatchSchedule.of(4), num_steps=5),
        exposures(order, {}, batches=BatchSchedule.of(4), num_steps=5),
    ):
        assert exposed.height == 0
        assert exposed.schema == pl.Schema(SCHEMA)


def test_rows_come_sorted(tmp_path: Path) -> None:
    docs = [Docs("b", (41, 12)), Docs("a", (20, 3, 33))]
    exposed = exposures(order_of(tmp_path, docs), ids_of(docs), batches=BatchSchedule.of(4), num_steps=12)
    assert exposed.equals(exposed.sort("component", "id", "step", "row"))
    assert np.all(exposed["tokens"].to_numpy() > 0)
