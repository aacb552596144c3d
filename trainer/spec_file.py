"""A run as a file that a person writes: where its data lies, and its spec. `python -m trainer spec.json` makes a job of it.

    {"root": ".marin", "mixture": "mixture/default", "run": {"name": "mine", "model": {...}, "num_steps": 500, ...}}

The mixture is an artifact of the store under `root`, by name, address or folder; of several with one name the newest. `start`
is a checkpoint, given where the run sets `start`. `./marin spec` prints the file of a declared run (docs/recipes/add_a_run.md).
What the file means is frozen when it is read: the identity of the run holds the digests of its inputs, and training again
under other data is another run, which never goes on from the checkpoints of this one, and is refused while this one is
unfinished (`trainer.unfinished`).
"""

import json
from dataclasses import dataclass
from pathlib import Path

from lineage.config import from_jsonable, to_jsonable
from lineage.fingerprint import stage_code
from lineage.gate import admit, today
from lineage.jobs import Job, read_job
from lineage.locate import locate
from lineage.spec import ArtifactSpec
from lineage.store import Store
from trainer.config import RunSpec
from trainer.stage import CHECKPOINT, CheckpointConfig, step_partition


@dataclass(frozen=True)
class SpecFile:
    """What the file holds."""

    root: str
    mixture: str
    run: RunSpec
    start: str | None = None

    def __post_init__(self) -> None:
        if (self.start is None) != (self.run.start is None):
            raise ValueError(f"start is {self.start!r} and run.start is {self.run.start!r}; give both or neither")


def open_job(path: Path) -> Job:
    """The job of a file, be it a job that a launcher wrote or a spec. Raises: ValueError naming what is odd."""
    try:
        record = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    if "job" in record:
        return read_job(path)
    return job_of(from_jsonable(SpecFile, record, where=str(path)))


def job_of(told: SpecFile) -> Job:
    """The training job of a run.

    Raises: ValueError for an artifact that is not there; GateError naming every ancestor that is not fit to train on.
    """
    store = Store(told.root)
    names = {"mixture": told.mixture} | ({} if told.start is None else {"start": told.start})
    inputs = {name: locate([store], text) for name, text in names.items()}
    run = told.run
    spec = ArtifactSpec(
        key=("runs", run.name, "checkpoint"),
        partition=step_partition(run.num_steps),
        stage=CHECKPOINT.name,
        stage_version=CHECKPOINT.version,
        config=to_jsonable(CheckpointConfig(run, run.num_steps)),
        inputs=tuple(artifact.ref(name) for name, artifact in inputs.items()),
    )
    gate = CHECKPOINT.gate
    waivers = () if gate is None else tuple(admit(store, spec.name, spec.inputs, gate, today()))
    code = stage_code(CHECKPOINT.module)
    return Job(store, spec, inputs, code.fingerprint, "by hand", gate, waivers, tuple(code.packages))
