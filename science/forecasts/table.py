"""The table of a sweep: one row a trial, read from results and the checkpoints that they scored."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.forecasts.outcome import outcome_of
from science.trials import Trial
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec.stage import CheckpointConfig
from trainer.spec.target import size_of

FILE = "trials.parquet"


@dataclass(frozen=True)
class Expected:
    """A trial that a sweep declares."""

    name: str
    budget: float


@dataclass(frozen=True)
class TableConfig:
    """Which trials the table should have, and which score is the loss."""

    trials: tuple[Expected, ...]
    task: str
    metric: str
    max_missing: int = 0
    """More missing trials than this are refused."""

    def __post_init__(self) -> None:
        names = [trial.name for trial in self.trials]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"table: trials are {names}; give at least one, each once")
        if not 0 <= self.max_missing < len(names):
            raise ValueError(f"table: max_missing is {self.max_missing}; it must be in 0..{len(names) - 1}")


def read_trial(result: Artifact, name: str, config: TableConfig) -> Trial:
    """One row: the spec from the checkpoint's manifest, the loss from the result's. No data file is read.

    Raises: ValueError if the result lacks the score.
    """
    budget = next(trial.budget for trial in config.trials if trial.name == name)
    found = outcome_of(result)
    checkpoint = found.checkpoint
    run = from_jsonable(CheckpointConfig, checkpoint.spec.config).run
    size = size_of(run)
    vocabulary, epochs = _data_of(checkpoint.input("mixture"), size.tokens)
    schedule = run.schedule
    batch = run.batches.phases[0].batch_size * run.seq_len
    return Trial(
        name=name, budget=budget, flops=size.flops, width=run.model.hidden_dim, parameters=size.parameters, tokens=size.tokens,
        loss=None if found.diverged is not None else found.score(config.task, config.metric),
        learning_rate=schedule.peak_learning_rate, batch_tokens=batch, seed=run.seed,
        vocabulary=vocabulary, epochs=epochs,
        policy=found.policy,
        schedule_end=schedule.min_lr_ratio if isinstance(schedule, WarmupStableDecay) else 0.0,
        beta2=getattr(run.optimizer, "beta2", 0.95), status="done" if found.diverged is None else "diverged",
    )  # fmt: skip


def _data_of(mixture: Artifact, tokens: int) -> tuple[str, float]:
    """Digest of the tokenizer, and the most times that a run of `tokens` reads any component (of the first phase's weights)."""
    caches = {
        found.manifest.extra["tokens"]["component"]: found.manifest.extra["tokens"] for found in mixture.store.parents(mixture)
    }
    weights = mixture.spec.config["phases"][0]["weights"]
    total = sum(weights.values())
    read = {name: tokens * weight / total for name, weight in weights.items()}
    vocabulary = "+".join(sorted({str(cache["tokenizer"]) for cache in caches.values()}))
    return vocabulary, max(read[name] / caches[name]["num_tokens"] for name in read)


def trial_name(result: Artifact) -> str:
    """The trial of a result: the last part of its partition, whose first is the budget."""
    return (result.spec.partition or result.spec.key[-1]).rsplit("|", 1)[-1]


def make_table(out: Writer, config: TableConfig, results: tuple[Artifact, ...]) -> None:
    """Write `trials.parquet`, by name. Raises: ValueError naming the missing trials if there are more than are allowed."""
    by_name = {trial_name(result): result for result in results}
    declared = {trial.name for trial in config.trials}
    if strange := sorted(by_name.keys() - declared):
        raise ValueError(f"{out.spec.name}: {', '.join(strange)} is no trial of the sweep")
    missing = sorted(declared - by_name.keys())
    if len(missing) > config.max_missing:
        raise ValueError(
            f"{out.spec.name}: {len(missing)} of {len(declared)} trials are missing, at most {config.max_missing} may be: "
            f"{', '.join(missing)}; run them, or raise max_missing"
        )
    write_table(out, [read_trial(result, name, config) for name, result in sorted(by_name.items())], missing)


def write_table(out: Writer, trials: list[Trial], missing: list[str]) -> None:
    """Write trials as a table that `read_table` reads."""
    rows = [asdict(trial) for trial in sorted(trials, key=lambda trial: trial.name)]
    pq.write_table(pa.Table.from_pylist(rows, schema=_schema()), out.folder / FILE)
    diverged = [trial.name for trial in trials if trial.loss is None]
    out.facts["missing"] = missing
    out.extra["sweep"] = {"trials": len(trials), "missing": missing, "diverged": diverged}
    out.record(rows_in=len(trials) + len(missing), rows_out=len(trials), drops={"missing": len(missing)} if missing else {})


def _schema() -> pa.Schema:
    kinds = {float: pa.float64(), int: pa.int64(), float | None: pa.float64()}
    hints = get_type_hints(Trial)
    return pa.schema([(field.name, kinds.get(hints[field.name], pa.string())) for field in fields(Trial)])


def read_table(table: Artifact) -> list[Trial]:
    """The trials of a table, checked. Raises: ValueError naming a trial with a bad value."""
    return list(_rows(table))


def _rows(table: Artifact) -> Iterator[Trial]:
    for row in pq.read_table(table.file(FILE)).to_pylist():
        try:
            yield Trial(**row)
        except TypeError as error:
            raise ValueError(f"{table.name}: row {json.dumps(row)} is no trial: {error}") from error


TABLE = Stage("science.table", "1", make_table)
