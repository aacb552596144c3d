"""The stages that score checkpoints in a job: on tasks (`evals.result`), on what their corpora hold of them, beside
another."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from evals.items.task import Style
from lineage.stage import Stage
from trainer.api import Weights

LONGEST_CHARACTER_BYTES = 4
"""Bytes of UTF-8: a cut of fewer bytes might hold no character at all."""

MOST_SAMPLES = 128
"""As many as one request to a server may ask for."""

type TaskKind = Literal["perplexity", "trajectories", "multiple_choice", "gold_bpb", "generation", "program"]
"""Held-out text by tag; what the mask counts of held-out conversations; choices and gold answers by likelihood; an
answer generated and compared; a program generated and run against its tests.
"""
TEXT_KINDS: frozenset[TaskKind] = frozenset({"perplexity", "trajectories"})
"""Kinds that read held-out documents of the corpora; the others have items."""
GENERATING_KINDS: frozenset[TaskKind] = frozenset({"generation", "program"})


@dataclass(frozen=True)
class TaskSpec:
    """One task: held-out perplexity by domain, or a benchmark task of the suite with at most `max_items` items."""

    name: str
    kind: TaskKind
    max_items: int = 250
    max_bytes_per_domain: int = 64_000
    max_bytes_per_document: int = 8_000
    items: str = field(default="", metadata={"added_later": True})
    """The benchmark task whose items it asks, if its own name is another."""
    style: Style = field(default="cloze", metadata={"added_later": True})
    num_shots: int = field(default=0, metadata={"added_later": True})
    max_new_tokens: int = field(default=128, metadata={"added_later": True})
    """Tokens of a generated answer; the prompt is cut on the left to leave room for them."""
    weights: Weights = field(default="raw", metadata={"added_later": True})
    """The checkpoint's own weights, or their average if its run keeps one (`RunSpec.ema`)."""

    samples: int = field(default=1, metadata={"added_later": True})
    """Answers to each item: with several they are sampled and scored as pass@k, with one it is greedy."""
    temperature: float = field(default=0.0, metadata={"added_later": True})
    top_p: float = field(default=1.0, metadata={"added_later": True})

    @property
    def item_task(self) -> str:
        return self.items or self.name

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError(f"task name is {self.name!r}; name a benchmark task of the suites, or the perplexity task itself")
        kinds = get_args(TaskKind.__value__)
        if self.kind not in kinds:
            raise ValueError(f"task {self.name}: kind is {self.kind!r}; allowed: {', '.join(kinds)}")
        styles = get_args(Style.__value__)
        if self.style not in styles:
            raise ValueError(f"task {self.name}: style is {self.style!r}; allowed: {', '.join(styles)}")
        weights = get_args(Weights.__value__)
        if self.weights not in weights:
            raise ValueError(f"task {self.name}: weights is {self.weights!r}; allowed: {', '.join(weights)}")
        if self.weights != "raw" and self.kind in GENERATING_KINDS:
            raise ValueError(
                f"task {self.name}: weights is {self.weights!r}; a task of kind {self.kind} takes the raw ones alone"
            )
        lowest = {
            "max_items": 1,
            "num_shots": 0,
            "max_new_tokens": 1,
            "max_bytes_per_domain": LONGEST_CHARACTER_BYTES,
            "max_bytes_per_document": LONGEST_CHARACTER_BYTES,
        }
        for name, least in lowest.items():
            if getattr(self, name) < least:
                raise ValueError(f"task {self.name}: {name} is {getattr(self, name)}; it must be at least {least}")
        self._check_sampling()

    def _check_sampling(self) -> None:
        if not 1 <= self.samples <= MOST_SAMPLES:
            raise ValueError(f"task {self.name}: samples is {self.samples}; 1 to {MOST_SAMPLES} are allowed")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"task {self.name}: top_p is {self.top_p}; above 0 and at most 1 is allowed")
        if self.samples > 1 and (self.kind not in GENERATING_KINDS or not self.temperature > 0):
            raise ValueError(
                f"task {self.name}: samples is {self.samples} with kind {self.kind} and temperature {self.temperature}; "
                f"several samples need a kind of {', '.join(sorted(GENERATING_KINDS))} and a temperature above 0"
            )
        if self.samples == 1 and (self.temperature, self.top_p) != (0.0, 1.0):
            raise ValueError(
                f"task {self.name}: temperature is {self.temperature} and top_p {self.top_p} with one sample, which is greedy; "
                "leave them out, or set samples"
            )


@dataclass(frozen=True)
class EvalConfig:
    """Tasks, and the seed that chooses items and resamples."""

    tasks: tuple[TaskSpec, ...]
    seed: int

    def __post_init__(self) -> None:
        names = [task.name for task in self.tasks]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"evaluation tasks are {names}; give at least one, each name once")


@dataclass(frozen=True)
class TrialResultConfig:
    """The held-out task that a trial is scored on, and the seed that resamples."""

    task: TaskSpec
    seed: int

    def __post_init__(self) -> None:
        if self.task.kind != "perplexity":
            raise ValueError(f"task {self.task.name} of a trial's result is of kind {self.task.kind!r}; allowed: perplexity")


@dataclass(frozen=True)
class ContaminationScoresConfig:
    """Benchmark tasks (`max_items` caps the flagged items of each), clean controls for each, and the seed that chooses
    them.
    """

    tasks: tuple[TaskSpec, ...]
    controls_per_task: int
    seed: int

    def __post_init__(self) -> None:
        odd = [task.name for task in self.tasks if task.kind not in ("multiple_choice", "gold_bpb")]
        if odd or not self.tasks:
            raise ValueError(f"tasks {odd} are not scored by likelihood; give such tasks alone, and at least one")
        if self.controls_per_task < 2:
            raise ValueError(f"controls_per_task is {self.controls_per_task}; an interval needs at least 2")


@dataclass(frozen=True)
class GapConfig:
    """How much held-out text two checkpoints are compared on, and how many of the worst documents the page shows."""

    max_bytes_per_domain: int = 64_000
    max_bytes_per_document: int = 8_000
    worst: int = 25

    def __post_init__(self) -> None:
        for name, least in (("max_bytes_per_domain", 4), ("max_bytes_per_document", 4), ("worst", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"gap.{name} is {getattr(self, name)}; it must be at least {least}")


@dataclass(frozen=True)
class ExportCanaryConfig:
    """How many texts an exported model writes from a document's start (sampled at temperature 1), and how long."""

    samples: int = 16
    max_new_tokens: int = 512
    """Largest number of new tokens; a shorter context ends them earlier."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("samples", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"export_canary.{name} is {getattr(self, name)}; it must be at least 1")


EVAL_RESULT = Stage("evals.result", "9", job="evals", config=EvalConfig, gate={"datakit.token_cache": "datakit.contamination"})
"""2: what cannot be scored is counted apart. 3: the loss in row tiles, and 4: shared beginnings once: both change
rounding. 5: under a policy, styles and examples, generation, programs, scores over items attempted. 6: sources are
tags, micro and macro. 7: records hold what was scored or written whole, the right answer, suite and source; units of a
final answer end at their letters. 8: texts, log-probabilities and answers have columns; a value that is no number
fails; endings of SentencePiece's tokenizers. 9: answers of MATH are equal when SymPy shows it; GSM8K reads fractions
and powers of ten.
"""
CONTAMINATION_SCORES = Stage(
    "evals.contamination_scores",
    "5",
    job="evals",
    config=ContaminationScoresConfig,
    gate={"datakit.token_cache": "datakit.contamination"},
)
"""2: shared beginnings once; 3: records name the style that items were asked in; 4: what was scored, suite and source;
5: columns as in `evals.result` 8."""
GAP = Stage("evals.gap", "1", job="evals", config=GapConfig, gate={"datakit.token_cache": "datakit.contamination"})
EXPORT_CANARY = Stage("evals.export_canary", "2", job="evals", config=ExportCanaryConfig)
TRIAL_RESULT = Stage(
    "evals.trial_result", "1", job="evals", config=TrialResultConfig, gate={"datakit.token_cache": "datakit.contamination"}
)
