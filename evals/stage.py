"""The stages that score a checkpoint in a job: on tasks (`evals.result`), on what its corpora hold of them."""

from dataclasses import dataclass
from typing import Literal, get_args

from lineage.stage import Stage

EVAL_RESULT = Stage("evals.result", "4", job="evals", gate={"datakit.token_cache": "datakit.contamination"})
"""2: what cannot be scored is told apart; 3: the loss in row tiles, 4: shared beginnings once: both round elsewhere."""
CONTAMINATION_SCORES = Stage(
    "evals.contamination_scores", "2", job="evals", gate={"datakit.token_cache": "datakit.contamination"}
)
LONGEST_CHARACTER_BYTES = 4
"""Of UTF-8: a cut of fewer bytes might hold no character at all."""

type TaskKind = Literal["perplexity", "multiple_choice", "gold_bpb"]


@dataclass(frozen=True)
class TaskSpec:
    """One task: held-out perplexity by domain, or a benchmark task of the suite with at most `max_items` items."""

    name: str
    kind: TaskKind
    max_items: int = 250
    max_bytes_per_domain: int = 64_000
    max_bytes_per_document: int = 8_000

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError(f"task name is {self.name!r}; name a benchmark task of the suites, or the perplexity task itself")
        kinds = get_args(TaskKind.__value__)
        if self.kind not in kinds:
            raise ValueError(f"task {self.name}: kind is {self.kind!r}; allowed: {', '.join(kinds)}")
        lowest = {
            "max_items": 1,
            "max_bytes_per_domain": LONGEST_CHARACTER_BYTES,
            "max_bytes_per_document": LONGEST_CHARACTER_BYTES,
        }
        for field, least in lowest.items():
            if getattr(self, field) < least:
                raise ValueError(f"task {self.name}: {field} is {getattr(self, field)}; it must be at least {least}")


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
class ContaminationScoresConfig:
    """Benchmark tasks (`max_items` caps the flagged items of each), clean controls for each, and the seed that chooses."""

    tasks: tuple[TaskSpec, ...]
    controls_per_task: int
    seed: int

    def __post_init__(self) -> None:
        odd = [task.name for task in self.tasks if task.kind == "perplexity"]
        if odd or not self.tasks:
            raise ValueError(f"tasks {odd} have no benchmark items; give benchmark tasks alone, and at least one")
        if self.controls_per_task < 2:
            raise ValueError(f"controls_per_task is {self.controls_per_task}; an interval needs at least 2")
