"""The stage `evals.result`: a job that scores one checkpoint on some tasks."""

from dataclasses import dataclass
from typing import Literal

from lineage.plan import Stage

EVAL_RESULT = Stage("evals.result", "1", job="evals")
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
        for field in ("max_items", "max_bytes_per_domain", "max_bytes_per_document"):
            if getattr(self, field) < 1:
                raise ValueError(f"task {self.name}: {field} is {getattr(self, field)}; it must be at least 1")


@dataclass(frozen=True)
class EvalConfig:
    """Tasks, and the seed that chooses items and resamples."""

    tasks: tuple[TaskSpec, ...]
    seed: int

    def __post_init__(self) -> None:
        names = [task.name for task in self.tasks]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"evaluation tasks are {names}; give at least one, each name once")
