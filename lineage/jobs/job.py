"""Jobs: stages that run as their own process, `python -m trainer job.json`, on a laptop or in a pod.

The job file names the store, the identity to make and the resolved inputs. The process commits the artifact itself, so its
launcher needs no message back: it looks in the store. Inputs are fixed in the file and checked again when it is read.
A launcher decides where a job runs: `lineage.jobs.child_processes` is the plain one, `resources/` has those of clusters.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lineage.artifact.spec import ArtifactSpec, InputRef
from lineage.artifact.store import Artifact, Store
from lineage.jobs.regions import guard_reads
from lineage.messages import ProgressMessage, note_of
from lineage.shards.execution import ONE_WORKER, Execution
from lineage.shards.measure import Meter
from lineage.shards.run import ShardLimits
from lineage.stage import RequiredAncestors
from lineage.strangers import json_object, naming
from lineage.trust.gate import check_launch, utc_today
from lineage.trust.verdict_log import HEAD, read_head
from lineage.writing.write import writing
from lineage.writing.writer import Writer

log = logging.getLogger(__name__)

JOB_FORMAT = 2

type Inputs = Mapping[str, Artifact | tuple[Artifact, ...]]
type Listener = Callable[[ProgressMessage], None]
type Launcher = Callable[["LaunchRequest"], "LaunchRecord"]
"""Runs a job to its end, its output copied to a log file; raises JobFailedError when it fails."""


@dataclass(frozen=True)
class JobOptions:
    """Execution options of a job; not part of the identity. `LaunchRequest` has fields of the same names."""

    hardware: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    on_hardware: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class LaunchRequest:
    """What a launcher runs: `python -m module job.json`."""

    module: str
    job_path: Path
    log_path: Path
    name: str
    """Name of the artifact, for people."""

    digest: str
    """Identity of the artifact: two launches with one digest are one job."""

    code: str = ""
    """Fingerprint of the code that will run."""

    hardware: tuple[str, ...] = ()
    """Names in order of preference (`recipes/hardware.py`); empty: where the launcher runs."""

    arguments: tuple[str, ...] = ()
    """Arguments of the module before the job file."""

    on_hardware: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Extra arguments by hardware name, in front of the others."""

    indices: int = 0
    """Number of independent processes, each with its number in JOB_COMPLETION_INDEX; 0: one process without a number."""

    listener: Listener | None = field(default=None, compare=False)
    """Optional callback for progress messages."""

    def arguments_on(self, hardware: str) -> tuple[str, ...]:
        """Return the module's arguments on the hardware of a name."""
        return (*self.on_hardware.get(hardware, ()), *self.arguments)

    def format_log_line(self, line: str) -> str:
        """Return a line of the job's output for its log. A progress message goes to the listener and becomes readable text.

        If the listener fails, the message is lost and the job goes on.
        """
        note = note_of(line)
        if note is None:
            return line
        if self.listener is not None:
            try:
                self.listener(note)
            except Exception:  # an error of Dagster's log or of a plot: it is logged, and the job goes on
                log.exception("%s: the listener failed at a message: %s", self.name, note)
        return f"{note}\n"


@dataclass(frozen=True)
class Attempt:
    """One try of a job: where it ran and how it ended ("done", or why not)."""

    number: int
    place: str
    seconds: float
    ended: str


@dataclass(frozen=True)
class LaunchRecord:
    """Where a job ran, on what, and every attempt it took."""

    place: str
    hardware: str
    attempts: tuple[Attempt, ...]


class JobFailedError(RuntimeError):
    """A job failed finally; the message lists every attempt, and `launched` has their records."""

    def __init__(self, message: str, launched: LaunchRecord | None = None):
        super().__init__(message)
        self.launched = launched


@dataclass(frozen=True)
class JobResult:
    """The artifact that a job committed, and how it ran."""

    artifact: Artifact
    launched: LaunchRecord


@dataclass(frozen=True)
class Job:
    """The contents of a job file. Inputs given as a tuple have refs named `name.0`, `name.1`, ..."""

    store: Store
    spec: ArtifactSpec
    inputs: Inputs
    code_fingerprint: str
    run_id: str
    gate: RequiredAncestors | None = None
    """What the gate of its stage requires; None if the stage has no gate."""
    waivers: tuple[Mapping[str, Any], ...] = ()
    """Waivers that the gate used when the job was read, or, without a gate, waivers for inputs with missing shards."""
    packages: tuple[str, ...] = ()
    """Distributions that the stage's code imports: the process records their versions in the manifest."""
    execution: Execution = ONE_WORKER
    """How the process runs shards."""

    def is_made(self) -> bool:
        """Whether its artifact is there, with all its shards."""
        made = self.store.find(self.spec)
        return made is not None and not made.manifest.omitted

    @contextmanager
    def writing(self, spec: ArtifactSpec, meter: Meter | None = None, replacing: Artifact | None = None) -> Iterator[Writer]:
        """Write an artifact of this job (its own, or an earlier checkpoint of the same run)."""
        code = self.code_fingerprint
        with writing(self.store, spec, code, self.run_id, meter, self.waivers, self.packages, replacing, self.execution) as out:
            if self.gate is not None:
                out.extra[HEAD] = asdict(read_head(self.store))  # a log that is shorter later was cut
            yield out


def write_job(job: Job, path: Path) -> None:
    """Write the job file that `read_job` reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(job_record(job), indent=1))


def job_record(job: Job) -> dict[str, Any]:
    """Return the contents of a job file."""
    spec = job.spec
    execution = {"workers": job.execution.workers, "limits": asdict(job.execution.limits)}
    return {
        "job": JOB_FORMAT,
        "store": asdict(job.store),
        "execution": execution,
        "key": spec.key,
        "partition": spec.partition,
        "stage": spec.stage,
        "stage_version": spec.stage_version,
        "config": spec.config,
        "inputs": [asdict(ref) for ref in spec.inputs],
        "tuples": [name for name, value in job.inputs.items() if isinstance(value, tuple)],
        "code_fingerprint": job.code_fingerprint,
        "run_id": job.run_id,
        "gate": job.gate,
        "waivers": list(job.waivers),
        "packages": list(job.packages),
    }


def read_job(path: Path) -> Job:
    """Read a job file, open its inputs, and check the gate again.

    Raises: ValueError naming an input that is gone or has other bytes; GateError naming every unfit ancestor; ForeignReadError
    of inputs in another region's bucket (`lineage.jobs.regions`).
    """
    with naming(str(path)):
        record = json_object(path.read_text(), str(path))
        if record["job"] != JOB_FORMAT:
            raise ValueError(f"{path}: job format is {record['job']}, this checkout reads {JOB_FORMAT}; write the job again")
        store = Store(**record["store"])
        if not isinstance(store.root, str):
            raise ValueError(f"{path}: store.root is {store.root!r}; a folder or a URL is allowed")
        execution = Execution(record["execution"]["workers"], ShardLimits(**record["execution"]["limits"]))
        refs = tuple(InputRef.from_record(ref) for ref in record["inputs"])
        spec = ArtifactSpec(
            key=tuple(record["key"]),
            partition=record["partition"],
            stage=record["stage"],
            stage_version=record["stage_version"],
            config=record["config"],
            inputs=refs,
        )
        groups: dict[str, tuple[Artifact, ...]] = dict.fromkeys(record["tuples"], ())
        gate, waivers, packages = record["gate"], tuple(record.get("waivers", ())), tuple(record.get("packages", ()))
        code, run_id = record["code_fingerprint"], record["run_id"]
    inputs: dict[str, Artifact | tuple[Artifact, ...]] = {}
    for ref in refs:
        artifact = store.open_equal(ref)
        if artifact is None:
            there = store.open(ref.address)
            state = "is gone" if there is None else f"now has data version {there.data_version}"
            raise ValueError(f"{spec.name}: input {ref.address} ({ref.data_version}) {state}; materialize it again")
        group = ref.name.rpartition(".")[0]
        if group in groups:
            groups[group] = (*groups[group], artifact)
        else:
            inputs[ref.name] = artifact
    guard_reads(store, spec.name, _artifacts(inputs | groups))
    if gate is not None:
        waivers = tuple(check_launch(store, spec.name, refs, gate, utc_today()))
    return Job(store, spec, inputs | groups, code, run_id, gate, waivers, packages, execution)


def job_folder(job: Job) -> Path:
    """Return the folder of a job's file and log."""
    return job.store.scratch / "jobs" / job.spec.version


def launch_of(module: str, job: Job, options: JobOptions | None = None, listener: Listener | None = None) -> LaunchRequest:
    """Write a job's file below the store's scratch folder and return the request for a launcher."""
    how = options or JobOptions()
    folder = job_folder(job)
    write_job(job, folder / "job.json")
    return LaunchRequest(
        module,
        folder / "job.json",
        folder / "log.txt",
        job.spec.name,
        job.spec.version,
        job.code_fingerprint,
        how.hardware,
        how.arguments,
        how.on_hardware,
        listener=listener,
    )


def _artifacts(inputs: Inputs) -> Iterator[Artifact]:
    for value in inputs.values():
        yield from value if isinstance(value, tuple) else (value,)


def run_job(
    module: str, job: Job, launcher: Launcher, options: JobOptions | None = None, listener: Listener | None = None
) -> JobResult:
    """Run `python -m module job.json` by the launcher and return the artifact that it committed.

    Raises: RuntimeError if it exited 0 but committed nothing."""
    launch = launch_of(module, job, options, listener)
    launched = launcher(launch)
    artifact = job.store.find(job.spec)
    if artifact is None:
        raise RuntimeError(f"{launch.name}: `python -m {module}` exited 0 but committed nothing; see {launch.log_path}")
    return JobResult(artifact, launched)
