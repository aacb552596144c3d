"""Correlations that the lab keeps: perplexity pools against task scores over declared checkpoints.

A correlation is `correlations/<name>` (docs/recipes/correlate_pools.md).
"""

from dataclasses import dataclass

from lineage.build.nodes import Node
from recipes.records.run import HELDOUT_TASK, Run
from recipes.runs import eval_tasks, task_result
from science.correlation_stage import CORRELATIONS, CorrelationConfig


@dataclass(frozen=True)
class PoolCorrelation:
    """Checkpoints whose held-out text is compared with their task scores. All have one evaluation policy."""

    name: str
    points: tuple[tuple[Run, int], ...]
    """(run, saved step). Take the last step of many runs: along one run everything falls together."""
    compared: CorrelationConfig

    def __post_init__(self) -> None:
        for run, _ in self.points:
            known = {task.name for task in eval_tasks(run)}
            if strange := sorted(self.tasks - known):
                raise ValueError(
                    f"correlation {self.name}: the policy of {run.name} has no task {', '.join(strange)}; "
                    f"it has {', '.join(sorted(known))}"
                )

    @property
    def tasks(self) -> set[str]:
        """The tasks of the policy whose results are read."""
        return {HELDOUT_TASK, *(task.split("/")[0] for task, _ in self.compared.scores)}

    @property
    def results(self) -> tuple[Node, ...]:
        """The evaluation results that are read, a node for each checkpoint and task."""
        return tuple(
            task_result(run, step, task) for run, step in self.points for task in eval_tasks(run) if task.name in self.tasks
        )


def correlation_node(of: PoolCorrelation) -> Node:
    """The correlations as an artifact."""
    return Node(("correlations", of.name), None, CORRELATIONS, of.compared, {"results": of.results})
