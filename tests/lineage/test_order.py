"""Permutations, mixing, the data order and its inverse: exact, reproducible, invertible."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build_all
from lineage.order.apportion import APPORTIONINGS, Apportioning, apportion
from lineage.order.batches import BatchPhase, BatchSchedule
from lineage.order.exposure import exposures
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase, StepPhase, phases_by_step
from lineage.order.order import DataOrder
from lineage.order.permutation import SHUFFLES, BlockShuffle, Shuffle, derive_key
from lineage.order.token_cache import TokenCache
from lineage.order.token_shards import tokens_extra, write_token_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer

SEQ_LEN = 8
EVERY_SHUFFLE = (*SHUFFLES, BlockShuffle(2, 3))


@dataclass(frozen=True)
class Docs:
    """A fabricated component: documents of the given lengths, every token distinct while uint16 lasts."""

    component: str
    lengths: tuple[int, ...]
    tokenizer: str = "tok"


def write_cache(out: Writer, config: Docs) -> None:
    start, shards = 0, []
    for shard in range(2):  # two shards, so that spans cross a border
        documents = []
        for i, length in list(enumerate(config.lengths))[shard::2]:
            documents.append((derive_id(config.component, i), np.arange(start, start + length) % 60_000))
            start += length
        shards.append(write_token_shard(out.folder, f"s{shard}", documents, "uint16"))
    out.facts["tokens"] = tokens_extra(config.component, "uint16", 60_000, config.tokenizer, None, None, shards)


def derive_id(component: str, index: int) -> str:
    return f"{derive_key(component, index):016x}{index:016x}"


CACHE = Stage("tests.cache", "1", write_cache)


def mixture_of(root: Path, docs: list[Docs], phases: tuple[Phase, ...], **options) -> Artifact:
    store = Store(str(root))
    caches = tuple(Node(("cache",), d.component, CACHE, d) for d in docs)
    config = MixtureConfig("m", phases, seed=3, **{"block_size": 16, **options})
    node = Node(("mixture",), None, MIXTURE, config, {"caches": caches})
    return build_all(store, [node])[0]


def test_long_run_weights_are_exact_and_tiny_ones_are_sampled() -> None:
    weights, debt, total = np.array([0.5, 0.4999, 0.0001]), np.zeros(3), np.zeros(3, np.int64)
    for _ in range(500):
        counts, debt = apportion(weights, 2048, debt)
        assert counts.sum() == 2048
        total += counts
    assert np.abs(total - weights * 2048 * 500).max() <= 1


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any), st.integers(1, 40))
def test_apportioning_never_strays_by_more_than_one(raw: list[int], block: int) -> None:
    weights = np.array(raw) / sum(raw)
    debt, total = np.zeros(len(raw)), np.zeros(len(raw), np.int64)
    for index in range(1, 60):
        counts, debt = apportion(weights, block, debt)
        total += counts
        assert counts.min() >= 0 and counts.sum() == block
        assert np.abs(total - weights * block * index).max() < 2


def test_every_sequence_comes_once_an_epoch(tmp_path: Path) -> None:
    """After any whole block no sequence of a component is an epoch ahead of another (inside a block turns are shuffled)."""
    mixture = mixture_of(tmp_path, [Docs("a", (40, 41, 42)), Docs("b", (100,))], (Phase(0, {"a": 1.0, "b": 1.0}),))
    order = DataOrder.open(mixture, SEQ_LEN)
    counts = {name: np.zeros(order.num_sequences(i), np.int64) for i, name in enumerate(order.names)}
    orders: dict[str, list[int]] = {"a": [], "b": []}
    for index in range(16 * 20):
        component, sequence = order.sequence_at(index)
        counts[component][sequence] += 1
        orders[component].append(sequence)
        if index % 16 == 15:
            assert all(count.max() - count.min() <= 1 for count in counts.values())
    assert orders["a"][:15] != orders["a"][15:30], "another epoch has another order"


def test_a_batch_is_the_same_however_it_is_cut(tmp_path: Path) -> None:
    mixture = mixture_of(tmp_path, [Docs("a", (300, 77, 51)), Docs("b", (90,))], (Phase(0, {"a": 3.0, "b": 1.0}),))
    whole = DataOrder.open(mixture, SEQ_LEN).batch(0, 60)
    fresh = DataOrder.open(mixture, SEQ_LEN)
    assert np.array_equal(fresh.batch(37, 23), whole[37:])
    assert np.array_equal(np.concatenate([fresh.batch(i, 1) for i in range(60)]), whole)


def test_the_order_of_a_frozen_mixture_never_changes(tmp_path: Path) -> None:
    """A run resumes and is audited by this order, years later too. A change of the order needs another name."""
    phases = (Phase(0, {"a": 3.0, "b": 1.0}), Phase(32, {"a": 1.0, "b": 2.0}))
    order = DataOrder.open(mixture_of(tmp_path, [Docs("a", (300,)), Docs("b", (100,))], phases), SEQ_LEN)
    components, sequences = order.locate(np.arange(64))
    assert "".join(order.names[c] for c in components) == "abaaaaaaaaaababbaaaaaabaabababaabaaabbbabbabbbbbbabaabbabbabbabb"
    assert sequences[:24].tolist() == [3, 6, 22, 15, 1, 36, 27, 34, 19, 17, 5, 14, 10, 6, 7, 1, 18, 32, 28, 0, 20, 21, 5, 10]


def test_nor_does_that_of_one_whose_shares_are_split(tmp_path: Path) -> None:
    phases = (Phase(0, {"a": 3.0, "b": 1.0, "c": 0.3}), Phase(32, {"a": 1.0, "b": 2.0, "c": 0.3}))
    docs = [Docs("a", (300,)), Docs("b", (100,)), Docs("c", (40,))]
    order = DataOrder.open(mixture_of(tmp_path, docs, phases, apportioning="split"), SEQ_LEN)
    components, sequences = (array.tolist() for array in order.locate(np.arange(64)))
    assert "".join("abc"[c] for c in components) == "abaaaaaaaabacabbaabaaabaababacaabaaabbbabbabcbbbbacbabbabbabcabb"
    assert sequences[:24] == [3, 10, 22, 15, 1, 36, 27, 34, 19, 17, 1, 14, 2, 6, 6, 7, 20, 31, 4, 21, 33, 32, 3, 5]


def test_a_late_block_is_found_without_those_before_it(tmp_path: Path) -> None:
    """The 2**40th sequence of a run: a walk there would take weeks."""
    mixture = mixture_of(
        tmp_path, [Docs("a", (300,)), Docs("b", (100,))], (Phase(0, {"a": 3.0, "b": 1.0}),), apportioning="split"
    )
    order, far = DataOrder.open(mixture, SEQ_LEN), 1 << 40
    components, _ = order.locate(np.arange(far, far + 32))
    assert np.bincount(components).tolist() == [24, 8]


def test_a_mixture_names_how_its_shares_are_found(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="apportioning is 'sideways'; allowed: carried, split"):
        mixture_of(tmp_path, [Docs("a", (300,))], (Phase(0, {"a": 1.0}),), apportioning="sideways")


@pytest.mark.parametrize("indices", [[0], [63, 0, 17], list(range(90, 40, -1))])
def test_indices_may_come_in_any_order(tmp_path: Path, indices: list[int]) -> None:
    order = DataOrder.open(
        mixture_of(tmp_path, [Docs("a", (300,)), Docs("b", (100,))], (Phase(0, {"a": 3.0, "b": 1.0}),)), SEQ_LEN
    )
    components, sequences = order.locate(np.array(indices))
    located = [(order.names[c], s) for c, s in zip(components.tolist(), sequences.tolist(), strict=True)]
    assert located == [order.sequence_at(index) for index in indices]


def test_an_index_below_zero_is_refused(tmp_path: Path) -> None:
    order = DataOrder.open(mixture_of(tmp_path, [Docs("a", (300,))], (Phase(0, {"a": 1.0}),)), SEQ_LEN)
    with pytest.raises(ValueError, match="index -1 is negative"):
        order.batch(-1, 3)


@pytest.mark.parametrize("apportioning", APPORTIONINGS)
@pytest.mark.parametrize("shuffle", EVERY_SHUFFLE)
def test_the_inverse_is_that_of_a_forward_scan(tmp_path: Path, shuffle: Shuffle, apportioning: Apportioning) -> None:
    phases = (Phase(0, {"a": 3.0, "b": 1.0}), Phase(32, {"a": 1.0, "b": 0.0, "c": 2.0}))
    docs = [Docs("a", (60, 61)), Docs("b", (50,)), Docs("c", (33, 34))]
    order = DataOrder.open(mixture_of(tmp_path, docs, phases, shuffle=shuffle, apportioning=apportioning), SEQ_LEN)
    below = 150
    scanned: dict[tuple[str, int], list[int]] = {}
    for index in range(below):
        scanned.setdefault(order.sequence_at(index), []).append(index)
    for component, which in (("a", 0), ("b", 1), ("c", 2)):
        for sequence in range(order.num_sequences(which)):
            assert order.inverse(component, sequence, below) == scanned.get((component, sequence), [])
    assert all(component != "b" for component, _ in (order.sequence_at(i) for i in range(32, below)))


@given(
    st.lists(st.integers(0, 6), max_size=12),
    st.integers(0, 300),
    st.sampled_from(EVERY_SHUFFLE),
    st.sampled_from(APPORTIONINGS),
)
def test_reads_of_many_sequences_are_those_of_a_forward_scan(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[int], below: int, shuffle: Shuffle, apportioning: Apportioning
) -> None:
    """A sequence may be asked for twice; blocks, epochs and phases are crossed."""
    phases = (Phase(0, {"a": 1.0, "b": 1.0}), Phase(64, {"a": 1.0, "b": 0.1}), Phase(160, {"a": 1.0, "b": 3.0}))
    docs = [Docs("a", (60, 61)), Docs("b", (57,))]
    order = DataOrder.open(
        mixture_of(tmp_path_factory.mktemp("store"), docs, phases, shuffle=shuffle, apportioning=apportioning), SEQ_LEN
    )
    scanned: dict[int, list[int]] = {}
    for index in range(below):
        component, sequence = order.sequence_at(index)
        if component == "b":
            scanned.setdefault(sequence, []).append(index)
    which, indices = order.reads("b", np.array(wanted, np.int64), below)
    assert list(zip(which.tolist(), indices.tolist(), strict=True)) == [
        (i, index) for i, sequence in enumerate(wanted) for index in scanned.get(sequence, [])
    ]


def test_exposures_are_those_of_a_brute_force_scan(tmp_path: Path) -> None:
    docs = [Docs("a", (20, 3, 33, 9, 15)), Docs("b", (41, 12))]
    order = DataOrder.open(mixture_of(tmp_path, docs, (Phase(0, {"a": 1.0, "b": 2.0}),)), SEQ_LEN)
    batch_size, num_steps = 4, 12
    ids = {d.component: [derive_id(d.component, i) for i in range(len(d.lengths))] for d in docs}
    wanted = set()
    for index in range(batch_size * num_steps):
        component, sequence = order.sequence_at(index)
        cache = order.caches[order.names.index(component)]
        for document, start, stop in cache.documents_between(sequence * SEQ_LEN, (sequence + 1) * SEQ_LEN):
            tokens = min(stop, (sequence + 1) * SEQ_LEN) - max(start, sequence * SEQ_LEN)
            wanted.add((component, document, *divmod(index, batch_size), sequence, tokens))
    assert set(exposures(order, ids, batches=BatchSchedule.of(batch_size), num_steps=num_steps).iter_rows()) == wanted


def test_a_cache_gives_its_documents_back(tmp_path: Path) -> None:
    mixture = mixture_of(tmp_path, [Docs("a", (5, 0, 7, 3))], (Phase(0, {"a": 1.0}),))
    cache = TokenCache.open(mixture.store.parents(mixture)[0])
    assert cache.num_tokens == 15
    for index, length in enumerate((5, 0, 7, 3)):
        span = cache.document_span(derive_id("a", index))
        assert span is not None and span[1] - span[0] == length
    assert cache.document_span("0" * 32) is None
    assert np.array_equal(cache.read(0, 15), np.concatenate([cache.read(0, 6), cache.read(6, 15)]))


def test_mixtures_refuse_strangers_and_stale_caches(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="component 'x'; allowed: a"):
        mixture_of(tmp_path / "1", [Docs("a", (50,))], (Phase(0, {"x": 1.0}),))
    with pytest.raises(ValueError, match="materialize the stale one again"):
        mixture_of(tmp_path / "2", [Docs("a", (50,)), Docs("b", (50,), "old")], (Phase(0, {"a": 1.0, "b": 1.0}),))
    with pytest.raises(ValueError, match="multiple of 16"):
        mixture_of(tmp_path / "3", [Docs("a", (50,))], (Phase(0, {"a": 1.0}), Phase(5, {"a": 1.0})))


def test_phases_by_step_begin_with_the_step_whatever_the_batch_sizes(tmp_path: Path) -> None:
    """The step before a phase reads none of its weights, the step itself nothing else."""
    batches = BatchSchedule((BatchPhase(0, 4), BatchPhase(10, 8), BatchPhase(20, 16)))
    declared = (StepPhase(0, (("a", 1.0),)), StepPhase(14, (("b", 1.0),)), StepPhase(22, (("a", 2.0), ("b", 1.0))))
    phases = phases_by_step(declared, batches, block_size=8)
    assert [phase.start_sequence for phase in phases] == [0, 72, 152]
    order = DataOrder.open(mixture_of(tmp_path, [Docs("a", (300,)), Docs("b", (300,))], phases, block_size=8), SEQ_LEN)
    read = {}
    for step in range(25):
        components, _ = order.locate(np.arange(batches.first(step), batches.first(step + 1)))
        read[step] = {order.names[component] for component in components.tolist()}
    assert all(read[step] == {"a"} for step in range(14))
    assert all(read[step] == {"b"} for step in range(14, 22))
    assert all(read[step] == {"a", "b"} for step in range(22, 25))


def test_a_phase_that_no_block_begins_with_is_refused() -> None:
    declared = (StepPhase(0, (("a", 1.0),)), StepPhase(3, (("b", 1.0),)))
    with pytest.raises(ValueError, match=r"step 3 begins with sequence 12 .* no multiple of the block size 8; .* divides 12"):
        phases_by_step(declared, BatchSchedule.of(4), block_size=8)
