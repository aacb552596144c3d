"""Train the runs of a study in worker processes, one on each core, and say what is done and what is left.

Runs as small as these are as fast on one core as on two, so two at a time take half the time: 83,000 tokens/s on two cores and
87,000 on one, for width 32, 512 tokens a step (2026-11-25, two cores).
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax

from lineage.artifact.store import Artifact, Store
from lineage.build.plan import Node, ancestors_first, build, exists, resolve, spec_of
from lineage.jobs.job import Job
from lineage.shards.worker_pool import WorkerPool
from lineage.shards.workers import Failed, WorkerDied, call_catching
from trainer.progress import LogLines
from trainer.running import Running
from trainer.signals import Stop
from trainer.trial import run_trial

ROLLING_SECONDS = 60.0
log = logging.getLogger("isoflop")


@dataclass
class Progress:
    """What is done of the runs of a study."""

    total: int
    done: int = 0
    reused: int = 0
    started: float = field(default_factory=time.perf_counter)

    def tell(self, name: str, what: str, seconds: float, *, reused: bool) -> None:
        """Log a line: done, reused, left, and how long the rest takes if it is like what was trained here."""
        self.done, self.reused = self.done + 1, self.reused + reused
        spent, trained = time.perf_counter() - self.started, self.done - self.reused
        left = f", about {spent / trained * (self.total - self.done):.0f} s left" if trained else ""
        log.info(
            "%s: %s%s; %d of %d runs done, %d of them reused, %.0f s%s",
            name, what, "" if reused else f" in {seconds:.1f} CPU s", self.done, self.total, self.reused, spent, left,
        )  # fmt: skip


def build_here(store: Store, node: Node) -> Artifact:
    """Build a node and its ancestors, training in this process; what exists is reused."""
    for ancestor in ancestors_first([node]):
        if exists(store, ancestor):
            continue
        if ancestor.stage.job is None:
            build(store, ancestor)
            continue
        inputs = {name: resolve(store, parent) for name, parent in ancestor.inputs.items() if isinstance(parent, Node)}
        job = Job(store, spec_of(store, ancestor), dict(inputs), "isoflop", "")
        run_trial(job, Running(rolling_seconds=ROLLING_SECONDS), Stop(), lambda seconds: None, LogLines())
    return resolve(store, node)


def build_in_worker(root: Path, node: Node) -> float:
    """Build a node in this worker process; its CPU seconds."""
    logging.getLogger("jax").setLevel(logging.ERROR)
    compile_once(root / "compilations")
    before = time.process_time()
    build_here(store_of(root), node)
    return time.process_time() - before


def build_runs(root: Path, nodes: Mapping[str, Node], workers: int) -> Iterator[tuple[str, Artifact, float, bool]]:
    """Build results of runs by name, several at a time: (name, result, CPU seconds, whether it existed), as they end.

    What the runs read must exist: two workers would build it twice. Nodes start in their order, so give the longest first.

    Raises: RuntimeError that names the run that failed, or whose worker died.
    """
    store = store_of(root)
    missing = {name: node for name, node in nodes.items() if not exists(store, node)}
    for name in nodes.keys() - missing.keys():
        yield name, resolve(store, nodes[name]), 0.0, True
    calls = {name: (call_catching, (build_in_worker, (root, node))) for name, node in missing.items()}
    with WorkerPool() as pool:
        for name, answer in pool.run(calls, workers, None):
            if isinstance(answer, Failed | WorkerDied):
                raise RuntimeError(f"run {name}: {answer}")
            assert isinstance(answer, float)
            yield name, resolve(store, missing[name]), answer, False


def build_data(store: Store, nodes: Sequence[Node]) -> None:
    """Build the text and the mixtures that some runs read."""
    for node in ancestors_first(nodes):
        if node.key[0] in ("text", "mixture"):
            build_here(store, node)


def store_of(root: Path) -> Store:
    return Store(str(root / "store"))


def compile_once(folder: Path) -> None:
    """Keep compiled programs below the root, so that a resumed study does not compile its shapes again."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
