"""The lab's places: the canonical store, the ferries' TTL'd store, and how jobs are launched."""

import os
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from lineage.jobs import Launcher, run_subprocess
from lineage.store import Store

REPOSITORY = Path(__file__).resolve().parent.parent
DEFAULT_ROOT = ".marin"
FERRY_TTL_DAYS = 7


@dataclass(frozen=True)
class Lab:
    """Plain object that assets receive. `ferry_store` holds only what may be deleted after `FERRY_TTL_DAYS`."""

    store: Store
    ferry_store: Store
    launcher: Launcher

    @staticmethod
    def at(root: str, *, workers: int, launcher: Launcher = run_subprocess) -> "Lab":
        """A lab under a root folder or URL; relative folders are taken from the repository's root."""
        if "://" in root:
            return Lab(Store(f"{root}/artifacts", workers), Store(f"{root}/ttl-{FERRY_TTL_DAYS}d", workers), launcher)
        base = (REPOSITORY / root).resolve()
        scratch = str(base / "work")  # one download cache for both stores, on the file system of both
        return Lab(
            Store(str(base / "artifacts"), workers, scratch),
            Store(str(base / f"ttl-{FERRY_TTL_DAYS}d"), workers, scratch),
            launcher,
        )


class LabResource(dg.ConfigurableResource[Lab]):
    """Root of the lab's storage (a folder or any fsspec URL) and processes used inside one stage."""

    root: str = DEFAULT_ROOT
    workers: int = 2

    def create_resource(self, context: dg.InitResourceContext) -> Lab:
        return Lab.at(self.root, workers=self.workers)


def lab_from_environment() -> LabResource:
    """The lab that `MARIN_ROOT` and `MARIN_WORKERS` name; `.marin` in the repository and two workers otherwise."""
    return LabResource(root=os.environ.get("MARIN_ROOT", DEFAULT_ROOT), workers=int(os.environ.get("MARIN_WORKERS", "2")))
