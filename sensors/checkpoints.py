"""Report each checkpoint that a training job commits, and request its evaluation and audit, in one tick.

The job and the sensor meet only in the store: the sensor asks for the declared steps of the run as it is declared today,
so a checkpoint of another spec or of stale data is never reported as this run's.
"""

import json
from collections.abc import Iterator

import dagster as dg

from evals.stage import TaskSpec
from lineage.config import to_jsonable
from lineage.plan import MissingArtifactError, resolve
from lineage.store import Artifact
from marin_assets.runs import checkpoint_key
from partitions.axes import steps
from recipes.lines import Line
from recipes.runs import checkpoint, eval_tasks, saved_steps
from resources.dagster_private import UnresolvedAssetJobDefinition
from resources.lab import Lab
from trainer.stage import step_partition


def checkpoint_sensor(
    line: Line, eval_job: UnresolvedAssetJobDefinition, audit_job: UnresolvedAssetJobDefinition
) -> dg.SensorDefinition:
    """Sensor of one declared run. Its cursor maps each reported step to the data version it had."""
    partitions_def = steps(line.run.name)

    @dg.sensor(
        name=f"{line.run.name}_checkpoints",
        jobs=[eval_job, audit_job],
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Reports each new checkpoint of `{line.run.name}` as a step and requests its evaluation and audit.",
    )
    def new_checkpoints(context: dg.SensorEvaluationContext, lab: dg.ResourceParam[Lab]) -> dg.SensorResult:
        reported = json.loads(context.cursor or "{}")
        found = {step: artifact for step, artifact in committed(lab, line) if reported.get(step) != artifact.data_version}
        if not found:
            return dg.SensorResult(skip_reason=f"no new checkpoint of {line.run.name}; {len(reported)} are reported")
        return dg.SensorResult(
            dynamic_partitions_requests=[partitions_def.build_add_request(sorted(found))],
            asset_events=[_materialization(line, step, artifact) for step, artifact in sorted(found.items())],
            run_requests=[
                request
                for step, artifact in sorted(found.items())
                for request in _requests(step, artifact, eval_tasks(line), eval_job.name, audit_job.name)
            ],
            cursor=json.dumps(reported | {step: artifact.data_version for step, artifact in found.items()}),
        )

    return new_checkpoints


def committed(lab: Lab, line: Line) -> Iterator[tuple[str, Artifact]]:
    """Step partitions of the run whose checkpoint has a manifest, under the data and the spec declared today."""
    for step in saved_steps(line.run):
        try:
            yield step_partition(step), resolve(lab.store, checkpoint(line, step))
        except MissingArtifactError:
            continue


def _requests(
    step: str, artifact: Artifact, tasks: tuple[TaskSpec, ...], eval_job: str, audit_job: str
) -> Iterator[dg.RunRequest]:
    for task in tasks:
        yield dg.RunRequest(
            run_key=f"{step}:{artifact.data_version}:{task.name}",
            job_name=eval_job,
            partition_key=dg.MultiPartitionKey({"step": step, "task": task.name}),
        )
    yield dg.RunRequest(run_key=f"{step}:{artifact.data_version}:audit", job_name=audit_job, partition_key=step)


def _materialization(line: Line, step: str, artifact: Artifact) -> dg.AssetMaterialization:
    """Runless events carry only the caller's tags, so the versions are copied from the manifest."""
    facts = artifact.manifest.extra["checkpoint"]
    return dg.AssetMaterialization(
        asset_key=checkpoint_key(line),
        partition=step,
        description=f"step {facts['step']}: loss {facts['loss_nats']:.4f} nats",
        metadata={
            "step": int(facts["step"]),
            "loss_nats": float(facts["loss_nats"]),
            "tokens_seen": int(facts["tokens_seen"]),
            "tokens_per_second": float(artifact.manifest.extra["throughput"]["tokens_per_second"]),
            "bytes": sum(entry.bytes for entry in artifact.manifest.files),
            "artifact": dg.MetadataValue.path(artifact.uri),
            "inputs": dg.MetadataValue.json([to_jsonable(ref) for ref in artifact.spec.inputs]),
        },
        tags={
            "dagster/data_version": artifact.data_version,
            "dagster/code_version": f"{artifact.spec.stage}@{artifact.spec.stage_version}",
            "marin/version": artifact.spec.version,
        },
    )
