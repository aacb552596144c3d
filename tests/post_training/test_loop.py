"""The loop as a job of the lab: what it commits, what it refuses, and that a kill changes no bit."""

import datetime
import errno
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from memory import free_programs
from small_rewards import base, environment, learner, node, store_at, tokenizer

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import resolve
from lineage.build.plan import build, build_all
from lineage.jobs.job import JobFailedError, LaunchRecord, LaunchRequest, read_job
from marin_assets.cli.query import ledger_of_stores
from operations.ledger.database import opened, query
from operations.storage.plan import make_plan
from post_training.spec import Distill, Grpo, KLConfig, LossConfig, RewardRunSpec, SamplingConfig
from post_training.stage import ROLLOUTS_FILE
from post_training.train import train_on_rewards
from trainer.spec.lora import LoraConfig

pytestmark = pytest.mark.usefixtures("quick_compilation")


def made(store: Store, spec: RewardRunSpec) -> Artifact:
    return build_all(store, [node(spec)], launcher=here)[0]


def here(launch: LaunchRequest) -> LaunchRecord:
    """Run a job in this process: a new one compiles everything again."""
    train_on_rewards(read_job(launch.job_path))
    free_programs()  # three jobs follow one another in a fixture
    return LaunchRecord("this process", "", ())


def rollouts(store: Store, name: str) -> list[Artifact]:
    return sorted(store.artifacts("runs", name, "rollouts"), key=lambda each: str(each.spec.partition))


def contents(store: Store, name: str) -> dict[str, str]:
    """Data versions of all rollouts and kept checkpoints of a run, by partition."""
    kept = [*rollouts(store, name), *store.artifacts("runs", name, "checkpoint")]
    return {str(each.spec.partition): each.data_version for each in kept}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, quick_compilation: None) -> Store:
    store = store_at(tmp_path_factory.mktemp("rewards"))
    made(store, learner())
    return store


def test_a_checkpoint_lists_the_rollouts_that_it_learned_from(finished: Store) -> None:
    last = resolve(finished, node(learner()))
    shards = rollouts(finished, "rewards")
    assert last.manifest.extra["checkpoint"]["rollouts"] == {str(each.spec.partition): each.data_version for each in shards}
    first = resolve(finished, node(learner(), 2))
    assert list(first.manifest.extra["checkpoint"]["rollouts"]) == ["iteration-00000000"]


def test_the_ledger_says_of_each_iteration_what_its_file_says(finished: Store) -> None:
    with opened(ledger_of_stores([finished])) as connection:
        rows = query(connection, "SELECT iteration, policy, rows, reward_mean, used FROM rollouts WHERE run = 'runs/rewards'")
    shards = [pl.read_parquet(each.file(ROLLOUTS_FILE)) for each in rollouts(finished, "rewards")]
    read = [(t["policy_digest"][0], len(t), pytest.approx(t["reward"].mean()), t["used"].sum()) for t in shards]
    assert rows.sort("iteration").rows() == [(number, *each) for number, each in enumerate(read)]


def test_a_purge_keeps_the_rollouts_of_a_kept_checkpoint(finished: Store) -> None:
    last = resolve(finished, node(learner()))
    plan = make_plan(finished, {last.spec.address: "declared"}, None, datetime.datetime.now(datetime.UTC), young_days=0)
    assert {each.spec.address for each in rollouts(finished, "rewards")} <= plan.kept.keys()
    assert {resolve(finished, node(learner(), 2)).spec.address} <= {each.address for each in plan.goes}


def test_a_row_holds_everything_that_the_update_reads(finished: Store) -> None:
    shards = rollouts(finished, "rewards")
    assert len(shards) == 3
    table = pl.concat([pl.read_parquet(each.file(ROLLOUTS_FILE)) for each in shards])
    assert len(table) == 96
    assert table["policy_digest"].n_unique() == 3
    assert set(table["prompt_id"]) <= {f"{a}+{b}" for a in range(10) for b in range(10)}
    for row in table.iter_rows(named=True):
        length = len(row["tokens"]) - row["prompt_length"]
        assert 1 <= length <= 4
        assert all(len(row[name]) == length for name in ("log_probs", "before", "reference", "entropy"))
        assert np.abs(np.array(row["log_probs"]) - np.array(row["before"])).max() <= 1e-4
        assert row["ended"] == (row["tokens"][-1] == 0)
        assert row["reward"] == float(row["text"] == f"{sum(map(int, row['prompt_id'].split('+'))):02d}")
    by_group = table.group_by("iteration", "group").agg(pl.col("advantage").sum(), pl.col("prompt_id").n_unique())
    assert by_group["advantage"].to_numpy() == pytest.approx(0, abs=1e-6)
    assert (by_group["prompt_id"] == 1).all()


def test_no_held_out_prompt_is_rolled_out(finished: Store) -> None:
    prompts = pl.read_parquet(resolve(finished, environment()).file("prompts.parquet"))
    held = set(prompts.filter(pl.col("split") == "held_out")["prompt_id"])
    tables = [pl.read_parquet(each.file(ROLLOUTS_FILE)) for each in rollouts(finished, "rewards")]
    assert held and not held & set(pl.concat(tables)["prompt_id"])


@pytest.mark.slow
def test_a_run_that_starts_again_makes_the_same_bits(finished: Store, tmp_path: Path) -> None:
    other = store_at(tmp_path)
    made(other, learner())
    assert contents(other, "rewards") == contents(finished, "rewards")


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"advantage": Distill(), "kl": KLConfig(1.0, "full")},
        {"advantage": Grpo(), "kl": KLConfig(0.05, "k1", "reward"), "sampling": SamplingConfig(8, 4, 4, 0.8, 0.9)},
        {"advantage": Grpo("none"), "control": "permuted_rewards", "inner_epochs": 1},
        {"run": replace(learner(1).run, adapter=LoraConfig(2, 4.0))},
    ],
    ids=["distillation", "kept set", "permuted rewards", "adapter"],
)
def test_other_ways_to_learn_run(changes: dict, tmp_path: Path) -> None:
    spec = learner(iterations=1, **changes)
    metrics = pl.read_parquet(made(store_at(tmp_path), spec).file("metrics.parquet"))
    assert np.isfinite(metrics["loss_nats"].to_numpy()).all() and not metrics["skipped"].any()


@pytest.mark.slow
def test_kills_at_ten_random_moments_change_no_bit(finished: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL at the begin of a phase, one attempt after another, until the run ends by itself."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # as this process compiles
    store, moments = store_at(tmp_path), random.Random(7)
    build_all(store, node(learner()).parents())
    phases = [(phase, iteration) for iteration in range(3) for phase in ("rollout", "reward", "update", "save")]
    for phase, iteration in sorted(moments.sample(phases, 10), key=lambda each: (each[1], phases.index(each))):
        monkeypatch.setenv("MARIN_REWARD_FAULT", f"{phase}@{iteration}")
        with pytest.raises(JobFailedError):
            build(store, node(learner()))
    monkeypatch.delenv("MARIN_REWARD_FAULT")
    build(store, node(learner()))
    assert contents(store, "rewards") == contents(finished, "rewards")
    assert "MARIN_REWARD_FAULT" not in os.environ


@pytest.mark.slow
def test_no_checkpoint_is_saved_before_its_rollouts_are_on_record(finished: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are committed in a thread while the updates read them."""

    def slow_and_full(*_: object) -> None:
        time.sleep(0.2)
        raise OSError(errno.EIO, "the disk does not answer")

    monkeypatch.setattr("post_training.train.write_rollouts", slow_and_full)
    spec = learner(iterations=1, run=replace(learner(1).run, name="unwritten"))
    with pytest.raises(OSError, match="the disk does not answer"):
        build(finished, node(spec), launcher=here)
    assert not list(finished.artifacts("runs", "unwritten"))


def test_an_asynchronous_run_without_workers_says_what_is_missing(finished: Store) -> None:
    spec = learner(max_staleness=1)
    with pytest.raises(ValueError, match="run alone has max_staleness 1, so workers sample its rollouts: set MARIN_ROLLOUTS"):
        build(finished, node(replace(spec, run=replace(spec.run, name="alone"))), launcher=here)


def test_another_tokenizer_than_the_start_is_refused(finished: Store) -> None:
    other = replace(tokenizer(), key=("tokenizer", "other"), config=replace(tokenizer().config, vocab_size=258,
        special_tokens=("<|endoftext|>", "<|more|>")))  # fmt: skip
    build(finished, other)
    wrong = node(replace(learner(), run=replace(learner().run, name="wrong")))
    with pytest.raises(ValueError, match=r"tokenizer has 258"):
        build(finished, replace(wrong, inputs={**wrong.inputs, "tokenizer": other}), launcher=here)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: learner(sampling=SamplingConfig(8, 1, 4)), "a group of one"),
        (lambda: learner(sampling=SamplingConfig(8, 4, 16)), r"below run.seq_len"),
        (lambda: learner(kl=None, advantage=Distill()), "a KLConfig in the loss"),
        (lambda: learner(sampling=SamplingConfig(7, 4, 4)), "divisor of the 28"),
        (lambda: learner(max_staleness=-1), "max_staleness is -1"),
        (lambda: learner(max_staleness=1, loss=LossConfig(correction=None)), "loss.correction is None"),
        (lambda: learner(max_staleness=1, kl=KLConfig(0.1, "k3")), "kl.estimator is 'k3'"),
        (lambda: replace(base(), max_staleness=1), "0 for imitate"),
        (lambda: learner(run=replace(learner().run, adapter=LoraConfig(2, 4.0, dropout=0.1))), "run.adapter.dropout is 0.1"),
        (lambda: replace(learner(), run=replace(learner().run, start=None)), "a WarmStart"),
        (lambda: replace(learner(), run=replace(learner().run, save_every_steps=1)), "multiples of 2"),
        (
            lambda: learner(run=replace(learner().run, microbatch_size=4, gradient_noise=True)),
            r"run\.gradient_noise is True; .*False: a run on rewards has no such columns",
        ),
        (lambda: replace(base(), sampling=SamplingConfig(8, 2, 4)), "1 and None for imitate"),
    ],
)
def test_specs_that_cannot_work_are_refused(make: Callable[[], RewardRunSpec], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
