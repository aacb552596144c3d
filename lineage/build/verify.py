"""Make a drifted artifact, or some of its shards, again with today's code in scratch space, and compare every byte.

A stage with shards is resumed: shards that are not sampled are copied from the artifact as finished, so the code before and
after the shards runs too, over all of them. If today's code makes other shards or reads a statistic that these lack, or if
the manifest lists none, the whole artifact is made. The recorded inputs are used. The comparison includes the statistics and
extra facts of the manifest, which later stages read; those of a job (throughput) are left out.
"""

import datetime
import logging
from collections.abc import Collection
from typing import Any

from lineage.artifact.manifest import Manifest
from lineage.artifact.store import Artifact, Store
from lineage.build.reproduce import compare, grouped, read_config
from lineage.jobs.child_processes import run_subprocess
from lineage.jobs.job import Inputs, Job, Launcher, run_job
from lineage.shards.execution import ONE_WORKER, Execution
from lineage.stage import Stage
from lineage.storage.digests import identity_digest
from lineage.trust.evidence import Evidence, record_evidence
from lineage.trust.fingerprint import CODE_FINGERPRINT, Code, stage_code
from lineage.writing.working_folder import discard_working_folder
from lineage.writing.write import writing
from lineage.writing.writer import adopt_shards

log = logging.getLogger(__name__)

SAMPLED_SHARDS = 3


def verify(
    artifact: Artifact,
    stage: Stage,
    into: Store,
    *,
    who: str,
    num_shards: int = SAMPLED_SHARDS,
    execution: Execution = ONE_WORKER,
    launcher: Launcher | None = None,
) -> Evidence:
    """Make an artifact again in a scratch store, record the evidence beside its manifest, and return it.

    Raises: ValueError for an artifact of another stage version (it is stale, and no evidence changes that), for a config that
    does not read back, for an input that is gone, and for a job whose inputs are not on a local root; what the stage raises.
    """
    if (artifact.spec.stage, artifact.spec.stage_version) != (stage.name, stage.version):
        raise ValueError(
            f"{artifact.name} was made by {artifact.spec.stage} {artifact.spec.stage_version}, this checkout has {stage.name} "
            f"{stage.version}: it is stale, not drifted; materialize it"
        )
    code = stage_code(stage.module)
    sample = sampled(artifact, code, num_shards)
    try:
        rebuilt = remake(artifact, stage, code, into, sample=sample, execution=execution, launcher=launcher)
    except KeyError as error:
        if not sample:
            raise
        log.info("%s: its shards have no statistic %s; the whole artifact is made again", artifact.name, error)
        discard_working_folder(into, artifact.spec)
        sample = frozenset()
        rebuilt = remake(artifact, stage, code, into, execution=execution, launcher=launcher)
    if sample and rebuilt.shards.keys() != artifact.manifest.shards.keys():
        log.info("%s: today's code makes other shards; the whole artifact is made again", artifact.name)
        into.delete(Artifact(into, rebuilt))
        sample = frozenset()
        rebuilt = remake(artifact, stage, code, into, sample=sample, execution=execution, launcher=launcher)
    detail = difference(artifact.manifest, rebuilt, facts=stage.job is None)
    copied = {path for name, shard in artifact.manifest.shards.items() if sample and name not in sample for path in shard.files}
    evidence = Evidence(
        fingerprint=code.fingerprint,
        packages=code.packages,
        outcome="differs" if detail else "equal",
        shards=tuple(sorted(sample)),
        num_shards=len(artifact.manifest.shards),
        files=tuple(sorted({entry.path for entry in rebuilt.files} - copied)),
        detail=detail,
        who=who,
        when=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    record_evidence(artifact, code, evidence)
    return evidence


def sampled(artifact: Artifact, code: Code, num_shards: int) -> frozenset[str]:
    """Choose shards to make again: pseudo-random, fixed by code and artifact. Empty if the whole artifact is to be made."""
    names = artifact.manifest.shards.keys()
    if num_shards >= len(names):
        return frozenset()
    return frozenset(sorted(names, key=lambda name: identity_digest([artifact.spec.version, code.id, name]))[:num_shards])


def remake(
    artifact: Artifact,
    stage: Stage,
    code: Code,
    into: Store,
    *,
    sample: Collection[str] = (),
    execution: Execution = ONE_WORKER,
    launcher: Launcher | None = None,
) -> Manifest:
    """Make an artifact again in another store: all of it, or a sample of its shards with copies of the others. Returns its
    manifest."""
    spec = artifact.spec
    there = into.find(spec)
    if there is not None:  # an earlier step that a training job committed on its way
        return there.manifest
    inputs: Inputs = grouped(spec.inputs, artifact.store.parents(artifact))
    extent = f"{len(sample)} of {len(artifact.manifest.shards)} shards" if sample else "all of it"
    log.info("%s: making %s again in %s", artifact.name, extent, into.root)
    if stage.job is not None:
        _lend_ancestors(artifact, into)
        job = Job(into, spec, inputs, code.fingerprint, "verify", packages=tuple(code.packages), execution=execution)
        return run_job(stage.job, job, launcher or run_subprocess).artifact.manifest
    assert stage.run is not None  # a stage has exactly one of the two
    config = read_config(spec, stage)
    with writing(into, spec, code.fingerprint, "verify", packages=tuple(code.packages), execution=execution) as out:
        if sample:
            adopt_shards(out, artifact, besides=sample)
        stage.run(out, config, **inputs)
    return out.artifact.manifest


def difference(recorded: Manifest, rebuilt: Manifest, *, facts: bool) -> str:
    """Describe what differs, files first; empty if nothing does. With `facts`, statistics and extra are compared too.

    Waivers and code fingerprints are not compared, because they are no results.
    """
    comparison = compare(recorded, rebuilt)
    if not comparison.is_equal or not facts:
        return comparison.detail
    facts_of_both = {name: (getattr(recorded, name), getattr(rebuilt, name)) for name in ("statistics", "extra")}
    paths = [
        path for name, (then, now) in facts_of_both.items() for path in _differing(then, now, name) if not _no_result(path)
    ]
    return f"its files are equal, its manifest would differ at {', '.join(paths[:5])}" if paths else ""


def _no_result(path: str) -> bool:
    return path == "extra.waivers" or path.endswith(f".{CODE_FINGERPRINT}")


def _differing(then: Any, now: Any, where: str) -> list[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        keys = sorted(then.keys() | now.keys())
        return [path for key in keys for path in _differing(then.get(key), now.get(key), f"{where}.{key}")]
    plain = [list(value) if isinstance(value, tuple) else value for value in (then, now)]  # as in JSON
    return [] if plain[0] == plain[1] else [where]


def _lend_ancestors(artifact: Artifact, into: Store) -> None:
    """Link the folders of all ancestors into the scratch store, so that a job finds its inputs there. Nobody writes into
    them."""
    store = artifact.store
    if not (store.storage.is_local and into.storage.is_local):
        raise ValueError(f"{artifact.name} is made by a job, which is verified on local roots only; {store.root} is not")
    for ancestor in store.walk_up(artifact):
        link = into.storage.local(ancestor.spec.address)
        if ancestor.spec.address != artifact.spec.address and not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(store.storage.local(ancestor.spec.address).resolve(), target_is_directory=True)
