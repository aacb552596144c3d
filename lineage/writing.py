"""Writing an artifact: a stage works in a folder of its own, and what it leaves there appears whole or not at all.

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
from typing import Any

from lineage.commit import commit
from lineage.crew import Crew
from lineage.digests import identity_digest
from lineage.failures import kind_of
from lineage.measure import Meter, measuring
from lineage.packages import RECORDED, commit_of, installed_versions
from lineage.shards import disk_full
from lineage.shared_shards import SharedShards
from lineage.spec import ArtifactSpec
from lineage.store import Artifact, Store
from lineage.working_folder import working_folder
from lineage.writer import Writer


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
) -> Iterator[Writer]:
    """Write an artifact; its manifest appears on a clean exit, or nothing does.

    A job that worked before it had something to write gives the `meter` that has run since it started. `waivers` that the
    launch gate took are kept in the manifest, and so are the installed versions of `packages`, the distributions that the
    stage's code imports.

    When another writer commits the same identity first, its artifact wins and ours is discarded. Only an artifact that
    was made without some of its shards, or whose files are damaged, may be replaced (`replacing`).
    """
    versions = installed_versions({*RECORDED, *packages}) | commit_of(os.environ)
    code = code_id(code_fingerprint, {name: versions[name] for name in packages if name in versions})
    own = Crew() if store.crew is None else nullcontext(store.crew)
    with working_folder(store, spec, code) as folder, measuring() as own_meter, own as crew:
        out = Writer(store, spec, folder, shared=SharedShards(store.storage, spec.version, code), crew=crew)
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
    """Digest of the code that makes an artifact, packages included: shards of other code are not mixed in."""
    return identity_digest([code_fingerprint, {name: packages[name] for name in sorted(packages)}])
