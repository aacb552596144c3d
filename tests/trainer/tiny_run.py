"""A run of seconds as a job, shared by tests of running."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from tiny import tiny_model, tiny_spec

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve, spec_of
from lineage.build.plan import build_all
from lineage.jobs.job import Job, write_job
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.token_shards import tokens_extra, write_token_shard
from lineage.stage import Stage
from lineage.upkeep.mirror import mirror
from lineage.writing.writer import Writer
from trainer.processes import COORDINATOR, INDEX, PROCESSES
from trainer.spec.config import RunSpec
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec.stage import CHECKPOINT, CheckpointConfig, step_partition

ROOT = Path(__file__).resolve().parents[2]
RUN = tiny_spec(
    name="tiny",
    model=tiny_model(vocab_size=50, hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2),
    schedule=WarmupStableDecay(peak_learning_rate=1e-2, warmup_steps=5, decay_frac=0.5),
)
SHORT = replace(RUN, num_steps=12)
"""Tests of short runs share it, and with it one compiled step: other numbers of steps are other programs."""


@dataclass(frozen=True)
class Text:
    """A component of counting sequences."""

    vocab_size: int
    length: int = 400
    """Tokens of a document."""


COUNTING = Text(50)


def write_text(out: Writer, config: Text) -> None:
    rng = np.random.default_rng(0)
    starts = range(8000 // config.length)
    documents = [(f"{i:032x}", np.cumsum(rng.integers(1, 3, config.length)) % config.vocab_size) for i in starts]
    shard = write_token_shard(out.folder, "s", documents, "uint16")
    out.facts["tokens"] = tokens_extra("text", "uint16", config.vocab_size, "tok", None, None, [shard])


TEXT = Stage("tests.text", "1", write_text)


def checkpoint_node(run: RunSpec, step: int, text: Text = COUNTING) -> Node:
    """The checkpoint of a run at a step, over one component of text."""
    cache = Node(("cache",), None, TEXT, text)
    mixture = Node(("mixture",), None, MIXTURE, MixtureConfig("m", (Phase(0, {"text": 1.0}),), seed=1), {"caches": (cache,)})
    place = ("runs", run.name, "checkpoint"), step_partition(step)
    return Node(*place, CHECKPOINT, CheckpointConfig(run, step), {"mixture": mixture})


def prepared(root: Path, node: Node) -> Store:
    """A store with all that a node is made from."""
    store = Store(str(root))
    build_all(store, node.parents())
    return store


def job_of(root: Path, run: RunSpec, step: int | None = None, text: Text = COUNTING) -> Job:
    """Return a run's job (to its last step by default), with its inputs built and its file at `root/job.json`."""
    node = checkpoint_node(run, step or run.num_steps, text)
    store = prepared(root, node)
    job = Job(store, spec_of(store, node), {"mixture": resolve(store, next(iter(node.parents())))}, "f", "")
    write_job(job, root / "job.json")
    return job


def job_in_bucket(root: Path, run: RunSpec, store: Store) -> Job:
    """The run's job over data that was copied into a bucket, its file at `root/job.json`."""
    node = checkpoint_node(run, run.num_steps)
    local = prepared(root / "data", node)
    (mixture,) = (resolve(local, parent) for parent in node.parents())
    list(mirror(mixture, store, "test"))
    job = Job(store, spec_of(store, node), {"mixture": resolve(store, next(iter(node.parents())))}, "f", "")
    write_job(job, root / "job.json")
    return job


def at_step(job: Job, step: int) -> Artifact | None:
    """The kept checkpoint of a job's run at a step."""
    config = {**job.spec.config, "step": step}
    return job.store.find(replace(job.spec, partition=step_partition(step), config=config))


def metrics_of(checkpoint: Artifact) -> pl.DataFrame:
    return pl.read_parquet(checkpoint.folder() / "metrics.parquet")


def started(
    root: Path, environment: Mapping[str, str] | None = None, processes: int = 1, jobs: Sequence[Path] = ()
) -> list[subprocess.Popen]:
    """`python -m trainer job.json`, in so many processes that meet on this machine; their output in `root/N.log`.

    `jobs` are job files of each process's own, as machines have them.

    What one has compiled the next one finds: compiling is most of what a start of this model costs.
    """
    compiled = {"JAX_COMPILATION_CACHE_DIR": str(root.parent / "compiled"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    base = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", **compiled, **(environment or {})}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    gang = {"JAX_COORDINATOR_BIND_ADDRESS": address, PROCESSES: str(processes), COORDINATOR: address}
    begun = []
    for index in range(processes):
        own = base | (gang | {INDEX: str(index)} if processes > 1 else {})
        with (root / f"{index}.log").open("w") as log:
            command = [sys.executable, "-m", "trainer", str(jobs[index] if jobs else root / "job.json")]
            begun.append(subprocess.Popen(command, cwd=ROOT, env=own, stdout=log, stderr=subprocess.STDOUT))
    return begun


def ended(begun: list[subprocess.Popen], timeout: float = 900) -> list[int]:
    """Exit codes, once all have ended."""
    return [process.wait(timeout) for process in begun]


def log_of(root: Path, index: int = 0) -> str:
    return (root / f"{index}.log").read_text()
