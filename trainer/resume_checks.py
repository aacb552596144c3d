"""Check an unfinished run of the same name: resume it with the same inputs or refuse; never restart silently.

The identity of a run holds its config and the digests of its inputs. With other inputs it finds no checkpoint of its own and
would start from step 0, while days of earlier training stay in the root unnoticed. Kept checkpoints do not show an unfinished
run, because a finished run has them too; rolling checkpoints exist only while a run is unfinished.
"""

import json
import logging
from collections.abc import Iterator
from typing import Any

import jax

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact
from lineage.config import to_jsonable
from lineage.jobs.job import Job
from trainer.saving import checkpoint_spec, rolling_store, step_of

log = logging.getLogger("trainer")

DIFFERENCES = 5
"""Differences that a message names for one checkpoint."""


def refuse_other_inputs(job: Job) -> None:
    """Look for rolling checkpoints of this run (by key, and by partition if that is not a step) under another identity.

    Rolling checkpoints of a finished run were left by a kill and are deleted.

    Raises: ValueError naming each checkpoint of an unfinished run, both digests, the differences, and what to do.
    """
    others = list(_others(job))
    alive = [each for each in others if not _is_finished(job, each)]
    if jax.process_index() == 0:
        for each in others:
            if each not in alive:
                log.info("%s belongs to a run that has finished; it is deleted", each.uri)
                each.store.delete(each)
    if not alive:
        return
    differences = "; ".join(_difference(each, checkpoint_spec(job.spec, step_of(each))) for each in alive)
    remove = "rm -r" if job.store.storage.is_local else "gcloud storage rm -r"
    raise ValueError(
        f"{job.spec.name}: an unfinished run of that name was made from something else, and a run cannot continue with other "
        f"inputs: {differences}. To finish that run, restore its inputs; to drop it and start from step 0: `{remove} "
        f"{' '.join(each.uri for each in alive)}`, then start this one again; to keep both, give this run another name"
    )


def check_frozen_inputs(job: Job, checkpoint: Artifact) -> None:
    """Raises: ValueError where the inputs recorded in a checkpoint's state differ from those of the run that would resume."""
    frozen = json.loads(checkpoint.file("state.json").read_text())["inputs"]
    differing = list(_differing(frozen, [ref.identity() for ref in job.spec.inputs], "inputs"))
    if differing:
        raise ValueError(
            f"{job.spec.name}: the state in {checkpoint.uri} was trained from other inputs than its manifest says: "
            f"{', '.join(differing)}; a run cannot continue with other inputs; delete that checkpoint"
        )


def _others(job: Job) -> Iterator[Artifact]:
    for each in rolling_store(job.store).artifacts(*job.spec.key):
        if isinstance(each.spec.config.get("step"), int):
            expected = checkpoint_spec(job.spec, step_of(each))
            if each.spec.partition == expected.partition and each.spec.version != expected.version:
                yield each


def _is_finished(job: Job, checkpoint: Artifact) -> bool:
    return job.store.find(checkpoint_spec(checkpoint.spec, checkpoint.spec.config["run"]["num_steps"])) is not None


def _difference(there: Artifact, here: ArtifactSpec) -> str:
    identities = [
        {
            "stage_version": spec.stage_version,
            "config": to_jsonable(spec.config),
            "inputs": {ref.name: {"artifact": "/".join(ref.key), "data version": ref.data_version} for ref in spec.inputs},
        }
        for spec in (there.spec, here)
    ]
    differences = [each for name in identities[0] for each in _differing(identities[0][name], identities[1][name], name)]
    more = f" and {len(differences) - DIFFERENCES} more" if len(differences) > DIFFERENCES else ""
    return f"step {step_of(there)} has version {there.spec.version}, of this run it is {here.version}: " + (
        f"{', '.join(differences[:DIFFERENCES])}{more}"
    )


def _differing(there: Any, here: Any, where: str) -> Iterator[str]:
    """`where is 4 there, 2 here` of every leaf of two JSON values that differs."""
    if isinstance(there, dict) and isinstance(here, dict):
        for name in {**there, **here}:
            yield from _differing(there.get(name), here.get(name), f"{where}.{name}")
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for number, (one, other) in enumerate(zip(there, here, strict=True)):
            yield from _differing(one, other, f"{where}[{number}]")
    elif there != here:
        yield f"{where} is {there!r} there, {here!r} here"
