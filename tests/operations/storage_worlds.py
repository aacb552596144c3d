"""What tests of purges share: an approved plan, the bytes of a store, and inputs that point at nothing."""

import datetime
import shutil
from collections.abc import Mapping
from pathlib import Path

from lineage.artifact.store import Store
from operations.storage.plan import approve, make_plan, save_plan

NOW = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)


def WHEN() -> datetime.datetime:  # noqa: N802
    """The present time, for tests whose attempts have real times."""
    return datetime.datetime.now(datetime.UTC)


def planned(store: Store, declared: Mapping[str, str], now: datetime.datetime = NOW) -> str:
    """Digest of an approved plan that spares nothing for its youth."""
    digest = save_plan(store, make_plan(store, declared, None, now, young_days=0))
    approve(store, digest, "ada", now)
    return digest


def bytes_below(store: Store) -> dict[str, bytes]:
    """Every file of every artifact, records of operations apart."""
    root = Path(store.root)
    paths = [path for path in root.rglob("*") if path.is_file()]
    named = {path.relative_to(root).as_posix(): path for path in paths}
    return {name: path.read_bytes() for name, path in named.items() if not name.startswith(".")}


def dangling(store: Store) -> list[str]:
    """Return inputs of present artifacts that do not exist. A child that is deleted during the check does not count."""
    artifacts = list(store.artifacts())
    missing = [(a, ref) for a in artifacts for ref in a.spec.inputs if store.open(ref.address) is None]
    return [f"{a.name} <- {ref.address}" for a, ref in missing if store.open(a.spec.address) is not None]


def copy_of(store: Store, folder: Path) -> Store:
    shutil.copytree(store.root, folder)
    return Store(str(folder))
