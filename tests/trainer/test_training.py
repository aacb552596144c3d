"""Training as a job: cost of a kill, and contents of a checkpoint."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import tiny_run
from tiny_run import Text, checkpoint_node, prepared

from lineage.artifact.store import Artifact
from lineage.build.nodes import Node, resolve, spec_of
from lineage.build.plan import build
from lineage.jobs.job import Job, read_job, write_job
from lineage.order.batches import BatchPhase, BatchSchedule
from trainer.scoring import load_scorer
from trainer.spec.config import RunSpec
from trainer.spec.optimizers import ClipUpdateNormConfig, EmaConfig, MuonConfig, SkipBadStepsConfig
from trainer.spec.schedules import CycleSchedule
from trainer.spec.stage import CheckpointConfig, step_partition
from trainer.train import train

ROOT = Path(__file__).resolve().parents[2]
RUN = replace(tiny_run.RUN, name="r", num_steps=90, save_every_steps=30)

NOTES = "attention blocked: the choice for cpu; layers unrolled: 1 on cpu, auto requested; repeats to the bit on one mesh (cpu)"


def checkpoint(step: int, run: RunSpec = RUN, vocab_size: int = 50) -> Node:
    return checkpoint_node(run, step, Text(vocab_size))


def trained(root: Path, node: Node) -> Artifact:
    """Train in this process: `build` would start one."""
    store = prepared(root, node)
    return train(Job(store, spec_of(store, node), {"mixture": resolve(store, next(iter(node.parents())))}, "f", ""))


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """A process is killed, which compiles as this one does; another process goes on and this one trains undisturbed."""
    final = checkpoint(RUN.num_steps)
    store = prepared(tmp_path / "killed", final)
    mixture = resolve(store, next(iter(final.parents())))
    job_file = tmp_path / "job.json"
    write_job(Job(store, spec_of(store, final), {"mixture": mixture}, "f", ""), job_file)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, "-m", "trainer", str(job_file)]

    def run(**faults: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=ROOT, env=environment | faults, stderr=subprocess.PIPE, text=True, check=False)

    killed = run(MARIN_FAULTS="kill@65")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert store.find(spec_of(store, checkpoint(30))) is not None, "the save at step 60 waits for this one's"
    assert store.find(spec_of(store, final)) is None
    ended = run()
    assert ended.returncode == 0, ended.stderr
    resumed, undisturbed = resolve(store, final), trained(tmp_path / "whole", final)
    assert resumed.data_version == undisturbed.data_version
    assert [a.spec.partition for a in store.artifacts("runs")] == [step_partition(s) for s in range(30, 91, 30)]


def test_a_checkpoint_scores_what_it_was_trained_on(tmp_path: Path) -> None:
    short = replace(RUN, num_steps=200, save_every_steps=200)
    node = checkpoint(200, short)
    artifact = trained(tmp_path, node)
    facts = artifact.manifest.extra["checkpoint"]
    assert facts["tokens_seen"] == 200 * 4 * 16
    assert facts["compute"]["attention"] == "blocked" and facts["compute"]["notes"] == NOTES
    assert facts["mesh"]["data"] == 1
    assert facts["loss_nats"] < 2.5 < np.log(50)
    scorer = load_scorer(artifact)
    sequences = [np.cumsum(np.ones(n, np.int32)) % 50 for n in (2, 7, 16)]
    together, alone = scorer.token_nll(sequences), [scorer.token_nll([s])[0] for s in sequences]
    for a, b, sequence in zip(together, alone, sequences, strict=True):
        assert a.shape == (len(sequence) - 1,)
        np.testing.assert_allclose(a, b, atol=1e-5)
    with pytest.raises(ValueError, match="2 to 16 can be scored"):
        scorer.token_nll([np.zeros(17, np.int32)])


@pytest.mark.slow
def test_a_run_with_all_that_a_spec_can_ask_for_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    rich = replace(
        RUN,
        optimizer=MuonConfig(),
        schedule=CycleSchedule(2e-2, 5, "linear", 10, cycles=(40, 80), rewarmup_steps=3),
        batch_size=(BatchPhase(0, 4), BatchPhase(30, 8), BatchPhase(50, 2)),
        microbatch_size=2,
        clip_update_norm=ClipUpdateNormConfig(8),
        skip_bad_steps=SkipBadStepsConfig(8, num_std=2.0),
        ema=EmaConfig(0.9),
        num_steps=80,
        save_every_steps=37,
    )
    store = prepared(tmp_path / "in parts", checkpoint(80, rich))
    first, final = (build(store, checkpoint(step, rich)).artifact for step in (37, 80))
    whole = build(prepared(tmp_path / "whole", checkpoint(80, rich)), checkpoint(80, rich)).artifact
    assert final.data_version == whole.data_version
    assert first.manifest.extra["checkpoint"]["tokens_seen"] == (30 * 4 + 7 * 8) * 16
    facts = final.manifest.extra["checkpoint"]
    assert facts["tokens_seen"] == (30 * 4 + 20 * 8 + 30 * 2) * 16
    assert BatchSchedule.from_record(facts["batch_size"]) == rich.batches
    metrics = pl.read_parquet(final.folder() / "metrics.parquet")
    assert metrics["tokens_seen"].to_list() == [rich.tokens_before(step) for step in range(1, 81)]
    assert metrics["skipped"].any() and not metrics["skipped"].all()
    raw, average = load_scorer(final).model, load_scorer(final, "ema").model
    assert not np.array_equal(raw.embedding.array, average.embedding.array)
    np.testing.assert_allclose(raw.embedding.array, average.embedding.array, atol=0.2)


@pytest.mark.slow
def test_weights_that_were_not_kept_are_refused(tmp_path: Path) -> None:
    short = replace(RUN, num_steps=5, save_every_steps=5)
    artifact = build(prepared(tmp_path, checkpoint(5, short)), checkpoint(5, short)).artifact
    with pytest.raises(ValueError, match=r"has no ema\.safetensors; its run spec sets no ema"):
        load_scorer(artifact, "ema")


def test_another_vocabulary_than_the_caches_stops_before_work(tmp_path: Path) -> None:
    node = checkpoint(RUN.num_steps, vocab_size=40)
    with pytest.raises(ValueError, match=r"model\.vocab_size is 50, the mixture's caches have 40"):
        trained(tmp_path, node)


def test_a_job_refuses_inputs_that_are_gone(tmp_path: Path) -> None:
    node = checkpoint(RUN.num_steps)
    store = prepared(tmp_path, node)
    mixture: Artifact = resolve(store, next(iter(node.parents())))
    write_job(Job(store, spec_of(store, node), {"mixture": mixture}, "f", ""), tmp_path / "job.json")
    store.delete(mixture)
    with pytest.raises(ValueError, match="is gone; materialize it again"):
        read_job(tmp_path / "job.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; it must be positive"),
        ({"save_every_steps": -1}, "run.save_every_steps is -1; it must be positive, or None"),
        ({"seq_len": 17}, "run.seq_len is 17; it must be in 2..16"),
        ({"num_steps": 4}, "schedule.warmup_steps is 5; it must be <= num_steps 4"),
        ({"z_loss_weight": -0.5}, "run.z_loss_weight is -0.5; it must be at least 0"),
    ],
)
def test_a_bad_run_config_names_field_value_and_what_is_allowed(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        replace(RUN, **change)


@pytest.mark.parametrize("step", [0, RUN.num_steps + 1])
def test_a_checkpoint_outside_its_run_is_refused(step: int) -> None:
    with pytest.raises(ValueError, match=f"checkpoint step is {step}; run r takes 1 to {RUN.num_steps} steps"):
        CheckpointConfig(RUN, step)
