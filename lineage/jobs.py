"""Jobs: a stage that runs as its own process, `python -m trainer job.json`, on a laptop and on a pod alike.

The job file names the store, the identity to make and the resolved inputs; the process commits the artifact itself, so
whoever started it needs no message back: it looks in the store. Inputs are frozen here and checked again when read.
Where a job runs is the launcher's business: `lineage.child_processes` has the plain one, `resources/` those of clusters.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lineage.gate import admit, today
from lineage.measure import Meter
from lineage.messages import Note, note_of
from lineage.regions import guard_reads
from lineage.shards import ShardLimits
from lineage.spec import ArtifactSpec, InputRef
from lineage.stage import Needs
from lineage.store import Artifact, Store
from lineage.writer import Writer
from lineage.writing import writing

log = logging.getLogger(__name__)

type Inputs = Mapping[str, Artifact | tuple[Artifact, ...]]
type Listener = Callable[[Note], None]
type Launcher = Callable[["Launch"], "Launched"]
"""Runs a job to its end, its output copied to a log file; raises RuntimeError when it fails."""


@dataclass(frozen=True)
class Told:
    """How a job runs, in no identity: the fields of `Launch` of the same names."""

    hardware: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    on_hardware: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Launch:
    """What a launcher is asked to run: `python -m module job.json`."""

    module: str
    job_path: Path
    log_path: Path
    name: str
    """Of the artifact, for people."""

    digest: str
    """Identity of what it makes: two launches of one digest are one job."""

    code: str = ""
    """Fingerprint of the code that is to run."""

    hardware: tuple[str, ...] = ()
    """Names in order of preference (`recipes/hardware.py`); empty: wherever the launcher is."""

    arguments: tuple[str, ...] = ()
    """What the module is told before the job file."""

    on_hardware: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What it is told first where the launcher chooses the hardware of a name."""

    indices: int = 0
    """So many processes that need not meet, each with its number in JOB_COMPLETION_INDEX; 0: one, without a number."""

    listener: Listener | None = field(default=None, compare=False)
    """Hears how far the job is, where somebody wants to know."""

    def arguments_on(self, hardware: str) -> tuple[str, ...]:
        """What the module is told on the hardware of a name."""
        return (*self.on_hardware.get(hardware, ()), *self.arguments)

    def said(self, line: str) -> str:
        """A line of the job's output as its log has it; a message is handed on, and told in words.

        A listener that cannot take it costs the message, not the job that is being watched.
        """
        note = note_of(line)
        if note is None:
            return line
        if self.listener is not None:
            try:
                self.listener(note)
            except Exception:  # of Dagster's log or a page that draws: the trace is told, the job goes on
                log.exception("%s: a message was not taken: %s", self.name, note)
        return f"{note}\n"


@dataclass(frozen=True)
class Attempt:
    """One try of a job: where it ran and how it ended ("done", or why not)."""

    number: int
    place: str
    seconds: float
    ended: str


@dataclass(frozen=True)
class Launched:
    """Where a job ran, on what, and every attempt it took."""

    place: str
    hardware: str
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True)
class Ran:
    """What a job committed and how it came to be."""

    artifact: Artifact
    launched: Launched


@dataclass(frozen=True)
class Job:
    """What a job process is told. Inputs given as a tuple have refs named `name.0`, `name.1`, ..."""

    store: Store
    spec: ArtifactSpec
    inputs: Inputs
    code_fingerprint: str
    run_id: str
    gate: Needs | None = None
    """What its stage's gate asks for; None where no gate stands."""
    waivers: tuple[Mapping[str, Any], ...] = ()
    """What the gate took when the job was read; what inputs without a shard took, where no gate stands."""
    packages: tuple[str, ...] = ()
    """Distributions that its stage's code imports: the process records which versions it had."""

    @contextmanager
    def writing(self, spec: ArtifactSpec, meter: Meter | None = None, replacing: Artifact | None = None) -> Iterator[Writer]:
        """Write an artifact of this job (its own, or an earlier checkpoint of the same run)."""
        code = self.code_fingerprint
        with writing(self.store, spec, code, self.run_id, meter, self.waivers, self.packages, replacing) as out:
            yield out


def write_job(job: Job, path: Path) -> None:
    spec = job.spec
    store = asdict(replace(job.store, crew=None))
    store.pop("crew")  # workers are this process's own
    record = {
        "job": 1,
        "store": store,
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
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1))


def read_job(path: Path) -> Job:
    """Open a job file and its inputs, at the gate once more.

    Raises: ValueError naming an input that is gone or has other bytes; GateError naming every unfit ancestor; ForeignReadError
    of inputs in another region's bucket (`lineage.regions`).
    """
    record = json.loads(path.read_text())
    if record["job"] != 1:
        raise ValueError(f"{path}: job format {record['job']} is not known; this checkout reads format 1")
    limits = ShardLimits(**record["store"].pop("limits", {}))
    store = Store(**record["store"], limits=limits)
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
    inputs: dict[str, Artifact | tuple[Artifact, ...]] = {}
    for ref in refs:
        artifact = store.open(ref.address)
        if artifact is None or artifact.data_version != ref.data_version:
            state = "is gone" if artifact is None else f"now has data version {artifact.data_version}"
            raise ValueError(f"{spec.name}: input {ref.address} ({ref.data_version}) {state}; materialize it again")
        group = ref.name.rpartition(".")[0]
        if group in groups:
            groups[group] = (*groups[group], artifact)
        else:
            inputs[ref.name] = artifact
    guard_reads(store, spec.name, _artifacts(inputs | groups))
    waivers = record.get("waivers", ())
    if record["gate"] is not None:
        waivers = admit(store, spec.name, refs, record["gate"], today())
    return Job(
        store,
        spec,
        inputs | groups,
        record["code_fingerprint"],
        record["run_id"],
        record["gate"],
        tuple(waivers),
        tuple(record.get("packages", ())),
    )


def job_folder(job: Job) -> Path:
    """Where the job file and the log of a job lie."""
    return job.store.scratch / "jobs" / job.spec.version


def launch_of(module: str, job: Job, told: Told | None = None, listener: Listener | None = None) -> Launch:
    """Write a job's file below the store's scratch folder; what a launcher is told of it."""
    how = told or Told()
    folder = job_folder(job)
    write_job(job, folder / "job.json")
    return Launch(
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


def run_job(module: str, job: Job, launcher: Launcher, told: Told | None = None, listener: Listener | None = None) -> Ran:
    """Start `python -m module job.json` and return what it committed."""
    launch = launch_of(module, job, told, listener)
    launched = launcher(launch)
    made = job.store.find(job.spec)
    if made is None:
        raise RuntimeError(f"{launch.name}: `python -m {module}` ended well but committed nothing; see {launch.log_path}")
    return Ran(made, launched)
