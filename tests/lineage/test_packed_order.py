"""Packed mixtures in the data order: whole documents in rows, segments, loss weights, exposure."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from test_order import SEQ_LEN, Docs, derive_id, mixture_of

from lineage.artifact.store import Artifact
from lineage.order.batches import BatchSchedule
from lineage.order.exposure import exposures
from lineage.order.mixture import Phase, SimulatedEpoching
from lineage.order.order import DataOrder
from lineage.order.packing import Packing
from lineage.order.permutation import BlockShuffle

EVEN = (Phase(0, {"a": 1.0, "b": 1.0}),)
PACKING = Packing(SEQ_LEN, window=3)
lengths = st.lists(st.integers(0, 20), min_size=1, max_size=8).filter(any).map(tuple)


def packed(root: Path, docs: list[Docs], **options) -> Artifact:
    return mixture_of(root, docs, EVEN, **{"packing": PACKING, **options})


def scanned(order: DataOrder, batch_size: int, num_steps: int) -> list[tuple]:
    """Exposures by looking for every document's tokens in every row. `Docs` has distinct tokens."""
    where = {}
    for name, cache in zip(order.names, order.caches, strict=True):
        for document in cache.document_ids():
            for token in cache.read(*(cache.document_span(document) or (0, 0))).tolist():
                where[name, token] = document
    rows = []
    for step in range(num_steps):
        batch, _, segments = order.rows(step * batch_size, batch_size, within_documents=True)
        for row in range(batch_size):
            component, sequence = order.sequence_at(step * batch_size + row)
            held = [where[component, token] for token in batch[row][segments[row] >= 0].tolist()]
            rows += [(component, document, step, row, sequence, held.count(document)) for document in sorted(set(held))]
    return sorted(rows)


@given(lengths, lengths, st.integers(1, 5), st.integers(0, 6), st.sampled_from(["splitmix", "linear", BlockShuffle(2, 2)]))
@settings(max_examples=examples(20))
def test_exposures_of_a_packed_run_are_what_lies_in_its_batches(
    tmp_path_factory: pytest.TempPathFactory, a: tuple[int, ...], b: tuple[int, ...], size: int, num_steps: int, shuffle
) -> None:
    docs = [Docs("a", a), Docs("b", b)]
    order = DataOrder.open(packed(tmp_path_factory.mktemp("store"), docs, shuffle=shuffle), SEQ_LEN)
    ids = {d.component: [derive_id(d.component, i) for i in range(len(d.lengths))] for d in docs}
    exposed = exposures(order, ids, batches=BatchSchedule.of(size), num_steps=num_steps)
    assert sorted(exposed.iter_rows()) == scanned(order, size, num_steps)


def test_simulated_epochs_of_a_packed_run_too(tmp_path: Path) -> None:
    docs = [Docs("a", (5, 3, 8, 2, 7, 6, 9, 4)), Docs("b", (8,) * 9)]
    order = DataOrder.open(packed(tmp_path, docs, simulate=SimulatedEpoching(1, 2)), SEQ_LEN)
    ids = {d.component: [derive_id(d.component, i) for i in range(len(d.lengths))] for d in docs}
    exposed = exposures(order, ids, batches=BatchSchedule.of(4), num_steps=12)
    assert sorted(exposed.iter_rows()) == scanned(order, 4, 12)
    assert order.num_used(1) == 4


def test_rows_are_whole_documents_one_segment_each(tmp_path: Path) -> None:
    docs = [Docs("a", (5, 3, 8, 2, 6)), Docs("b", (4, 4, 1))]
    order = DataOrder.open(packed(tmp_path, docs), SEQ_LEN)
    tokens, _, segments = order.rows(0, 16, within_documents=True)
    weights = order.rows(0, 16).weights
    for row in range(16):
        component, _ = order.sequence_at(row)
        cache = order.caches[order.names.index(component)]
        whole = [cache.read(*(cache.document_span(document) or (0, 0))).tolist() for document in cache.document_ids()]
        segments_of_row = [tokens[row][segments[row] == number].tolist() for number in range(segments[row].max() + 1)]
        assert all(document in whole for document in segments_of_row)
        assert sum(map(len, segments_of_row)) == int((segments[row] >= 0).sum())
        assert not np.any(np.diff(segments[row][segments[row] >= 0]) < 0)
    assert np.array_equal(weights, (segments >= 0).astype(np.float32))
    assert not tokens[segments < 0].any()
    assert order.has_weights


@given(lengths.filter(lambda sizes: sum(sizes) >= SEQ_LEN), st.booleans())
@settings(max_examples=examples(20))
def test_within_documents_the_first_token_of_each_counts_for_nothing(
    tmp_path_factory: pytest.TempPathFactory, a: tuple[int, ...], is_packed: bool
) -> None:
    """Cut rows too: segments there are the documents by their ends, wherever a row begins."""
    options = {"packing": PACKING} if is_packed else {}
    order = DataOrder.open(
        mixture_of(tmp_path_factory.mktemp("store"), [Docs("a", a)], (Phase(0, {"a": 1.0}),), **options), SEQ_LEN
    )
    _, weights, segments = order.rows(0, 16, within_documents=True)
    pieces = order.pieces(0, 16)
    for row in range(16):
        owner = []
        for start, length in zip(
            pieces.starts[pieces.rows == row].tolist(), pieces.lengths[pieces.rows == row].tolist(), strict=True
        ):
            for document, low, high in order.caches[0].documents_between(start, start + length):
                owner += [document] * (min(high, start + length) - max(low, start))
        owner += [None] * (SEQ_LEN - len(owner))
        same = [one == other for one, other in pairwise(owner)]
        assert (segments[row][1:] == segments[row][:-1]).tolist() == same
        counts = [token is not None and alike for token, alike in zip(owner[1:], same, strict=True)]
        assert weights[row][1:].tolist() == [float(count) for count in counts]


def test_a_mixture_is_packed_for_one_length(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="packed into sequences of 8 tokens; a run of 16 needs another mixture"):
        DataOrder.open(packed(tmp_path, [Docs("a", (30,)), Docs("b", (30,))]), 16)


def test_a_frozen_mixture_says_what_packing_made_of_its_documents(tmp_path: Path) -> None:
    mixture = packed(tmp_path, [Docs("a", (5, 3, 30)), Docs("b", (8,))], packing=Packing(SEQ_LEN, "drop"))
    facts = mixture.manifest.extra["mixture"]["packing"]
    assert facts["components"]["a"]["documents_dropped"] == 1
    assert facts["components"]["a"]["tokens_dropped"] == 30
    assert mixture.manifest.statistics["tokens_in"] == 46
    assert mixture.manifest.statistics["tokens_out"] == 16
