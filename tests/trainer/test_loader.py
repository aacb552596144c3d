"""The loader: batches in order, read ahead, errors at their step; packed rows train as separate documents would."""

import threading
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
import pytest
from test_training import RUN, prepared
from tiny_models import quick_model

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, ancestors_first
from lineage.build.plan import build
from lineage.order.batches import BatchPhase
from lineage.order.exposure import exposures
from lineage.order.history import training_legs
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.order import DataOrder
from lineage.order.packing import Packing
from lineage.order.token_shards import tokens_extra, write_token_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer
from trainer.batch import Batch
from trainer.loader import Loader, batch_of, batches_of, steps_at_once
from trainer.objectives import next_token_loss, token_nll
from trainer.spec.config import RunSpec
from trainer.spec.stage import CHECKPOINT, CheckpointConfig, step_partition

WITHIN = replace(RUN, num_steps=14, save_every_steps=14, cross_document_attention=False)


@dataclass(frozen=True)
class Lengths:
    """Documents of random tokens."""

    lengths: tuple[int, ...]


def write_lengths(out: Writer, config: Lengths) -> None:
    random = np.random.default_rng(0)
    documents = [(f"{i:032x}", random.integers(1, 50, length)) for i, length in enumerate(config.lengths)]
    shard = write_token_shard(out.folder, "s", documents, "uint16")
    out.facts["tokens"] = tokens_extra("text", "uint16", 50, "tok", None, None, [shard])


LENGTHS = Stage("tests.lengths", "1", write_lengths)
DOCUMENTS = (*np.random.default_rng(1).integers(1, 14, 60).tolist(), 50)


def packed_mixture(packing: Packing | None) -> Node:
    cache = Node(("cache",), None, LENGTHS, Lengths(DOCUMENTS))
    config = MixtureConfig("m", (Phase(0, {"text": 1.0}),), seed=1, block_size=64, packing=packing)
    return Node(("mixture",), None, MIXTURE, config, {"caches": (cache,)})


def order_of(root: Path, packing: Packing | None, seq_len: int) -> DataOrder:
    built = [build(Store(str(root)), node).artifact for node in ancestors_first([packed_mixture(packing)])]
    return DataOrder.open(built[-1], seq_len)


def numbered(step: int, count: int) -> list[Batch]:
    return [Batch(np.full((1, 1), each)) for each in range(step, step + count)]


def test_batches_come_in_order_and_are_read_ahead() -> None:
    read: list[int] = []
    far = threading.Event()

    def read_some(step: int, count: int) -> list[Batch]:
        read.append(step)
        if step == 7:
            far.set()
        return numbered(step, count)

    batches = Loader(read_some, ahead=4).batches(3, 9)
    step, batch = next(batches)
    assert (step, batch.tokens.item()) == (3, 3)
    assert far.wait(30), "the batch four steps on is read while this one is used"
    assert [(step, batch.tokens.item()) for step, batch in batches] == [(s, s) for s in range(4, 9)]
    assert read == list(range(3, 9)), "each once, in order"


@pytest.mark.parametrize("at_once", [1, 3, 8, 100])
def test_reads_grow_to_their_size_and_every_step_comes_once(at_once: int) -> None:
    reads: list[tuple[int, int]] = []

    def read_some(step: int, count: int) -> list[Batch]:
        reads.append((step, count))
        return numbered(step, count)

    assert [(s, b.tokens.item()) for s, b in Loader(read_some, at_once).batches(5, 42)] == [(s, s) for s in range(5, 42)]
    assert [step for step, _ in reads] == [5 + sum(count for _, count in reads[:i]) for i in range(len(reads))]
    assert reads[0] == (5, 1), "the first step waits for no other"
    assert max(count for _, count in reads) <= at_once


def test_no_steps_give_no_batches() -> None:
    assert list(Loader(numbered).batches(5, 5)) == []


def test_what_a_read_raises_comes_at_its_step() -> None:
    def read_some(step: int, count: int) -> list[Batch]:
        if step == 2:
            raise OSError("the bucket is away")
        return numbered(step, count)

    seen = []
    with pytest.raises(OSError, match="the bucket is away"):
        for step, _ in Loader(read_some).batches(0, 5):
            seen.append(step)
    assert seen == [0, 1]


@pytest.mark.parametrize("packing", [None, Packing(16)])
@pytest.mark.parametrize("cross", [False, True])
def test_steps_read_together_are_steps_read_alone(tmp_path: Path, packing: Packing | None, cross: bool) -> None:
    run = replace(
        WITHIN, cross_document_attention=cross, batch_size=(BatchPhase(0, 4), BatchPhase(3, 6), BatchPhase(5, 2)), num_steps=9
    )
    order = order_of(tmp_path, packing, 16)
    for step, together in enumerate(batches_of(order, run, 2, 7), start=2):
        alone = batch_of(order, run, step, lambda size, read: np.concatenate([read(row, 1) for row in range(size)]))
        assert together.tokens.shape == (run.batches.size(step), 16)
        for array, wanted in zip(together, alone, strict=True):
            assert (array is None) == (wanted is None)
            assert array is None or (np.asarray(array) == np.asarray(wanted)).all()
    assert steps_at_once(run) == (1 << 18) // 32


@pytest.mark.parametrize("packing", [None, Packing(16), Packing(16, "truncate", max_documents=2, window=20)])
def test_the_loss_of_rows_within_documents_is_that_of_their_documents_alone(tmp_path: Path, packing: Packing | None) -> None:
    """It is compared with every part of a document run alone: no other document is visible, and each token but the first
    counts.
    """
    order = order_of(tmp_path, packing, 16)
    tokens, weights, segment_ids = batch_of(order, WITHIN, 0)
    assert weights is not None and segment_ids is not None
    model = quick_model(RUN.model)
    _, loss = jax.jit(next_token_loss, static_argnums=2)(model, tokens, 0.0, weights, segment_ids)
    parts = []
    for row, ids in zip(np.asarray(tokens), np.asarray(segment_ids), strict=True):
        for segment in range(ids.max() + 1):
            parts.append(row[ids == segment])
    padded = np.stack([np.pad(part, (0, 16 - part.size)) for part in parts])
    nll = np.asarray(jax.jit(token_nll)(model, padded))
    alone = np.concatenate([row[: part.size - 1] for row, part in zip(nll, parts, strict=True)])
    assert float(loss) == pytest.approx(alone.mean(), rel=1e-5)


def packed_run(root: Path, run: RunSpec) -> Artifact:
    place = ("runs", run.name, "checkpoint"), step_partition(run.num_steps)
    node = Node(*place, CHECKPOINT, CheckpointConfig(run, run.num_steps), {"mixture": packed_mixture(Packing(16))})
    return build(prepared(root, node), node).artifact


@pytest.mark.slow
def test_a_packed_run_trains_and_its_exposure_is_exact(tmp_path: Path) -> None:
    """Every token of every document that its steps read, against the batches themselves."""
    run = replace(WITHIN, batch_size=(BatchPhase(0, 4), BatchPhase(10, 6)), microbatch_size=2)
    checkpoint = packed_run(tmp_path, run)
    assert np.isfinite(checkpoint.manifest.extra["checkpoint"]["loss_nats"])
    assert 0 <= checkpoint.manifest.extra["throughput"]["input_stall_share"] < 1
    [leg] = training_legs(checkpoint)
    order = DataOrder.open(leg.mixture, leg.seq_len)
    ids = [f"{i:032x}" for i in range(len(DOCUMENTS))]
    exposed = exposures(order, {"text": ids}, batches=leg.batches, num_steps=leg.num_steps)
    real = sum(int((batch_of(order, run, step).segment_ids >= 0).sum()) for step in range(run.num_steps))  # pyrefly: ignore
    assert exposed["tokens"].sum() == real
    for document, step, row, tokens in exposed.sample(60, seed=0).select("id", "step", "row", "tokens").iter_rows():
        batch = batch_of(order, run, step)
        span = order.caches[0].document_span(document)
        assert span is not None
        whole = order.caches[0].read(*span).tolist()
        segments = [batch.tokens[row][batch.segment_ids[row] == s].tolist() for s in range(17)]  # pyrefly: ignore
        assert any(
            len(part) == tokens and part in (whole[i : i + tokens] for i in range(0, len(whole), 16)) for part in segments
        )
