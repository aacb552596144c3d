"""Write an artifact: a stage fills its own folder, and the artifact appears atomically or not at all.

    store = Store("/data/lab")
    with writing(store, spec) as out:             # resumes finished shards of a killed attempt
        (out.folder / "numbers.parquet")...       # write data files here
        out.record(rows_in=10, rows_out=9, drops={"empty": 1})
    artifact = out.artifact                       # the manifest was written on the clean exit

A killed writer leaves only a working folder under `<root>/.work/`, which the next attempt takes over.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from lineage.artifact.packages import RECORDED, commit_of, installed_versions
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.shards.execution import ONE_WORKER, Execution
from lineage.shards.failures import kind_of
from lineage.shards.measure import Meter, measuring
from lineage.shards.run import disk_full
from lineage.shards.shared import SharedShards
from lineage.shards.worker_pool import WorkerPool
from lineage.storage.digests import identity_digest
from lineage.writing.commit import commit
from lineage.writing.working_folder import working_folder
from lineage.writing.writer import Writer


@contextmanager
def writing(
    store: Store,
    spec: ArtifactSpec,
    code_fingerprint: str = "",
    run_id: str = "",
    meter: Meter | None = None,
    waivers: Sequence[Mapping[str, Any]] = (),
    packages: Collection[str] = (),
    replacing: Artifact | None = None,
    execution: Execution = ONE_WORKER,
) -> Iterator[Writer]:
    """Write an artifact: its manifest appears on a clean exit, or nothing does.

    A job that worked before it calls this gives its own running `meter`. The manifest records the `waivers` that the launch
    gate used and the installed versions of `packages`, the distributions that the stage's code imports.

    If another writer commits the same identity first, its artifact wins and ours is discarded. Only an artifact that was made
    without some of its shards, or whose files are damaged, may be replaced (`replacing`).
    """
    versions = installed_versions({*RECORDED, *packages}) | commit_of(os.environ)
    code = code_id(code_fingerprint, {name: versions[name] for name in packages if name in versions})
    pool = WorkerPool() if execution.pool is None else nullcontext(execution.pool)
    with working_folder(store, spec, code) as folder, measuring() as own_meter, pool as workers:
        shared = SharedShards(store.storage, spec.version, code)
        out = Writer(store, spec, folder, replace(execution, pool=workers), shared=shared)
        try:
            yield out
            if taken := [*waivers, *(out.waivers if out.omitted else ())]:
                out.extra["waivers"] = taken
            use = (meter or own_meter).use()
            out.committed = Artifact(store, commit(out, use, code_fingerprint, run_id, versions, replacing))
            if out.adopted and out.shared is not None:
                out.shared.delete()
        except Exception as error:
            if kind_of(error) == "disk":
                raise disk_full(error, spec.name, folder) from error
            raise


def code_id(code_fingerprint: str, packages: Mapping[str, str]) -> str:
    """Return a digest of the code that makes an artifact, with its packages. Shards of other code are not reused."""
    return identity_digest([code_fingerprint, {name: packages[name] for name in sorted(packages)}])
