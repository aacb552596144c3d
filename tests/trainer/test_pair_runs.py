"""Runs on preference pairs: the reference is scored once, a run resumes with the same bits, and the order says what it read."""

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from tiny import tiny_model, tiny_spec
from tiny_run import metrics_of

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve, spec_of
from lineage.build.plan import build
from lineage.jobs.job import Job
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.order import DataOrder
from lineage.order.token_cache import TokenCache
from lineage.order.token_shards import tokens_extra, write_flat_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer
from trainer.checkpoint import read_model, read_model_config
from trainer.model.build import model_shapes
from trainer.pair_data import FILE, Reference, pairs_of
from trainer.pair_scores import batches, score_pairs, side_log_probs_of
from trainer.running import Running
from trainer.saving import saved_before
from trainer.signals import PreemptedError, Stop
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.objectives import Dpo, NextToken
from trainer.spec.pair_stage import PAIR_SCORES, PairScoresConfig
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec.stage import CHECKPOINT, CheckpointConfig, step_partition
from trainer.train import train

SIDE, PAIRS = 12, 64
MODEL = tiny_model(vocab_size=20, hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, max_seq_len=16)
BASE = tiny_spec(name="base", model=MODEL, num_steps=4, save_every_steps=None)
RUN = tiny_spec(
    name="preferring", model=MODEL, num_steps=24, save_every_steps=8, batch_size=8, seq_len=2 * SIDE, start=WarmStart(),
    objective=Dpo(beta=0.5), schedule=WarmupStableDecay(peak_learning_rate=1e-2, warmup_steps=2, decay_frac=0.5),
)  # fmt: skip


@dataclass(frozen=True)
class Made:
    """Pairs that a rule can tell apart: the chosen side repeats the prompt's last token, the rejected side does not."""

    seed: int = 0
    side: int = SIDE
    tokenizer: str = "tok"


def write_pairs(out: Writer, config: Made) -> None:
    random = np.random.default_rng(config.seed)
    tokens = random.integers(1, 20, (PAIRS, 2, config.side))
    prompt = config.side // 2
    tokens[:, 1, :prompt] = tokens[:, 0, :prompt]
    tokens[:, 0, prompt:-2] = tokens[:, 0, prompt - 1 : prompt]
    tokens[:, :, -2:] = 0  # padding
    weights = np.broadcast_to((np.arange(config.side) >= prompt) & (np.arange(config.side) < config.side - 2), tokens.shape)
    width = 2 * config.side
    ends, ids = width * np.arange(1, PAIRS + 1), [f"{config.seed:016x}{i:016x}" for i in range(PAIRS)]
    shard = write_flat_shard(out.folder, "s", ids, tokens.reshape(-1), ends, "uint16", weights.astype(np.uint8).reshape(-1))
    out.facts["tokens"] = tokens_extra("pairs", "uint16", 20, config.tokenizer, None, None, [shard], "uint8", width)


def write_text(out: Writer, config: Made) -> None:
    tokens = np.random.default_rng(config.seed).integers(0, 20, 4000)
    shard = write_flat_shard(out.folder, "s", ["0" * 32], tokens, np.array([4000]), "uint16")
    out.facts["tokens"] = tokens_extra("text", "uint16", 20, config.tokenizer, None, None, [shard])


PAIR_STAGE, TEXT_STAGE = Stage("tests.pairs", "1", write_pairs), Stage("tests.pair_text", "1", write_text)


def mixed(cache: Node, name: str) -> Node:
    config = MixtureConfig("m", (Phase(0, {name: 1.0}),), seed=1, block_size=16)
    return Node(("mixture", name), None, MIXTURE, config, {"caches": (cache,)})


def pair_cache(made: Made = Made()) -> Node:
    return Node(("preferences", "rule"), str(made.seed), PAIR_STAGE, made)


def base_checkpoint(made: Made = Made()) -> Node:
    text = Node(("token_cache", "t"), None, TEXT_STAGE, made)
    config = CheckpointConfig(BASE, BASE.num_steps)
    return Node(
        ("runs", "base", "checkpoint"), step_partition(BASE.num_steps), CHECKPOINT, config, {"mixture": mixed(text, "text")}
    )


def job_of(store: Store, node: Node) -> Job:
    """The job of a node, its inputs made."""
    inputs = {}
    for name, value in node.inputs.items():
        each = tuple(made(store, parent) for parent in (value if isinstance(value, tuple) else (value,)))
        inputs[name] = each if isinstance(value, tuple) else each[0]
    return Job(store, spec_of(store, node), inputs, "f", "")


def made(store: Store, node: Node) -> Artifact:
    if node.stage.job is None:
        for parent in node.parents():
            made(store, parent)
        return build(store, node).artifact
    job = job_of(store, node)
    return store.find(job.spec) or (score_pairs(job) if node.stage is PAIR_SCORES else train(job))


def scores(cache: Node, checkpoint: Node, reference: Node | None = None, name: str = "reference") -> Node:
    inputs: dict = {"caches": (cache,), "checkpoint": checkpoint} | ({} if reference is None else {"reference": reference})
    return Node(("preferences", "rule", name), None, PAIR_SCORES, PairScoresConfig(), inputs)


def run_node(spec: RunSpec, cache: Node, start: Node, reference: Node | None, name: str = "pairs") -> Node:
    inputs = {"mixture": mixed(cache, name), "start": start} | ({} if reference is None else {"reference": reference})
    return Node(
        ("runs", spec.name, "checkpoint"),
        step_partition(spec.num_steps),
        CHECKPOINT,
        CheckpointConfig(spec, spec.num_steps),
        inputs,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Job, Artifact]:
    store = Store(str(tmp_path_factory.mktemp("pairs")))
    job = job_of(store, run_node(RUN, pair_cache(), base_checkpoint(), scores(pair_cache(), base_checkpoint())))
    return store, job, train(job)


def test_a_run_starts_at_its_reference_and_learns_the_rule(trained: tuple[Store, Job, Artifact]) -> None:
    metrics = metrics_of(trained[2])
    assert metrics["accuracy"][0] == pytest.approx(0.5, abs=0.25)
    assert abs(metrics["margin"][0]) < 1e-5  # the policy is the reference
    assert metrics["loss_nats"][0] == pytest.approx(np.log(2), abs=1e-5)
    assert metrics["accuracy"].tail(4).mean() > 0.95
    assert {"chosen_log_prob", "rejected_log_prob", "reference_log_prob_accuracy"} <= set(metrics.columns)


def test_held_out_pairs_are_scored_against_the_reference(trained: tuple[Store, Job, Artifact]) -> None:
    store, _, checkpoint = trained
    cache = pair_cache(Made(seed=7))
    before = scores(cache, base_checkpoint(), name="before")
    end = run_node(RUN, pair_cache(), base_checkpoint(), scores(pair_cache(), base_checkpoint()))
    facts = made(store, scores(cache, end, before, "after")).manifest.extra["pair_scores"]
    assert facts["checkpoint"] == checkpoint.data_version
    assert facts["pairs"] == PAIRS
    assert facts["reward_accuracy"] > 0.95
    assert facts["chosen_log_prob"] > facts["reference_chosen_log_prob"] - 5
    at_start = made(store, scores(cache, base_checkpoint(), before, "same")).manifest.extra["pair_scores"]
    assert at_start["reward_accuracy"] == 0.5  # all ties, because equal models score equal bits
    assert at_start["margin"] == 0


def test_cached_scores_are_those_of_the_model_to_the_bit(trained: tuple[Store, Job, Artifact]) -> None:
    store, job, _ = trained
    start, artifact = job.inputs["start"], job.inputs["reference"]
    assert isinstance(start, Artifact) and isinstance(artifact, Artifact)
    model = read_model(start, model_shapes(read_model_config(start)))
    (cache,) = (TokenCache.open(parent) for parent in store.parents(job.inputs["mixture"]))
    again = [
        side_log_probs_of(model, jnp.asarray(tokens), jnp.asarray(weights), model.resolved(RUN.compute, SIDE, segmented=False))[
            :n
        ]
        for tokens, weights, n in batches(cache, 2 * SIDE)
    ]
    table = pl.read_parquet(artifact.file(FILE))
    assert np.array_equal(np.concatenate(again), table.select("chosen", "rejected").to_numpy())


def test_a_run_that_left_ends_with_the_same_bits(trained: tuple[Store, Job, Artifact], tmp_path: Path) -> None:
    _, _, whole = trained
    store = Store(str(tmp_path))
    job = job_of(store, run_node(RUN, pair_cache(), base_checkpoint(), scores(pair_cache(), base_checkpoint())))
    stop, calls = Stop(), itertools.count()
    with pytest.raises(PreemptedError):
        train(job, Running(), stop, lambda seconds: stop.requested.set() if next(calls) >= 9 else None)
    assert len(saved_before(job, 23)) > 0
    assert train(job).data_version == whole.data_version


def test_the_order_says_at_which_step_a_pair_was_read(trained: tuple[Store, Job, Artifact]) -> None:
    _, job, _ = trained
    mixture = job.inputs["mixture"]
    assert isinstance(mixture, Artifact) and isinstance(job.inputs["start"], Artifact)
    order = DataOrder.open(mixture, RUN.seq_len)
    reference = Reference.open(job.inputs["reference"], mixture, job.inputs["start"], RUN, order)
    cache = order.caches[0]
    batch = pairs_of(order, RUN, reference, step=5)
    table = pl.read_parquet(job.inputs["reference"].file(FILE))
    for row, tokens in enumerate(np.asarray(batch.tokens)):
        component, number = order.sequence_at(5 * 8 + row)
        assert np.array_equal(cache.read(number * 2 * SIDE, (number + 1) * 2 * SIDE), tokens)
        assert table["id"][number] == cache.document_ids()[number]
        assert batch.reference[row].tolist() == list(table.row(number)[2:4])
        assert 5 * 8 + row in order.inverse(component, number, below=24 * 8)


def test_what_does_not_fit_is_refused(trained: tuple[Store, Job, Artifact]) -> None:
    store, _, _ = trained
    cache, start, reference = pair_cache(), base_checkpoint(), scores(pair_cache(), base_checkpoint())
    other = pair_cache(Made(seed=3))
    longer = pair_cache(Made(seed=4, side=SIDE + 2))
    text, stranger = (
        Node(("token_cache", "t"), None, TEXT_STAGE, Made()),
        scores(cache, base_checkpoint(Made(seed=9)), name="s"),
    )
    cases = (
        (run_node(RUN, cache, start, None), "has no input 'reference' and the objective 'dpo'"),
        (run_node(RUN, other, start, reference), "has pairs .* the run reads mixture/pairs; make the reference again"),
        (run_node(RUN, longer, start, reference), "holds pairs of 28 tokens, objective 'dpo' needs pairs of 24"),
        (run_node(RUN, text, start, reference, "text"), "holds text, objective 'dpo' needs pairs of 24 tokens"),
        (run_node(replace(RUN, objective=NextToken(), seq_len=12), cache, start, None), "objective 'next_token' needs text"),
        (
            run_node(RUN, cache, start, stranger),
            "has checkpoint .*starts from",
        ),
    )
    for node, error in cases:
        with pytest.raises(ValueError, match=error):
            train(job_of(store, node))
    foreign = pair_cache(Made(seed=5, tokenizer="another"))
    with pytest.raises(ValueError, match="made with the tokenizer of data version another"):
        score_pairs(job_of(store, scores(foreign, start, name="foreign")))
    assert resolve(store, reference)
