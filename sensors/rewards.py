"""Report the rollouts and checkpoints that jobs on rewards commit, while they run; request scores and audit of the last step.

Like `sensors/checkpoints.py`, it meets the job only in the store and asks for what is declared today.
"""

import json
from collections.abc import Iterator, Sequence

import dagster as dg

from jobs.automation import sensors_at_start
from lineage.artifact.store import Artifact
from lineage.build.nodes import Node, exists, find_all
from marin_assets.describe import materialization, provenance, recorded
from marin_assets.event_log import reports
from marin_assets.reward_views import sampled_rollouts
from post_training.stage import ROLLOUTS
from recipes.records.reward_run import RewardRun
from recipes.reward_runs import audit_of_rollouts, held_out, reward_checkpoint, rollouts
from resources.executor import TOGETHER_TAG
from resources.lab import Lab
from trainer.spec.stage import step_partition

REQUESTED = ("held_out", "rollout_texts", "rollout_marks", "contamination_audit")
MOST_EVENTS = 100
"""Events of one tick; the rest waits for the next."""


def reward_sensor(runs: Sequence[RewardRun]) -> dg.SensorDefinition:
    """Sensor of all declared runs on rewards. Its cursor maps run and partition to the data version that was reported."""
    keys = [dg.AssetKey(["runs", run.name, name]) for run in runs for name in REQUESTED]

    @dg.sensor(
        name="rewards",
        asset_selection=dg.AssetSelection.assets(*keys),
        minimum_interval_seconds=30,
        default_status=sensors_at_start(),
        description="Reports rollouts and checkpoints of runs on rewards; requests held-out scores and the audit of the last.",
    )
    def new_rollouts(context: dg.SensorEvaluationContext, lab: dg.ResourceParam[Lab]) -> dg.SensorResult:
        reported: dict[str, dict[str, str]] = json.loads(context.cursor or "{}")
        events: list[dg.AssetMaterialization] = []
        requests: list[dg.RunRequest] = []
        before = json.dumps(reported)
        for run in runs:
            known = reported.setdefault(run.name, {})
            fresh = [each for each in committed(lab, run) if known.get(str(each.spec.partition)) != each.data_version]
            for artifact in fresh[: MOST_EVENTS - len(events)]:
                if not reports(context.instance, artifact, newest=1):
                    events.append(_event(artifact))
                requests += _requests(lab, run, artifact)
                known[str(artifact.spec.partition)] = artifact.data_version
        if json.dumps(reported) == before:
            return dg.SensorResult(skip_reason=f"nothing new of {len(runs)} runs on rewards")
        return dg.SensorResult(asset_events=events, run_requests=requests, cursor=json.dumps(reported))

    return new_rollouts


def committed(lab: Lab, run: RewardRun) -> Iterator[Artifact]:
    """Yield the rollouts and checkpoints of a run that have a manifest, rollouts first."""
    nodes: list[Node] = [rollouts(run, number) for number in range(run.spec.iterations)]
    nodes += [reward_checkpoint(run, step) for step in run.spec.run.saved_steps()]
    yield from (artifact for artifact in find_all(lab.store, nodes) if artifact is not None)


def _event(artifact: Artifact) -> dg.AssetMaterialization:
    metadata = recorded(artifact) | provenance(artifact)
    if artifact.spec.stage != ROLLOUTS.name:
        return materialization(artifact, metadata, f"step {artifact.manifest.extra['checkpoint']['step']}")
    reward = artifact.manifest.extra["iteration"]["reward"]
    text = "no reward is known" if reward is None else f"mean reward {reward:.3f}"
    return materialization(artifact, sampled_rollouts(artifact) | metadata, text)


def _requests(lab: Lab, run: RewardRun, artifact: Artifact) -> Iterator[dg.RunRequest]:
    """Yield requests for scores and audit of the last checkpoint, where they do not exist."""
    last = run.spec.run.num_steps
    if artifact.spec.partition != step_partition(last):
        return
    mark, tags = f"{run.name}:{artifact.data_version}", {"marin/run": run.name, TOGETHER_TAG: "yes"}
    for name, node, assets in (
        ("held_out", held_out(run, last), REQUESTED[:1]),
        ("audit", audit_of_rollouts(run, last), REQUESTED[1:]),
    ):
        if not exists(lab.store, node):
            yield dg.RunRequest(
                run_key=f"{mark}:{name}",
                asset_selection=[dg.AssetKey(["runs", run.name, asset]) for asset in assets],
                partition_key=artifact.spec.partition,
                tags=tags,
            )
