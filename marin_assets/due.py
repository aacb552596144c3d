"""Which evaluations a run's policy asks of its checkpoints, and which of them are not there."""

from collections.abc import Iterator, Sequence

import dagster as dg

from evals.policy import PolicyRule
from lineage.plan import MissingArtifactError, exists, resolve
from lineage.store import Artifact
from marin_assets.runs import eval_node
from recipes.lines import Line
from recipes.policies import policy_config
from recipes.runs import checkpoint
from resources.lab import Lab
from trainer.stage import parse_step_partition, step_partition

RESULTS_PRESENT = "due_results_present"
PROMISE = "every result that a policy asks of a committed checkpoint is there"
SHOWN = 20


def committed(lab: Lab, line: Line) -> Iterator[tuple[str, Artifact]]:
    """Step partitions of the run whose checkpoint has a manifest, under the data and the spec declared today."""
    for step in line.run.saved_steps():
        try:
            yield step_partition(step), resolve(lab.store, checkpoint(line, step))
        except MissingArtifactError:
            continue


def due_rules(line: Line, step: str) -> list[PolicyRule]:
    """What the policy asks at a saved step, the most urgent first."""
    saved = line.run.saved_steps()
    rules = policy_config(line).rules
    due = [rule for rule in rules if rule.is_due(saved.index(parse_step_partition(step)), len(saved))]
    return sorted(due, key=lambda rule: -rule.priority)


def missing_rules(lab: Lab, line: Line, step: str) -> list[PolicyRule]:
    """Those of them whose result is not there."""
    number = parse_step_partition(step)
    return [rule for rule in due_rules(line, step) if not exists(lab.store, eval_node(line, number, rule.task))]


def results_check(lab: Lab, lines: Sequence[Line]) -> dg.AssetCheckResult:
    """Names what is missing and the command that makes it: a request is made once, and nobody repeats one that failed."""
    missing = [
        f"./marin materialize runs/{line.run.name}/eval_result --partition '{step}|{rule.task.name}'"
        for line in lines
        for step, _ in committed(lab, line)
        for rule in missing_rules(lab, line, step)
    ]
    told = f"{len(missing)} results are missing; make them with:\n" + "\n".join(missing[:SHOWN])
    return dg.AssetCheckResult(
        check_name=RESULTS_PRESENT,
        passed=not missing,
        severity=dg.AssetCheckSeverity.WARN,
        description=told if missing else PROMISE,
        metadata={"missing": len(missing)},
    )
