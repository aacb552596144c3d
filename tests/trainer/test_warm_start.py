"""Warm starts: copied state is bit-equal, new state is declared, and the run resumes normally."""

import re
from dataclasses import dataclass, fields, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
import tiny_run
from built_here import trained
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from safetensors.numpy import load_file
from tiny import tiny_spec

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve
from lineage.order.batches import BatchPhase
from lineage.order.exposure import exposures
from lineage.order.history import training_legs
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.order import DataOrder
from lineage.order.token_shards import tokens_extra, write_token_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer
from trainer.checkpoint import first_sequence, read_checkpoint, warm_start
from trainer.guard_history import filled_ring
from trainer.initial_state import initial_state
from trainer.model.parts import parameters_of
from trainer.model.protocol import LanguageModel
from trainer.objectives import next_token_loss
from trainer.optimizers.rolling import Ring, empty_ring, push
from trainer.scoring import load_scorer
from trainer.spec.compute import Compute
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.decoder import DecoderConfig
from trainer.spec.moe import ExpertsConfig, MoeConfig, RouterConfig
from trainer.spec.optimizers import (
    AdamWConfig,
    ClipUpdateNormConfig,
    EmaConfig,
    MuonConfig,
    OptimizerConfig,
    SkipBadStepsConfig,
)
from trainer.spec.schedules import CycleSchedule, WarmupStableDecay
from trainer.spec.stage import CHECKPOINT, CheckpointConfig, step_partition
from trainer.tokenizer_check import check_same_tokenizer

SEQ_LEN = 16
RUN = tiny_spec(
    name="first",
    model=tiny_run.RUN.model,
    schedule=WarmupStableDecay(peak_learning_rate=1e-2, warmup_steps=5, decay_frac=0.5),
    seq_len=SEQ_LEN,
    num_steps=30,
    save_every_steps=20,
)
QK = ("q_norm", "k_norm")
PLAIN = Compute("float32", "reference", 16, one_by_one=False, by_rows=False, remat="none", unrolled=True, notes=())


@dataclass(frozen=True)
class Text:
    """A component of random documents with this many tokens in all."""

    seed: int
    num_tokens: int = 4000
    component: str = "text"
    document: str = "0" * 32
    tokenizer: str = "tok"


def write_text(out: Writer, config: Text) -> None:
    tokens = np.cumsum(np.random.default_rng(config.seed).integers(1, 3, config.num_tokens)) % 50
    shard = write_token_shard(out.folder, "s", [(config.document, tokens)], "uint16")
    out.facts["tokens"] = tokens_extra(config.component, "uint16", 50, config.tokenizer, None, None, [shard])


TEXT = Stage("tests.text", "1", write_text)


def checkpoint(run: RunSpec, step: int, text: Text, start: Node | None = None) -> Node:
    cache = Node(("cache",), f"{text.seed}-{text.num_tokens}-{text.tokenizer}", TEXT, text)
    config = MixtureConfig("m", (Phase(0, {"text": 1.0}),), seed=1)
    mixture = Node(("mixture",), cache.partition, MIXTURE, config, {"caches": (cache,)})
    inputs = {"mixture": mixture} | ({"start": start} if start is not None else {})
    return Node(("runs", run.name, "checkpoint"), step_partition(step), CHECKPOINT, CheckpointConfig(run, step), inputs)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One store for all tests: what one has trained, another finds."""
    return Store(str(tmp_path_factory.mktemp("store")))


def second(**changes: object) -> RunSpec:
    return replace(RUN, **({"name": "second", "seed": 7, "start": WarmStart()} | changes))  # pyrefly: ignore


def losses(artifact: Artifact) -> list[float]:
    return pl.read_parquet(artifact.files("metrics.parquet")[0])["loss_nats"].to_list()


def test_a_start_from_another_tokenizer_of_equal_size_is_refused_unless_declared(store: Store) -> None:
    start = checkpoint(RUN, 20, Text(0))
    with pytest.raises(ValueError, match=r"the tokenizer of data version other, .* with tok: the same ids are other words"):
        trained(store, checkpoint(second(), 30, Text(1, tokenizer="other"), start))
    mixture = store.latest(("mixture",), "1-4000-other")
    assert mixture is not None
    check_same_tokenizer(resolve(store, start), mixture, second(start=WarmStart(changed_fields=("tokenizer",))))


def test_the_first_step_has_the_loss_of_the_model_it_started_from(store: Store) -> None:
    start = checkpoint(RUN, 20, Text(0))
    made = trained(store, checkpoint(second(), 30, Text(1), start))
    batch = DataOrder.open(made.input("mixture"), SEQ_LEN).batch(0, 4)
    nats = np.concatenate(load_scorer(made.input("start")).token_nll(list(batch)))
    np.testing.assert_allclose(losses(made)[0], nats.mean(), rtol=1e-5)
    cold = initial_state(second()).model
    assert losses(made)[0] < float(next_token_loss(cold, batch, 0.0)[1]) - 0.5, (
        "as good as a fresh model: nothing was taken along"
    )


def upcycled(per_token: int, **changes: object) -> RunSpec:
    """`second` with four experts, each an MLP of `first`."""
    shapes = {field.name: getattr(RUN.model, field.name) for field in fields(DecoderConfig)}
    router = RouterConfig(per_token, score="softmax", renormalize=True)
    mixed = MoeConfig(**shapes, qk_norm="none", experts=ExpertsConfig(4, 32), router=router)
    start = WarmStart(new_parameters=("router",), experts="from_mlp")
    return second(**{"name": f"mixed{per_token}", "model": mixed, "start": start, "num_steps": 6, **changes})


@eqx.filter_jit
def hidden_of(model: LanguageModel, rows: np.ndarray, compute: Compute) -> jax.Array:
    return model.hidden(jnp.asarray(rows), None, compute)


@pytest.mark.parametrize("per_token", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_mixture_begins_as_the_dense_model_that_its_experts_are_copies_of(per_token: int, store: Store) -> None:
    first, run = checkpoint(RUN, 20, Text(0)), upcycled(per_token)
    dense = trained(store, first)
    mixed = warm_start(dense, initial_state(run), run).model
    rows = DataOrder.open(dense.input("mixture"), SEQ_LEN).batch(0, 4)
    theirs = hidden_of(load_scorer(dense).model, rows, PLAIN)
    ours = hidden_of(mixed, rows, replace(PLAIN, experts="reference"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6)
    for name in ("w_gate", "w_up", "w_down"):
        of_mlp = getattr(load_scorer(dense).model.blocks.stacked.mlp, name).array
        for expert in range(4):
            np.testing.assert_array_equal(getattr(mixed.blocks.stacked.experts, name).array[:, expert], of_mlp)
    if per_token == 1:  # the weight of the only expert is 1, so whichever it is, the bits are the same
        turned = eqx.tree_at(lambda m: m.blocks.stacked.experts.router.weight.array, mixed, replace_fn=lambda w: -w)
        np.testing.assert_array_equal(hidden_of(turned, rows, replace(PLAIN, experts="reference")), ours)


@pytest.mark.slow
def test_a_mixture_that_began_as_a_dense_model_trains(store: Store) -> None:
    made = trained(store, checkpoint(upcycled(1), 6, Text(1), checkpoint(RUN, 20, Text(0))))
    assert np.isfinite(losses(made)).all()


def test_a_mixture_that_cannot_compute_what_the_dense_model_does_is_refused(store: Store) -> None:
    dense, run = trained(store, checkpoint(RUN, 20, Text(0))), upcycled(2)
    assert isinstance(run.model, MoeConfig)
    narrow = replace(run, model=replace(run.model, experts=ExpertsConfig(4, 16)))
    with pytest.raises(ValueError, match=r"model\.experts\.dim is 16; it must be 32 to start from"):
        warm_start(dense, initial_state(narrow), narrow)
    with pytest.raises(ValueError, match="they must be a MoeConfig and a LlamaConfig"):
        same = second(start=WarmStart(experts="from_mlp"))
        warm_start(dense, initial_state(same), same)
    with pytest.raises(ValueError, match=r"run\.start\.optimizer and average"):
        WarmStart(optimizer="carried", experts="from_mlp")


@pytest.mark.parametrize(
    "optimizer", [AdamWConfig(), pytest.param(MuonConfig(), marks=pytest.mark.slow)], ids=["adamw", "muon"]
)
def test_with_the_moments_carried_two_runs_are_one(optimizer: OptimizerConfig, store: Store) -> None:
    """On a single sequence every batch is the same, so only parameters and moments tell two runs from one."""
    text = Text(0, SEQ_LEN)
    constant = replace(RUN, optimizer=optimizer, schedule=CycleSchedule(1e-2, decay="constant"))
    whole = trained(store, checkpoint(replace(constant, name="whole"), 30, text))
    start = checkpoint(constant, 20, text)
    rest = replace(constant, name="rest", num_steps=10, start=WarmStart(optimizer="carried"))
    parts = trained(store, checkpoint(rest, 10, text, start))
    for name in ("model.safetensors", "optimizer.safetensors"):
        one, two = (load_file(artifact.folder() / name) for artifact in (whole, parts))
        assert one.keys() == two.keys()
        for array in one:
            np.testing.assert_array_equal(one[array], two[array], err_msg=array)
    fresh = trained(store, checkpoint(replace(rest, name="fresh", start=WarmStart()), 10, text, start))
    assert losses(fresh)[0] == losses(parts)[0] and losses(fresh)[2] != losses(parts)[2]


def mixed(run: RunSpec, step: int, start: Node | None = None) -> Node:
    """Over two sources whose weights change in the middle."""
    parts = [
        Node(("cache",), f"mixed-{name}", TEXT, Text(seed, component=name, document=name * 32))
        for seed, name in enumerate(("a", "b"))
    ]
    phases = (Phase(0, {"a": 3.0, "b": 1.0}), Phase(64, {"a": 1.0, "b": 3.0}))
    config = MixtureConfig("m", phases, seed=1, block_size=8)
    mixture = Node(("mixture",), "mixed", MIXTURE, config, {"caches": tuple(parts)})
    inputs = {"mixture": mixture} | ({"start": start} if start is not None else {})
    return Node(("runs", run.name, "checkpoint"), step_partition(step), CHECKPOINT, CheckpointConfig(run, step), inputs)


CONTINUED = WarmStart("carried", guards="rebuilt", data="continued", average="carried")


@pytest.mark.slow
def test_with_the_data_continued_two_runs_are_one(store: Store) -> None:
    """It covers phases of a mixture and of batch sizes, with active guards: state, losses, and the recorded reads."""
    guards = {"clip_update_norm": ClipUpdateNormConfig(8, num_std=0.25), "skip_bad_steps": SkipBadStepsConfig(8, num_std=1.0)}
    whole = replace(
        GUARDED, name="undisturbed", batch_size=(BatchPhase(0, 4), BatchPhase(10, 8), BatchPhase(20, 2)), z_loss_weight=1e-3,
        keep_steps=(14,), save_every_steps=None, ema=EmaConfig(0.9), **guards,
    )  # fmt: skip
    one = trained(store, mixed(whole, 30))
    rest = replace(
        whole, name="rest_of_it", batch_size=(BatchPhase(0, 8), BatchPhase(6, 2)), num_steps=16, keep_steps=(), start=CONTINUED
    )
    two = trained(store, mixed(rest, 16, mixed(whole, 14)))
    assert losses(two) == losses(one)[14:]
    metrics = pl.read_parquet(one.files("metrics.parquet")[0])
    assert metrics["skipped"][:14].any() and metrics["skipped"][14:].any(), "a case in which the guards act in both"
    for name in ("model", "optimizer", "skip", "ema"):
        files = [artifact.files(f"{name}.safetensors")[0].read_bytes() for artifact in (one, two)]
        assert files[0] == files[1], name
    order = DataOrder.open(one.input("mixture"), SEQ_LEN)
    reads = {"whole": [], "parts": []}
    for which, legs in (("whole", training_legs(one)), ("parts", training_legs(two))):
        passed = 0
        for leg in legs:
            seen = exposures(order, {"a": ["a" * 32], "b": ["b" * 32]}, batches=leg.batches, num_steps=leg.num_steps)
            assert seen["step"].is_between(0, leg.num_steps - 1).all()
            reads[which] += seen.with_columns(step=pl.col("step") + passed).rows()
            passed += leg.num_steps
    assert reads["whole"] and sorted(reads["whole"]) == sorted(reads["parts"])
    third = replace(rest, name="third", num_steps=4, batch_size=2)
    assert first_sequence(third, two) == 10 * 4 + 10 * 8 + 10 * 2


def test_data_are_continued_only_in_an_order_of_the_same_sequences(store: Store) -> None:
    start = trained(store, checkpoint(RUN, 20, Text(0)))
    shorter = second(seq_len=8, start=WarmStart(data="continued"))
    with pytest.raises(ValueError, match=r"run\.start\.data is 'continued' and run.seq_len 8, .* trained on sequences of 16"):
        first_sequence(shorter, start)


def test_an_average_that_is_not_there_is_not_carried(store: Store) -> None:
    carried = WarmStart(average="carried")
    with pytest.raises(ValueError, match=r"run\.start\.average"):
        second(start=carried)
    start = checkpoint(RUN, 20, Text(0))
    with pytest.raises(ValueError, match=r"runs/first/checkpoint.* has no ema.* its run spec sets no ema"):
        trained(store, checkpoint(second(ema=EmaConfig(0.9), start=carried), 30, Text(1), start))


@pytest.mark.slow
def test_a_llama_becomes_a_qwen3_in_the_middle_of_its_data(store: Store) -> None:
    """The 32B run's phase 3: moments and guards come along, norms of queries and keys are new, the clip changes."""
    before = replace(GUARDED, name="llama", save_every_steps=20)
    after = replace(
        before,
        name="qwen3",
        model=replace(RUN.model, qk_norm=True),
        optimizer=AdamWConfig(max_grad_norm=0.2, beta1=0.0, beta2=0.5),
        z_loss_weight=1e-4,
        skip_bad_steps=SkipBadStepsConfig(8),
        schedule=WarmupStableDecay(peak_learning_rate=1e-2, warmup_steps=5, decay_frac=0.5),
        start=replace(CONTINUED, new_parameters=QK, average="fresh"),
    )
    made = trained(store, mixed(after, 30, mixed(before, 20)))
    state, restored = read_checkpoint(made, initial_state(after))
    assert int(state.optimizer[1].count) > 30, "the moments did not come along"
    losses = restored.metrics["loss_nats"]
    assert losses[-5:].mean() < losses[:5].mean()
    assert made.manifest.extra["checkpoint"]["first_sequence"] == 20 * 4


def test_a_run_that_started_warm_resumes_from_its_own_checkpoint(store: Store) -> None:
    start = checkpoint(RUN, 20, Text(0))
    parts, whole = (second(name=name, ema=EmaConfig(0.9)) for name in ("parts", "whole"))
    trained(store, checkpoint(parts, 20, Text(1), start))
    resumed, undisturbed = (trained(store, checkpoint(run, 30, Text(1), start)) for run in (parts, whole))
    for name in ("model", "optimizer", "ema"):
        files = [artifact.files(f"{name}.safetensors")[0].read_bytes() for artifact in (resumed, undisturbed)]
        assert files[0] == files[1], name


def test_an_average_begins_at_the_parameters_that_were_taken(store: Store) -> None:
    start = trained(store, checkpoint(RUN, 20, Text(0)))
    run = second(ema=EmaConfig(0.9))
    state = warm_start(start, initial_state(run), run)
    before = jax.tree.leaves(parameters_of(load_scorer(start).model))
    for average, taken in zip(jax.tree.leaves(state.ema), before, strict=True):
        np.testing.assert_array_equal(average, taken)


@pytest.mark.parametrize("moments", [pytest.param("fresh", marks=pytest.mark.slow), "carried"])
def test_a_llama_grows_norms_of_queries_and_keys(moments: str, store: Store) -> None:
    start = checkpoint(RUN, 20, Text(0))
    grown = second(model=replace(RUN.model, qk_norm=True), start=WarmStart(moments, QK))  # type: ignore[arg-type]
    made = trained(store, checkpoint(grown, 30, Text(1), start))
    arrays = load_file(made.folder() / "model.safetensors")
    old = load_file(made.input("start").folder() / "model.safetensors")
    assert {re.findall(r"[qk]_norm", name)[0] for name in arrays.keys() - old.keys()} == set(QK)
    assert losses(made)[-1] < losses(made)[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": replace(RUN.model, qk_norm=True)}, r"array .*[qk]_norm.* is None in the checkpoint, the run spec needs"),
        ({"model": replace(RUN.model, hidden_dim=32), "start": WarmStart(new_parameters=QK)}, r"array .* is \(\(.*needs"),
        ({"start": WarmStart(new_parameters=("rotor",))}, "new_parameters names rotor, which no array of the model has"),
        ({"optimizer": MuonConfig(), "start": WarmStart("carried")}, r"array .* is .* the run spec needs"),
        ({"start": None}, "run second sets no start, its inputs are mixture, start; give both or neither"),
    ],
    ids=["norms not declared", "other shapes", "an unknown name", "another rule's moments", "a start that no spec asks for"],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(changes: dict, message: str, store: Store) -> None:
    with pytest.raises(ValueError, match=message):
        trained(store, checkpoint(second(**changes), 30, Text(1), checkpoint(RUN, 20, Text(0))))


def test_a_spec_that_starts_warm_needs_its_checkpoint(store: Store) -> None:
    with pytest.raises(ValueError, match="run second sets start, its inputs are mixture; give both or neither"):
        trained(store, checkpoint(second(), 30, Text(1)))


def test_a_name_that_is_no_field_is_refused() -> None:
    with pytest.raises(ValueError, match=r"run.start.new_parameters is \('q norm',\); it must be names of fields"):
        WarmStart(new_parameters=("q norm",))


def test_every_run_before_is_reported_with_its_tokens(store: Store) -> None:
    first = checkpoint(RUN, 20, Text(0))
    middle = checkpoint(second(), 30, Text(1), first)
    made = trained(store, checkpoint(second(seed=8), 20, Text(2), middle))
    facts = made.manifest.extra["checkpoint"]
    assert (facts["tokens_seen"], facts["start"]["tokens_seen"], facts["start"]["step"]) == (20 * 64, 50 * 64, 30)
    legs = training_legs(made)
    assert [(leg.checkpoint.spec.config["run"]["seed"], leg.num_steps) for leg in legs] == [(0, 20), (7, 30), (8, 20)]
    assert [leg.mixture.spec.partition for leg in legs] == ["0-4000-tok", "1-4000-tok", "2-4000-tok"]


def ring_after(history: list[float], window: int) -> Ring:
    """The obvious way: push one after another."""
    ring = empty_ring(window)
    for value in history:
        ring = push(ring, jnp.float32(value))
    return ring


@given(st.lists(st.floats(0, 100, width=32) | st.just(float("nan")), max_size=9), st.integers(2, 5))
@settings(max_examples=examples(15))
def test_a_ring_from_a_history_is_the_one_that_was_there(history: list[float], window: int) -> None:
    pushed, made = ring_after(history, window), filled_ring(empty_ring(window), np.array(history, np.float64))
    assert [array.tolist() for array in pushed] == [array.tolist() for array in made]


GUARDED = replace(
    RUN,
    name="guarded",
    optimizer=AdamWConfig(beta1=0.0, beta2=0.5),  # directions whose norms go up and down
    schedule=CycleSchedule(1e-3, decay="constant"),
    clip_update_norm=ClipUpdateNormConfig(8, num_std=0.25),
    skip_bad_steps=SkipBadStepsConfig(8, num_std=1.0),
    save_every_steps=5,
)


@pytest.mark.parametrize("step", [20, pytest.param(30, marks=pytest.mark.slow)])
def test_rebuilt_guards_are_those_that_the_run_before_had(store: Store, step: int) -> None:
    """After steps that were clipped and steps that were skipped, bit for bit."""
    start = trained(store, checkpoint(GUARDED, step, Text(0)))
    metrics = pl.read_parquet(start.files("metrics.parquet")[0])
    assert metrics["skipped"].any(), "the case this is about: a skipped step"
    clipped = metrics["update_norm"] / metrics["learning_rate"] < 0.99 * metrics["direction_norm"]
    assert (clipped & ~metrics["skipped"]).any(), "and a clipped one"
    raised = replace(GUARDED, name="raised", start=WarmStart("carried", guards="rebuilt"))
    state = warm_start(start, initial_state(raised), raised)
    had, _ = read_checkpoint(start, initial_state(GUARDED))
    for one, two in zip(
        jax.tree.leaves((had.skip, had.optimizer)), jax.tree.leaves((state.skip, state.optimizer)), strict=True
    ):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("clip", [None, ClipUpdateNormConfig(8), ClipUpdateNormConfig(16)], ids=["none", "same", "wider"])
def test_moments_are_carried_whatever_guard_is_set(store: Store, clip: ClipUpdateNormConfig | None) -> None:
    start = trained(store, checkpoint(GUARDED, 20, Text(0)))
    later = replace(GUARDED, name="later", clip_update_norm=clip, start=WarmStart("carried"))
    state = warm_start(start, initial_state(later), later)
    had, _ = read_checkpoint(start, initial_state(GUARDED))
    assert int(state.optimizer[1].count) == int(had.optimizer[1].count) > 0
    assert clip is None or int(state.optimizer[-1].count) == 0, "fresh guards were not fresh"


@pytest.mark.slow
def test_guards_are_rebuilt_over_several_runs(store: Store) -> None:
    """A run between that was shorter than the window hides nothing of the one before it."""
    first = checkpoint(GUARDED, 20, Text(0))
    again = replace(GUARDED, name="again", start=WarmStart("carried", guards="rebuilt"))
    middle = trained(store, checkpoint(again, 5, Text(1), first))
    state = warm_start(middle, initial_state(again), again)
    had, _ = read_checkpoint(middle, initial_state(again))
    for one, two in zip(
        jax.tree.leaves((had.skip, had.optimizer)), jax.tree.leaves((state.skip, state.optimizer)), strict=True
    ):
        np.testing.assert_array_equal(one, two)


@pytest.mark.slow
def test_rebuilt_guards_hold_the_last_steps_of_a_run_that_had_none(store: Store) -> None:
    start = trained(store, checkpoint(RUN, 20, Text(0)))
    metrics = pl.read_parquet(start.files("metrics.parquet")[0])
    raised = second(
        start=WarmStart("carried", guards="rebuilt"),
        clip_update_norm=ClipUpdateNormConfig(8),
        skip_bad_steps=SkipBadStepsConfig(8),
    )
    state = warm_start(start, initial_state(raised), raised)
    moved = metrics["update_norm"] / metrics["learning_rate"]
    np.testing.assert_allclose(np.sort(state.optimizer[-1].values), np.sort(moved.tail(8).to_numpy()), rtol=1e-5)
    assert int(state.optimizer[1].count) == 20, "the moments came along"
    with pytest.raises(ValueError, match=r"run.start.guards is 'rebuilt'; it must be fresh where the run has neither guard"):
        second(start=WarmStart(guards="rebuilt"))
