"""Batch rows equal reading token by token: tokens, loss weights, segments; cut and packed mixtures."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_order import EVERY_SHUFFLE, derive_id

from lineage.artifact.store import Store
from lineage.build.nodes import Node, ancestors_first
from lineage.build.plan import build
from lineage.order.apportion import APPORTIONINGS
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase, SimulatedEpoching
from lineage.order.order import DataOrder
from lineage.order.packing import Packing
from lineage.order.token_shards import tokens_extra, write_flat_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer

SEQ_LEN, BLOCK = 6, 16
type Documents = tuple[tuple[tuple[int, ...], ...], ...]
"""Of every shard, as their tokens."""


@dataclass(frozen=True)
class Component:
    """A component whose tokens weigh what they are modulo 3, if `weighed` says as what."""

    name: str
    shards: Documents
    weighed: str | None


def write_component(out: Writer, config: Component) -> None:
    shards, before = [], 0
    for number, documents in enumerate(config.shards):
        ids = [derive_id(config.name, before + i) for i in range(len(documents))]
        tokens = np.array([token for document in documents for token in document], np.int64)
        ends = np.cumsum([len(document) for document in documents], dtype=np.int64)
        weights = None if config.weighed is None else (tokens % 3).astype(config.weighed)
        shards.append(write_flat_shard(out.folder, f"s{number}", ids, tokens, ends, "uint16", weights))
        before += len(documents)
    out.facts["tokens"] = tokens_extra(config.name, "uint16", 100, "tok", None, None, shards, config.weighed)


COMPONENT = Stage("tests.rows_component", "1", write_component)
documents = st.lists(st.integers(0, 99), max_size=15).map(tuple)
shards = st.lists(st.lists(documents, max_size=4).map(tuple), min_size=1, max_size=3).map(tuple)
components = st.builds(Component, st.just(""), shards, st.sampled_from([None, "uint8", "float32"]))
has_a_sequence = components.filter(lambda one: sum(len(tokens) for shard in one.shards for tokens in shard) >= SEQ_LEN)


def order_of(root: Path, parts: list[Component], weights: dict[str, float], **options) -> DataOrder:
    caches = tuple(Node(("cache",), part.name, COMPONENT, part) for part in parts)
    config = MixtureConfig("m", (Phase(0, weights),), seed=5, block_size=BLOCK, **options)
    node = Node(("mixture",), None, MIXTURE, config, {"caches": caches})
    built = [build(Store(str(root)), each).artifact for each in ancestors_first([node])]
    return DataOrder.open(built[-1], SEQ_LEN)


def slow_row(order: DataOrder, index: int) -> tuple[list[int], list[float], list[int]]:
    """(tokens, weights, segment ids) of one row, within documents: a token at a time."""
    name, sequence = order.sequence_at(index)
    number = order.names.index(name)
    cache, (_, starts, lengths) = order.caches[number], order.sequences[number].pieces(np.array([sequence]))
    positions = [start + i for start, length in zip(starts.tolist(), lengths.tolist(), strict=True) for i in range(length)]
    owners = [cache.documents_between(position, position + 1)[0] for position in positions]
    tokens, weights, segments = [0] * SEQ_LEN, [0.0] * SEQ_LEN, [-1] * SEQ_LEN
    for place, (position, owner) in enumerate(zip(positions, owners, strict=True)):
        is_first = place == 0 or owner != owners[place - 1]
        tokens[place] = int(cache.read(position, position + 1)[0])
        weights[place] = 0.0 if is_first else float(cache.read_weights(position, position + 1)[0])
        segments[place] = segments[place - 1] + 1 if is_first and place else 0 if is_first else segments[place - 1]
    return tokens, weights, segments


@given(
    has_a_sequence,
    has_a_sequence,
    components,
    st.sampled_from([None, Packing(SEQ_LEN), Packing(SEQ_LEN, "truncate", max_documents=2, window=3)]),
    st.sampled_from(EVERY_SHUFFLE),
    st.sampled_from(APPORTIONINGS),
    st.integers(0, 3 * BLOCK),
    st.integers(0, 2 * BLOCK),
)
def test_rows_are_those_of_reading_a_token_at_a_time(
    tmp_path_factory: pytest.TempPathFactory, a, b, unused, packing, shuffle, apportioning, start: int, count: int
) -> None:
    """A component of weight zero may have no sequence at all; epochs and blocks are crossed."""
    parts = [Component(name, part.shards, part.weighed) for name, part in (("a", a), ("b", b), ("c", unused))]
    weights = {"a": 1.0, "b": 2.0, "c": 0.0}
    options = {"packing": packing, "shuffle": shuffle, "apportioning": apportioning}
    order = order_of(tmp_path_factory.mktemp("store"), parts, weights, **options)
    batch = order.rows(start, count, within_documents=True)
    slow = [slow_row(order, index) for index in range(start, start + count)]
    assert batch.weights is not None and batch.segment_ids is not None
    assert [array.dtype.name for array in batch] == ["int32", "float32", "int32"]
    assert list(zip(*(array.tolist() for array in batch), strict=True)) == slow
    across = order.rows(start, count)
    assert np.array_equal(across.tokens, batch.tokens) and across.segment_ids is None
    assert (across.weights is not None) == order.has_weights
    if across.weights is not None:
        counted = np.diff(batch.segment_ids, axis=1, prepend=-2) == 0
        assert np.array_equal(across.weights[counted], batch.weights[counted])
        assert not across.weights[batch.segment_ids < 0].any()


def test_simulated_epochs_use_no_component_that_is_not_read(tmp_path: Path) -> None:
    """The third component has less than one sequence, so its sequences have no permutation."""
    parts = [Component(name, (((1,) * size,),), None) for name, size in (("a", 60), ("b", 30), ("c", 2))]
    weights = {"a": 1.0, "b": 1.0, "c": 0.0}
    order = order_of(tmp_path, parts, weights, simulate=SimulatedEpoching(1, 2))
    names, sequences = zip(*(order.sequence_at(index) for index in range(2 * BLOCK)), strict=True)
    assert set(names) == {"a", "b"}
    assert len({s for name, s in zip(names, sequences, strict=True) if name == "a"}) == order.num_used(0) == 5
