"""Which evaluations a run's policy requires for its checkpoints, and which of them are missing."""

from collections.abc import Iterable, Iterator, Sequence

import dagster as dg

from evals.tasks.policy import PolicyRule
from lineage.artifact.store import Artifact
from lineage.build.nodes import find_all
from recipes.policies import policy_config
from recipes.records.run import Run
from recipes.runs import checkpoint, task_result
from resources.lab import Lab
from trainer.spec.stage import parse_step_partition, step_partition

RESULTS_PRESENT = "due_results_present"
PROMISE = "every result that a policy asks of a committed checkpoint is there"
SHOWN = 20


def committed(lab: Lab, run: Run) -> Iterator[tuple[str, Artifact]]:
    """Yield step partitions of the run whose checkpoint has a manifest, under the data and the spec declared today."""
    steps = run.spec.saved_steps()
    artifacts = find_all(lab.store, (checkpoint(run, step) for step in steps))
    yield from (
        (step_partition(step), artifact) for step, artifact in zip(steps, artifacts, strict=True) if artifact is not None
    )


def due_rules(run: Run, step: str) -> list[PolicyRule]:
    """Return what the policy requires at a saved step, the most urgent first."""
    saved = run.spec.saved_steps()
    rules = policy_config(run).rules
    due = [rule for rule in rules if rule.is_due(saved.index(parse_step_partition(step)), len(saved))]
    return sorted(due, key=lambda rule: -rule.priority)


def missing_results(lab: Lab, steps: Iterable[tuple[Run, str]]) -> list[tuple[Run, str, PolicyRule]]:
    """Return what is due at some steps of some runs and missing."""
    due = [(run, step, rule) for run, step in steps for rule in due_rules(run, step)]
    artifacts = find_all(lab.store, (task_result(run, parse_step_partition(step), rule.task) for run, step, rule in due))
    return [one for one, artifact in zip(due, artifacts, strict=True) if artifact is None]


def results_check(lab: Lab, runs: Sequence[Run]) -> dg.AssetCheckResult:
    """Return a check that names missing results and the commands that make them, up to SHOWN of them.

    A sensor requests each result once, so one that failed stays missing until somebody makes it.
    """
    missing = [
        f"./marin materialize runs/{run.name}/eval_result --partition '{step}|{rule.task.name}'"
        for run, step, rule in missing_results(lab, ((run, step) for run in runs for step, _ in committed(lab, run)))
    ]
    commands = f"{len(missing)} results are missing; make them with:\n" + "\n".join(missing[:SHOWN])
    return dg.AssetCheckResult(
        check_name=RESULTS_PRESENT,
        passed=not missing,
        severity=dg.AssetCheckSeverity.WARN,
        description=commands if missing else PROMISE,
        metadata={"missing": len(missing)},
    )
