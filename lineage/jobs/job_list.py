"""A job list: one file with the job files of many jobs, which one process runs one after another, wherever it is launched.

    {"job_list": 1, "jobs": {"sweeps-rates-trial-lr0.001-1f0c2d3e4b5a": {"job": 2, ...}, ...}}

A launcher launches it like one job file. The process names each job that starts (`lineage.jobs.given_jobs.started_job`).
"""

import json
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lineage.jobs.job import Job, JobOptions, Launcher, LaunchRecord, LaunchRequest, Listener, job_record
from lineage.storage.digests import identity_digest
from lineage.strangers import json_object, naming

FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")


def launch_list(
    module: str, jobs: Sequence[Job], asked: Collection[str], launcher: Launcher, options: JobOptions, listener: Listener
) -> LaunchRecord:
    """Launch the jobs as one, and return where it ran. Raises: JobFailedError, also if some of the jobs ended well.

    `asked` are the identities of all artifacts that were asked for, those that exist included: a launch that asks for the
    same ones adopts the job of a step that died, whatever that job has made meanwhile.
    """
    first = jobs[0]
    digest = identity_digest(["job list", *sorted(asked)])
    folder = first.store.scratch / "jobs" / digest
    write_list(jobs, folder / "job.json")
    return launcher(
        LaunchRequest(
            module,
            folder / "job.json",
            folder / "log.txt",
            f"{'/'.join(first.spec.key)} ({len(jobs)} jobs)",
            digest,
            first.code_fingerprint,
            options.hardware,
            options.arguments,
            options.on_hardware,
            listener=listener,
        )
    )


def name_in_list(job: Job) -> str:
    """The name of a job in a list: words for people, and the start of its identity."""
    words = re.sub(r"[^A-Za-z0-9.]+", "-", job.spec.name).strip("-.")
    return f"{words[:80]}-{job.spec.version[:12]}"


def write_list(jobs: Sequence[Job], path: Path) -> None:
    """Write the file that `job_files` reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"job_list": FORMAT, "jobs": {name_in_list(job): job_record(job) for job in jobs}}))


@contextmanager
def job_files(files: Sequence[str]) -> Iterator[list[str]]:
    """Yield the files, with a file for each of its jobs in place of a job list; these last until the block ends.

    Raises: ValueError naming a list that cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="marin-jobs-") as scratch:
        yield [each for number, file in enumerate(files) for each in _files_of(file, Path(scratch, str(number)))]


def _files_of(file: str, folder: Path) -> list[str]:
    jobs = _listed(file)
    if jobs is None:
        return [file]
    folder.mkdir()
    paths = {folder / f"{name}.json": job for name, job in jobs.items()}
    for path, job in paths.items():
        path.write_text(json.dumps(job))
    return list(map(str, paths))


def _listed(file: str) -> Mapping[str, Any] | None:
    """The job files in a job list by name; None for any other file, whose reader says what is wrong with it."""
    path = Path(file)
    if not path.is_file() or '"job_list"' not in (text := path.read_text(errors="replace")):
        return None
    record = json_object(text, file)
    if "job_list" not in record:
        return None
    with naming(file):
        form, jobs = record["job_list"], record["jobs"]
    if form != FORMAT:
        raise ValueError(f"{file}: the format of the job list is {form!r}, this checkout reads {FORMAT}; write the list again")
    if not isinstance(jobs, dict) or not jobs or not all(_NAME.fullmatch(name) for name in jobs):
        raise ValueError(
            f"{file}: jobs is {str(jobs)[:80]}; an object of job files is allowed, at least one, with names of letters, "
            "digits, periods and hyphens"
        )
    return jobs
