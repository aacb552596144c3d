"""Report each checkpoint that a training job commits, and request its evaluation, audit and export, in one tick.

The verdict on a forecast of a task score is requested later, in the tick that finds the evaluation which judges it.

The job and the sensor meet only in the store: the sensor asks for the declared steps of every run as it is declared today, so a
checkpoint of another spec or of stale data is never reported as this run's. One sensor serves all runs; it requests assets, so
no run needs a job of its own.
"""

import json
from collections.abc import Iterator, Sequence

import dagster as dg

from jobs.automation import sensors_at_start
from lineage.artifact.store import Artifact
from lineage.build.nodes import exists, find_all
from marin_assets.describe import materialization, provenance, recorded
from marin_assets.due import committed, missing_results
from marin_assets.event_log import reports
from recipes.forecasts import forecast_of, outcome, verdict
from recipes.policies import policy_config
from recipes.records.run import Run
from recipes.runs import audit, export_canary
from resources.executor import TOGETHER_TAG
from resources.lab import Lab
from trainer.spec.stage import parse_step_partition

REQUESTED = ("eval_result", "contamination_scores", "contamination_audit", "hf_model", "hf_canary")
VERDICT = "verdict"
"""Beside the steps of a run in the cursor: the request for the verdict on its forecast of a score."""


def checkpoint_sensor(runs: Sequence[Run]) -> dg.SensorDefinition:
    """Sensor of all declared runs. Its cursor maps run and step to the data version and policy that were reported, and run and
    `verdict` to the request for the verdict on its forecast of a score.
    """
    keys = [_key(run, name) for run in runs for name in REQUESTED] + [key for run in runs for key in _judged(run)]

    @dg.sensor(
        name="checkpoints",
        asset_selection=dg.AssetSelection.assets(*keys),
        minimum_interval_seconds=30,
        default_status=sensors_at_start(),
        description="Reports each new checkpoint of every run; requests its evaluations and audit, the export of the last, and "
        "verdicts on forecasts.",
    )
    def new_checkpoints(context: dg.SensorEvaluationContext, lab: dg.ResourceParam[Lab]) -> dg.SensorResult:
        before: dict[str, dict[str, str]] = json.loads(context.cursor or "{}")
        events, requests, waiting = [], [], []
        after = dict(before)
        for run in runs:
            reported = before.get(run.name, {})
            committed_steps = {
                step: artifact for step, artifact in committed(lab, run) if reported.get(step) != _mark(run, artifact)
            }
            for step, artifact in sorted(committed_steps.items()):
                if not reports(context.instance, artifact, newest=1):
                    events.append(_materialization(artifact))
                requests += _requests(lab, run, step, artifact)
            if committed_steps:
                after[run.name] = reported | {step: _mark(run, artifact) for step, artifact in committed_steps.items()}
            due = _score_verdict(lab, run)
            if isinstance(due, str):
                waiting.append(due)
            elif due is not None and due.run_key != reported.get(VERDICT):
                requests.append(due)
                after[run.name] = after.get(run.name, {}) | {VERDICT: str(due.run_key)}
        if after == before:
            count = sum(step != VERDICT for steps in before.values() for step in steps)
            why = "; ".join([f"no new checkpoint of {len(runs)} runs; {count} are reported", *waiting])
            return dg.SensorResult(skip_reason=why)
        return dg.SensorResult(asset_events=events, run_requests=requests, cursor=json.dumps(after))

    return new_checkpoints


def _key(run: Run, name: str) -> dg.AssetKey:
    return dg.AssetKey(["runs", run.name, name])


def _judged(run: Run) -> list[dg.AssetKey]:
    """What judges the forecast of a run; nothing for a run without one. A score is judged by an evaluation of the run's own."""
    of = forecast_of(run)
    judges = () if of is None else (verdict,) if of.score is not None else (outcome, verdict)
    return [dg.AssetKey(list(node(of, run).key)) for node in judges]


def _score_verdict(lab: Lab, run: Run) -> dg.RunRequest | str | None:
    """The request for the verdict on a forecast of a score, or which evaluation it waits for.

    None if the verdict exists, or if the run has no forecast of a score. It is requested once for the bytes of the evaluation,
    whenever that was committed; after a failure a person decides.
    """
    of = forecast_of(run)
    if of is None or of.score is None:
        return None
    judging = outcome(of, run)
    result, made = find_all(lab.store, (judging, verdict(of, run)))
    if made is not None:
        return None
    if result is None:
        return f"{'/'.join(verdict(of, run).key)} waits for {judging.name}"
    tags = {"marin/run": run.name}
    return dg.RunRequest(f"{run.name}:{result.data_version}:verdict", asset_selection=_judged(run), tags=tags)


def _mark(run: Run, artifact: Artifact) -> str:
    """What the cursor keeps of a step. A policy of another date requests its evaluations again."""
    return f"{artifact.data_version} {policy_config(run).name}"


def _requests(lab: Lab, run: Run, step: str, artifact: Artifact) -> Iterator[dg.RunRequest]:
    """Yield requests for what the policy requires at a step, and its audit with the scores that it needs; for the last step
    also the export with its canary, and the verdict on the run's forecast of a loss.

    Only what does not exist is requested, because a cursor may be lost and an artifact stays. Each is requested once for
    the bytes of a checkpoint. The launcher retries infrastructure failures (docs/design/launchers.md). After any other
    failure a person decides: the leaderboard's check `due_results_present` names missing results of evaluations, and a
    failed audit, export or verdict is a failed asset.
    """
    number, saved = parse_step_partition(step), run.spec.saved_steps()
    policy, mark = policy_config(run), f"{run.name}:{step}:{artifact.data_version}"
    for _, _, rule in missing_results(lab, [(run, step)]):
        task = rule.task.name
        yield dg.RunRequest(
            run_key=f"{mark}:{policy.name}:{task}",
            asset_selection=[_key(run, "eval_result")],
            partition_key=dg.MultiPartitionKey({"step": step, "task": task}),
            tags={
                "marin/run": run.name,
                "marin/eval_policy": policy.name,
                "dagster/priority": str(rule.priority),
            },
        )
    tags = {"marin/run": run.name, TOGETHER_TAG: "yes"}
    if not exists(lab.store, audit(run, number)):
        yield dg.RunRequest(
            run_key=f"{mark}:audit",
            asset_selection=[_key(run, "contamination_scores"), _key(run, "contamination_audit")],
            partition_key=step,
            tags=tags,
        )
    if number == saved[-1] and not exists(lab.store, export_canary(run, number)):
        yield dg.RunRequest(
            run_key=f"{mark}:export",
            asset_selection=[_key(run, "hf_model"), _key(run, "hf_canary")],
            partition_key=step,
            tags=tags,
        )
    of = forecast_of(run)
    if number == saved[-1] and of is not None and of.score is None and not exists(lab.store, verdict(of, run)):
        yield dg.RunRequest(run_key=f"{mark}:verdict", asset_selection=_judged(run), tags=tags)


def _materialization(artifact: Artifact) -> dg.AssetMaterialization:
    """Report a checkpoint with the content of its manifest: runless events carry only what their caller gives."""
    metadata = recorded(artifact) | provenance(artifact)
    return materialization(artifact, metadata, f"step {metadata['step'].value}: loss {metadata['loss_nats'].value:.4f} nats")
