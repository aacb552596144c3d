"""A run in a file that a person writes: its spec and the place of its data. `python -m trainer spec.json` runs it.

    {"root": ".marin", "mixture": "mixture/default", "run": {"name": "mine", "model": {...}, "num_steps": 500, ...}}

The mixture is an artifact of the store under `root`, by name, address or folder; of several with one name the newest counts.
`start` is a checkpoint, given if the run sets `start`. `./marin spec` prints the file of a declared run
(docs/recipes/add_a_run.md). The inputs are fixed when the file is read: the identity of the run holds their digests. Training
with other data is another run, which never continues from the checkpoints of this one, and is refused while this one is
unfinished (`trainer.resume_checks`).
"""

from dataclasses import dataclass
from pathlib import Path

from lineage.artifact.locate import locate
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.config import from_jsonable, to_jsonable
from lineage.jobs.job import Job, read_job
from lineage.order.history import REFERENCE
from lineage.strangers import json_object, naming
from lineage.trust.fingerprint import stage_code
from lineage.trust.gate import check_launch, utc_today
from trainer.spec.config import RunSpec
from trainer.spec.objectives import Dpo
from trainer.spec.stage import CHECKPOINT, CheckpointConfig, step_partition


@dataclass(frozen=True)
class SpecFile:
    """The contents of the file."""

    root: str
    mixture: str
    run: RunSpec
    start: str | None = None
    reference: str | None = None
    """Log-probabilities of the pairs under the start, for the objective `dpo`."""

    def __post_init__(self) -> None:
        if (self.start is None) != (self.run.start is None):
            raise ValueError(f"start is {self.start!r}, but run.start is {self.run.start!r}; give both or neither")
        if (self.reference is not None) != isinstance(self.run.objective, Dpo):
            raise ValueError(
                f"reference is {self.reference!r}, run.objective {self.run.objective.kind!r}; give it for dpo, and only there"
            )


def open_job(path: Path) -> Job:
    """The job of a file: a job file of a launcher, or a spec. Raises: ValueError naming what is wrong."""
    with naming(str(path)):
        record = json_object(path.read_text(), str(path))
    if "job" in record:
        return read_job(path)
    with naming(str(path)):
        file = from_jsonable(SpecFile, record, where=str(path))
    return job_of(file)


def job_of(file: SpecFile) -> Job:
    """The training job of a run.

    Raises: ValueError for a missing artifact; GateError naming every ancestor that must not be trained on.
    """
    store = Store(file.root)
    given = {"mixture": file.mixture, "start": file.start, REFERENCE: file.reference}
    names = {name: text for name, text in given.items() if text is not None}
    inputs = {name: locate([store], text) for name, text in names.items()}
    run = file.run
    spec = ArtifactSpec(
        key=("runs", run.name, "checkpoint"),
        partition=step_partition(run.num_steps),
        stage=CHECKPOINT.name,
        stage_version=CHECKPOINT.version,
        config=to_jsonable(CheckpointConfig(run, run.num_steps)),
        inputs=tuple(artifact.ref(name) for name, artifact in inputs.items()),
    )
    gate = CHECKPOINT.gate
    waivers = () if gate is None else tuple(check_launch(store, spec.name, spec.inputs, gate, utc_today()))
    code = stage_code(CHECKPOINT.module)
    return Job(store, spec, inputs, code.fingerprint, "by hand", gate, waivers, tuple(code.packages))
