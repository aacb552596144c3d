"""Run a stage in this process: for a new artifact, after a killed attempt, or to complete an artifact without some shards."""

import shlex
import sys
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits

from lineage.artifact.store import Artifact
from lineage.build.fan_out import FanOut, run_map, together
from lineage.build.incomplete import clear_incomplete, leave_out, read_incomplete, record_incomplete
from lineage.jobs.job import Job, LaunchRecord, Listener, job_folder, write_job
from lineage.project import PREFIX
from lineage.shards.failures import IncompleteError, ShardFailure
from lineage.stage import Stage
from lineage.trust.evidence import drift_of
from lineage.trust.fingerprint import stage_code
from lineage.writing.writer import Writer, adopt_shards


def run_here(
    stage: Stage,
    config: object,
    job: Job,
    lacking: Artifact | None = None,
    fan_out: FanOut | None = None,
    listener: Listener | None = None,
) -> tuple[Artifact, LaunchRecord | None]:
    """Run a stage's function and commit the artifact. Returns it, and where its shards ran if runners did them.

    `lacking` is an artifact made without some shards: it is completed and replaced.
    Raises: IncompleteError, which is also recorded at the artifact's address; what the stage raises.
    """
    assert stage.run is not None  # a stage has exactly one of run and job
    store, spec = job.store, job.spec
    earlier = read_incomplete(store, spec.address)
    ran: list[LaunchRecord] = []
    try:
        # Small matrices lose time to threads (fits of a swarm: 51 CPU s with two, 26 with one, in the same 27 s; 103 with two
        # on a busy machine), and the last bits of a sum would depend on the number of cores. Workers have one core anyway.
        with threadpool_limits(1, user_api="blas"), job.writing(spec, replacing=lacking) as out:
            if earlier is not None:
                leave_out(store, out, earlier)
            if lacking is not None and drift_of(lacking, stage_code(stage.module)) is None:
                adopt_shards(out, lacking)
            if fan_out is not None:
                out.fan_out = partial(_by_runners, fan_out, stage.module, job, out, ran, listener)
            stage.run(out, config, **job.inputs)
    except IncompleteError as error:
        with_commands = error.with_commands(lambda shard: shard_command(stage.module, job, shard))
        record_incomplete(store, spec, with_commands, job.run_id)
        raise with_commands from None
    if earlier is not None and not out.artifact.manifest.omitted:
        clear_incomplete(store, spec)
    return out.artifact, together(ran)


def _by_runners(
    fan_out: FanOut,
    module: str,
    job: Job,
    out: Writer,
    ran: list[LaunchRecord],
    listener: Listener | None,
    missing: Collection[str],
) -> Mapping[str, ShardFailure]:
    assert out.shared is not None  # `lineage.writing` sets it
    failed, launched = run_map(fan_out, module, job, out.shared, missing, listener)
    ran += launched
    return failed


def shard_command(module: str, job: Job, shard: str) -> str:
    """Return a command that runs one shard of a stage in the foreground, and write its job file."""
    return shlex.join(
        [sys.executable, "-m", f"{PREFIX}lineage.build.shard_runner", module, str(write_shard_job(job)), "--only", shard]
    )


def write_shard_job(job: Job) -> Path:
    """Write the job file for `lineage.build.shard_runner` below the store's scratch folder, and return its path."""
    path = (job_folder(job) / "job.json").absolute()
    write_job(job, path)
    return path
