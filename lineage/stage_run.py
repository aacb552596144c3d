"""Run a stage in this process: a new artifact, one that a killed attempt left, or one that was made without some shards."""

import shlex
import sys
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from lineage.evidence import drift_of
from lineage.failures import IncompleteError, ShardFailure
from lineage.fan_out import FanOut, run_map, together
from lineage.fingerprint import stage_code
from lineage.incomplete import clear_incomplete, leave_out, read_incomplete, record_incomplete
from lineage.jobs import Job, Launched, Listener, job_folder, write_job
from lineage.stage import Stage
from lineage.store import Artifact
from lineage.writer import Writer, adopt_shards


def run_here(
    stage: Stage,
    config: object,
    job: Job,
    lacking: Artifact | None = None,
    fan_out: FanOut | None = None,
    listener: Listener | None = None,
) -> tuple[Artifact, Launched | None]:
    """Run a stage's function and commit what it made; and where its shards ran, if runners did them.

    `lacking` was made without some shards: it is completed and replaced. Raises: IncompleteError, on record where the artifact
    would be; what the stage raises.
    """
    assert stage.run is not None  # a stage has exactly one of run and job
    store, spec = job.store, job.spec
    earlier = read_incomplete(store, spec.address)
    ran: list[Launched] = []
    try:
        with job.writing(spec, replacing=lacking) as out:
            if earlier is not None:
                leave_out(store, out, earlier)
            if lacking is not None and drift_of(lacking, stage_code(stage.module)) is None:
                adopt_shards(out, lacking)
            if fan_out is not None:
                out.fan_out = partial(_by_runners, fan_out, stage.module, job, out, ran, listener)
            stage.run(out, config, **job.inputs)
    except IncompleteError as error:
        told = error.told(lambda shard: shard_command(stage.module, job, shard))
        record_incomplete(store, spec, told, job.run_id)
        raise told from None
    if earlier is not None and not out.artifact.manifest.omitted:
        clear_incomplete(store, spec)
    return out.artifact, together(ran)


def _by_runners(
    fan_out: FanOut,
    module: str,
    job: Job,
    out: Writer,
    ran: list[Launched],
    listener: Listener | None,
    missing: Collection[str],
) -> Mapping[str, ShardFailure]:
    assert out.shared is not None  # `Store.writing` gives it
    failed, launched = run_map(fan_out, module, job, out.shared, missing, listener)
    ran += launched
    return failed


def shard_command(module: str, job: Job, shard: str) -> str:
    """The command that runs one shard of a stage alone, in the foreground; its job file is written."""
    return shlex.join([sys.executable, "-m", "lineage.shard_runner", module, str(write_shard_job(job)), "--only", shard])


def write_shard_job(job: Job) -> Path:
    """Write what `lineage.shard_runner` reads, below the store's scratch folder; its path."""
    path = (job_folder(job) / "job.json").absolute()
    write_job(job, path)
    return path
