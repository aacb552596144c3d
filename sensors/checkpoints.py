"""Report each checkpoint that a training job commits, and request its evaluation, audit and export, in one tick.

The job and the sensor meet only in the store: the sensor asks for the declared steps of the run as it is declared today,
so a checkpoint of another spec or of stale data is never reported as this run's.
"""

import json
from collections.abc import Iterator

import dagster as dg

from lineage.artifact.store import Artifact
from lineage.build.plan import exists
from marin_assets.describe import materialization, provenance, recorded
from marin_assets.due import committed, missing_results
from marin_assets.event_log import reports
from partitions.axes import steps
from recipes.lines import Line
from recipes.policies import policy_config
from recipes.runs import audit, export_canary
from resources.dagster_private import UnresolvedAssetJobDefinition
from resources.lab import Lab
from trainer.spec.stage import parse_step_partition


def checkpoint_sensor(
    line: Line,
    eval_job: UnresolvedAssetJobDefinition,
    audit_job: UnresolvedAssetJobDefinition,
    export_job: UnresolvedAssetJobDefinition,
) -> dg.SensorDefinition:
    """Sensor of one declared run. Its cursor maps each reported step to the data version and policy it had."""
    partitions_def = steps(line.run.name)

    @dg.sensor(
        name=f"{line.run.name}_checkpoints",
        jobs=[eval_job, audit_job, export_job],
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Reports each new checkpoint of `{line.run.name}`; requests evaluations, audit, at last an export.",
    )
    def new_checkpoints(context: dg.SensorEvaluationContext, lab: dg.ResourceParam[Lab]) -> dg.SensorResult:
        reported = json.loads(context.cursor or "{}")
        found = {step: artifact for step, artifact in committed(lab, line) if reported.get(step) != _mark(line, artifact)}
        unreported = {step: artifact for step, artifact in found.items() if not reports(context.instance, artifact, newest=1)}
        if not found:
            return dg.SensorResult(skip_reason=f"no new checkpoint of {line.run.name}; {len(reported)} are reported")
        return dg.SensorResult(
            dynamic_partitions_requests=[partitions_def.build_add_request(sorted(found))],
            asset_events=[_materialization(artifact) for _, artifact in sorted(unreported.items())],
            run_requests=[
                request
                for step, artifact in sorted(found.items())
                for request in _requests(lab, line, step, artifact, eval_job.name, audit_job.name, export_job.name)
            ],
            cursor=json.dumps(reported | {step: _mark(line, artifact) for step, artifact in found.items()}),
        )

    return new_checkpoints


def _mark(line: Line, artifact: Artifact) -> str:
    """What the cursor keeps of a step: a policy of another date asks for its evaluations anew."""
    return f"{artifact.data_version} {policy_config(line).name}"


def _requests(
    lab: Lab, line: Line, step: str, artifact: Artifact, eval_job: str, audit_job: str, export_job: str
) -> Iterator[dg.RunRequest]:
    """What the policy asks at a step, and its audit; of the last step the export with its canary too.

    Where they do not exist: a cursor may be lost, an artifact stays. Each is asked for once. What fails for the machine's sake
    the launcher tries again (docs/design/launchers.md); after any other failure that is a person's choice, who finds it in the
    leaderboard's check `due_results_present`.
    """
    number, saved = parse_step_partition(step), line.run.saved_steps()
    policy = policy_config(line)
    for _, _, rule in missing_results(lab, [(line, step)]):
        task = rule.task.name
        yield dg.RunRequest(
            run_key=f"{step}:{artifact.data_version}:{policy.name}:{task}",
            job_name=eval_job,
            partition_key=dg.MultiPartitionKey({"step": step, "task": task}),
            tags={"marin/eval_policy": policy.name, "dagster/priority": str(rule.priority)},
        )
    if not exists(lab.store, audit(line, number)):
        yield dg.RunRequest(run_key=f"{step}:{artifact.data_version}:audit", job_name=audit_job, partition_key=step)
    if number == saved[-1] and not exists(lab.store, export_canary(line, number)):
        yield dg.RunRequest(run_key=f"{step}:{artifact.data_version}:export", job_name=export_job, partition_key=step)


def _materialization(artifact: Artifact) -> dg.AssetMaterialization:
    """Reported with what the manifest says: runless events carry only what their caller gives."""
    metadata = recorded(artifact) | provenance(artifact)
    return materialization(artifact, metadata, f"step {metadata['step'].value}: loss {metadata['loss_nats'].value:.4f} nats")
