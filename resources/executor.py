"""Where the steps of a run are executed: a single step in the run's own process, several steps in processes of their own
unless the run is tagged.

A process of the lab takes seconds to load all definitions (4.4 CPU seconds, 2026-11-22), and most runs have one step: a
checkpoint, an evaluation, or a source's stage from the UI. A second process would load everything again before the work starts.
Dagster itself chooses between the two only by configuration of each run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg

TOGETHER_TAG = "marin/steps_together"
"""A run with this tag and the value `yes` runs all its steps in its own process."""


@dataclass(frozen=True)
class OneHereManyApart(dg.Executor):
    """Use one of Dagster's executors for plans of one step, another for plans of several."""

    here: dg.Executor
    apart: dg.Executor

    @property
    def retries(self) -> Any:
        return self.apart.retries

    @property
    def step_dependency_config(self) -> Any:
        return self.apart.step_dependency_config

    def execute(self, plan_context: Any, execution_plan: Any) -> Iterator[dg.DagsterEvent]:
        is_together = plan_context.dagster_run.tags.get(TOGETHER_TAG) == "yes"
        which = self.here if is_together or len(execution_plan.step_keys_to_execute) == 1 else self.apart
        return which.execute(plan_context, execution_plan)


@dg.executor(
    name="one_here_many_apart",
    config_schema=dg.multiprocess_executor.config_schema.as_field(),
    requirements=dg.multiple_process_executor_requirements(),
)
def one_here_many_apart(context: dg.InitExecutorContext) -> OneHereManyApart:
    """Return an executor that runs a plan of one step in this process, and a plan of several steps in one process each.

    Its configuration is that of Dagster's multiprocess executor (how many steps at once, ...).
    """
    here, apart = (each.executor_creation_fn for each in (dg.in_process_executor, dg.multiprocess_executor))
    assert here is not None and apart is not None  # both are made by the same decorator as this one
    return OneHereManyApart(here(context), apart(context))
