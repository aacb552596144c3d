"""Build many trials at a time: each in a worker process, which runs training and scoring itself.

A start of a job costs seconds (Python, JAX, the graph); a worker starts once and takes many trials.
"""

import logging
from collections.abc import Iterator, Sequence

from evals.items.stage import TRIAL_RESULT
from evals.tasks.trial_result import score_trial
from lineage.artifact.store import Artifact, Store
from lineage.build.plan import Node, ancestors_first, build, exists, resolve
from lineage.jobs.child_processes import run_subprocess
from lineage.jobs.job import LaunchRecord, LaunchRequest, read_job
from lineage.shards.execution import Execution
from lineage.shards.worker_pool import WorkerPool
from lineage.shards.workers import Failed, WorkerDied, call_catching

PLACES = ("trial", "result")
"""Last part of the keys of trials and results; all else is data, which the parent builds before."""
ROLLING_SECONDS = 120.0


def build_trials(store: Store, nodes: Sequence[Node], workers: int, run_id: str) -> Iterator[tuple[str, Artifact]]:
    """Build results of trials and what is missing above them; yields (trial, result) as they end.

    Raises: RuntimeError that names the trial that failed, or whose worker died.
    """
    for node in ancestors_first(nodes):
        if node.key[-1] not in PLACES:
            build(store, node, launcher=run_subprocess, execution=Execution(workers), run_id=run_id)
    missing = {}
    for node in nodes:
        if exists(store, node):
            yield str(node.partition), resolve(store, node)
        else:
            missing[str(node.partition)] = node
    calls = {name: (call_catching, (build_here, (store, node, run_id))) for name, node in missing.items()}
    with WorkerPool() as pool:
        for name, answer in pool.run(calls, workers, None):
            if isinstance(answer, Failed | WorkerDied):
                raise RuntimeError(f"trial {name}: {answer}")
            yield name, resolve(store, missing[name])


def build_here(store: Store, node: Node, run_id: str) -> None:
    """Build a result and its trial in this process."""
    for each in ancestors_first([node]):
        if each.key[-1] in PLACES:
            build(store, each, launcher=run_here, run_id=run_id)


def run_here(launch: LaunchRequest) -> LaunchRecord:
    """The launcher of a worker: run the job of a trial or of its result in this process."""
    import jax  # the parent needs neither

    from trainer.progress import LogLines
    from trainer.running import Running
    from trainer.signals import Stop
    from trainer.trial import run_trial

    logging.getLogger("jax").setLevel(logging.ERROR)
    job = read_job(launch.job_path)
    jax.config.update("jax_compilation_cache_dir", str(job.store.scratch / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)  # all trials of one shape share a program
    if job.spec.stage == TRIAL_RESULT.name:
        score_trial(job)
    else:
        run_trial(job, Running(rolling_seconds=ROLLING_SECONDS), Stop(), lambda seconds: None, LogLines())
    return LaunchRecord("worker process", "this machine", ())
