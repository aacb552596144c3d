"""What the data engine costs at a size that was not run: core hours, shuffled bytes, storage operations and dollars.

Rates come from a file that `python -m benchmarks.plan_data` writes. Rows of the joins grow with the text; files come from
the sizes of parts and token shards that the stages use. docs/design/data_costs.md says how sure each number is.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from datakit.costs.contained import ContainmentRates, containment_joins
from datakit.costs.joins import Join, Scope, joins
from datakit.costs.rates import Estimate, Rate, fit
from datakit.documents.parts import TARGET_PART_BYTES
from datakit.tokens.cache import shard_bytes

CHECKED_WITHIN = 0.2
"""How far the prediction of the check may be off."""
TOKEN_FILES = 3
"""Files of a token shard: tokens, ends of documents, ids."""
WRITES_A_COMMIT, LISTS_A_COMMIT, READS_A_COMMIT, READS_AN_INPUT = 5, 12, 20, 2
"""Requests of one artifact beside those for its files and its inputs' files: uploads; at most so many listings and reads
(`tests/datakit/test_cost_plan.py`).
"""
READS_AN_OPEN = 2
"""Ranged requests of a file of rows that is opened: its footer, and the rows of a range."""
NOT_COUNTED = (
    "downloads of raw files",
    "embeddings and semantic duplicates",
    "scores by quality models, and cutoffs",
    "tags: languages, licences, domains",
    "labels by a model",
    "training of the tokenizer",
    "the index of benchmark items",
)
"""Steps that a corpus may have and that no plan counts. Containment is counted when it is asked for."""
STAGES = ("normalized", "minhash", "duplicates", "paragraphs", "quality_rules", "contamination", "corpus", "tokens")


@dataclass(frozen=True)
class StageRun:
    """One measured run of all stages. By stage: CPU seconds, files and bytes of its artifact."""

    bytes: int
    """Of all texts, repeated ones included."""

    cpu_seconds: float
    seconds: Mapping[str, float]
    files: Mapping[str, int]
    sizes: Mapping[str, int]
    scope: Scope
    corpus_bytes: int
    tokens: int
    peak_mib: float
    load: float


@dataclass(frozen=True)
class Measured:
    """Runs of several sizes, and a larger one that they predict."""

    command: str
    commit: str
    day: str
    machine: str
    runs: tuple[StageRun, ...]
    check: StageRun

    @staticmethod
    def read(path: Path) -> "Measured":
        """Read a file of measurements. Raises: ValueError naming the file and the command that writes it."""
        if not path.is_file():
            raise ValueError(f"there are no measurements in {path}; `python -m benchmarks.plan_data --out {path}` writes them")
        fields = json.loads(path.read_text())
        runs = [StageRun(**(run | {"scope": Scope(**run["scope"])})) for run in (*fields.pop("runs"), fields.pop("check"))]
        return Measured(**fields, runs=tuple(runs[:-1]), check=runs[-1])

    def rate(self, stage: str) -> Rate:
        """Return the fitted CPU seconds of a stage, or of `all` of them."""
        costs = [sum(run.seconds[name] for name in (STAGES if stage == "all" else (stage,))) for run in self.runs]
        return fit([run.bytes for run in self.runs], costs)


def check_of(measured: Measured) -> dict[str, tuple[Estimate, float]]:
    """Return the predicted and the measured CPU seconds of the check, by stage and together."""
    spent = {name: measured.check.seconds[name] for name in STAGES}
    return {
        name: (measured.rate(name).at(measured.check.bytes), cost)
        for name, cost in (spent | {"all": sum(spent.values())}).items()
    }


@dataclass(frozen=True)
class Corpus:
    """The text that is planned."""

    tokens: float
    bytes_per_token: float
    sources: int

    @property
    def bytes(self) -> float:
        return self.tokens * self.bytes_per_token


@dataclass(frozen=True)
class StagePlan:
    """What one stage costs."""

    name: str
    core_hours: Estimate
    shuffled: int
    """Bytes that its shuffles move in all levels."""

    opens: int
    """Files of rows that its shuffles open."""

    files_read: int
    files_written: int
    artifacts: int
    inputs: int
    """Of all artifacts."""

    @property
    def writes(self) -> int:
        """Storage operations of class A: uploads and listings."""
        return self.files_written + self.artifacts * (WRITES_A_COMMIT + LISTS_A_COMMIT)

    @property
    def reads(self) -> int:
        """Storage operations of class B, if the rows of shuffles lie in a bucket, too."""
        return self.files_read + self.artifacts * READS_A_COMMIT + self.inputs * READS_AN_INPUT + self.ranged

    @property
    def ranged(self) -> int:
        return READS_AN_OPEN * self.opens


@dataclass(frozen=True)
class DataPlan:
    """The plan of all stages."""

    corpus: Corpus
    measured: Measured
    scope: Scope
    joins: tuple[Join, ...]
    stages: tuple[StagePlan, ...]


def plan(measured: Measured, corpus: Corpus, containment: ContainmentRates | None = None) -> DataPlan:
    """Plan every stage over a corpus whose documents and copies are like those of the largest run.

    `containment`: measurements of a stage that is off by default; it is planned, too, if they are given.
    """
    largest = max(measured.runs, key=lambda run: run.bytes)
    factor = corpus.bytes / largest.bytes
    parts = max(corpus.sources, round(corpus.bytes / TARGET_PART_BYTES))
    scope = replace(largest.scope.times(factor), parts=parts)
    kept = largest.corpus_bytes * factor
    planned = tuple(joins(scope))
    repeated = ("repeats", "repeats-by-number")
    of_stage = {
        "duplicates": [join for join in planned if join.name not in repeated],
        "paragraphs": [join for join in planned if join.name in repeated],
    }
    corpus_parts = max(corpus.sources, round(kept / TARGET_PART_BYTES))
    of_each = corpus.sources
    shards = max(of_each, round(kept / min(TARGET_PART_BYTES, shard_bytes(round(kept / of_each)))))
    files = {
        "normalized": (parts, parts + of_each, of_each, of_each),
        "minhash": (parts, parts, of_each, of_each),
        "duplicates": (2 * parts, parts + 1, 1, 2 * of_each),
        "paragraphs": (2 * parts, parts, 1, of_each + 1),
        "quality_rules": (parts, parts, of_each, of_each),
        "contamination": (parts, parts + 4 * of_each, of_each, 3 * of_each),
        "corpus": (3 * parts, corpus_parts + 2 * of_each, of_each, 3 * of_each),
        "tokens": (corpus_parts, TOKEN_FILES * shards, of_each, 2 * of_each),
    }
    rates = {name: measured.rate(name) for name in STAGES}
    if containment:
        files["containment"] = (2 * parts, parts, 1, of_each + 1)
        rates["containment"] = containment.rate()
        of_stage["containment"] = list(containment_joins(containment.at(corpus.bytes), scope.documents, parts))
        planned += tuple(of_stage["containment"])
    stages = []
    for name, rate in rates.items():
        seconds, moved = rate.at(corpus.bytes), of_stage.get(name, [])
        hours = Estimate(*(value / 3_600 for value in (seconds.value, seconds.low, seconds.high)))
        shuffled, opens = sum(join.moved for join in moved), sum(join.opens for join in moved)
        stages.append(StagePlan(name, hours, shuffled, opens, *files[name]))
    return DataPlan(corpus, measured, scope, planned, tuple(stages))
