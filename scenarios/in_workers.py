"""Build many runs at a time: each in a worker process, which trains and scores itself.

A start of a job costs seconds (Python, JAX, the graph); a worker starts once and takes many runs.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from evals.items.stage import TRIAL_RESULT
from evals.tasks.trial_result import score_trial
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, ancestors_first, exists, resolve
from lineage.build.plan import build
from lineage.jobs.child_processes import run_subprocess
from lineage.jobs.job import LaunchRecord, LaunchRequest, read_job
from lineage.shards.execution import Execution
from lineage.shards.worker_pool import WorkerPool
from lineage.shards.workers import Failed, WorkerDied, call_catching

ROLLING_SECONDS = 60.0


@dataclass(frozen=True)
class Made:
    """A run's last artifact. `seconds`: CPU seconds of its worker; None if it existed."""

    node: Node
    artifact: Artifact
    seconds: float | None


def build_in_workers(
    store: Store, nodes: Sequence[Node], workers: int, run_id: str, is_shared: Callable[[Node], bool]
) -> Iterator[Made]:
    """Build the last nodes of runs, several at a time, and yield each as it ends; what exists is reused.

    The parent builds the ancestors for which `is_shared` holds first, because two workers would build them twice. Nodes start
    in their order, so give the longest first.
    Raises: RuntimeError that names the run that failed, or whose worker died.
    """
    for node in ancestors_first(nodes):
        if is_shared(node):
            build(store, node, launcher=run_subprocess, execution=Execution(workers), run_id=run_id)
    missing = {}
    for number, node in enumerate(nodes):
        if exists(store, node):
            yield Made(node, resolve(store, node), None)
        else:
            missing[str(number)] = node
    calls = {name: (call_catching, (build_here, (store, node, run_id))) for name, node in missing.items()}
    with WorkerPool() as pool:
        for name, answer in pool.run(calls, workers, None):
            node = missing[name]
            if isinstance(answer, Failed | WorkerDied):
                raise RuntimeError(f"{node.name}: {answer}")
            assert isinstance(answer, float)
            yield Made(node, resolve(store, node), answer)


def build_here(store: Store, node: Node, run_id: str) -> float:
    """Build a node and what is missing above it in this process; its CPU seconds."""
    before = time.process_time()
    for each in ancestors_first([node]):
        if not exists(store, each):
            build(store, each, launcher=run_here, run_id=run_id)
    return time.process_time() - before


def run_here(launch: LaunchRequest) -> LaunchRecord:
    """The launcher of a worker: run the job of a run or of a trial's result in this process."""
    import jax  # the parent needs none of these

    from trainer.programs import keep_programs
    from trainer.progress import LogLines
    from trainer.running import Running
    from trainer.signals import Stop
    from trainer.trial import run_trial

    logging.getLogger("jax").setLevel(logging.ERROR)
    job = read_job(launch.job_path)
    keep_programs(job.store.scratch / "compiled", jax.default_backend(), many=True)  # all runs of one shape share a program
    if job.spec.stage == TRIAL_RESULT.name:
        score_trial(job)
    else:
        run_trial(job, Running(rolling_seconds=ROLLING_SECONDS), Stop(), lambda seconds: None, LogLines())
    return LaunchRecord("worker process", "this machine", ())
