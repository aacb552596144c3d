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


@dataclass(frozen=True)
class Data:
    """What tables and forecasts need of a mixture."""

    vocabulary: str
    """Digest of the tokenizer."""
    sizes: dict[str, int]
    """Tokens by component."""
    shares: dict[str, float]
    """Share of each component in the first phase."""

    def epochs(self, tokens: int) -> float:
        """The most times that a run of `tokens` reads any component."""
        return max(tokens * share / self.sizes[name] for name, share in self.shares.items())


class _Mixtures:
    """The mixtures of a sweep by address and data version: trials share few, so each is opened once."""

    def __init__(self) -> None:
        self._opened: dict[tuple[str, str], Data] = {}

    def of(self, checkpoint: Artifact) -> Data:
        (ref,) = (ref for ref in checkpoint.spec.inputs if ref.name == "mixture")
        if (ref.address, ref.data_version) not in self._opened:
            self._opened[ref.address, ref.data_version] = data_of(checkpoint.input("mixture"))
        return self._opened[ref.address, ref.data_version]


def _read_trial(result: Artifact, expected: Expected, config: TableConfig, mixtures: _Mixtures) -> Trial:
    """One row: the spec from the checkpoint's manifest, the loss from the result's. No data file is read.

    Raises: ValueError if the result lacks the score.
    """
    outcome = outcome_of(result)
    checkpoint = outcome.checkpoint
    run = from_jsonable(CheckpointConfig, checkpoint.spec.config).run
    size, data = size_of(run), mixtures.of(checkpoint)
    schedule = run.schedule
    batch = run.batches.phases[0].batch_size * run.seq_len
    return Trial(
        name=expected.name, budget=expected.budget, flops=size.flops, width=run.model.hidden_dim,
        parameters=size.parameters, tokens=size.tokens,
        loss=None if outcome.diverged is not None else outcome.score(config.task, config.metric),
        learning_rate=schedule.peak_learning_rate, batch_tokens=batch, seed=run.seed,
        vocabulary=data.vocabulary, epochs=data.epochs(size.tokens),
        policy=outcome.policy,
        schedule_end=schedule.min_lr_ratio if isinstance(schedule, WarmupStableDecay) else 0.0,
        beta2=getattr(run.optimizer, "beta2", 0.95), status="done" if outcome.diverged is None else "diverged",
    )  # fmt: skip


def data_of(mixture: Artifact) -> Data:
    """Read the manifests of a mixture and of its token caches."""
    caches = [parent.manifest.extra["tokens"] for parent in mixture.store.parents(mixture) if "tokens" in parent.manifest.extra]
    weights = mixture.manifest.extra["mixture"]["phases"][0]["weights"]
    total = sum(weights.values())
    vocabulary = "+".join(sorted({str(cache["tokenizer"]) for cache in caches}))
    sizes = {cache["component"]: cache["num_tokens"] for cache in caches}
    return Data(vocabulary, sizes, {name: weight / total for name, weight in weights.items()})


def trial_name(result: Artifact) -> str:
    """The trial of a result: its partition. A trial of a round, `r1|t0`, is named `r1-t0`."""
    return (result.spec.partition or result.spec.key[-1]).replace("|", "-")


def make_table(out: Writer, config: TableConfig, results: tuple[Artifact, ...]) -> None:
    """Write `trials.parquet`, by name. Raises: ValueError naming the missing trials if there are more than are allowed."""
    by_name = {trial_name(result): result for result in results}
    declared = {trial.name: trial for trial in config.trials}
    if strange := sorted(by_name.keys() - declared.keys()):
        raise ValueError(f"{out.spec.name}: {', '.join(strange)} is no trial of the sweep")
    missing = sorted(declared.keys() - by_name.keys())
    if len(missing) > config.max_missing:
        raise ValueError(
            f"{out.spec.name}: {len(missing)} of {len(declared)} trials are missing, at most {config.max_missing} may be: "
            f"{', '.join(missing)}; run them, or raise max_missing"
        )
    mixtures = _Mixtures()
    rows = [_read_trial(result, declared[name], config, mixtures) for name, result in sorted(by_name.items())]
    write_table(out, rows, missing)


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
