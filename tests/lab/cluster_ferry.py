"""Run today's smoke ferry on a local cluster and compare every artifact with the local ferry: `make cluster-ferry`.

It uses the real recipe and command: jobs are Kubernetes Jobs whose pods run, artifacts are in a bucket, Dagster's storage is
PostgreSQL. If the local ferry of the day is missing, it runs first (`./marin ferry`, seven minutes; the cluster's takes ten).
The exit status is 1 if an artifact differs. `--data-runners 2` gives shards of data stages to Indexed Jobs; `--keep FOLDER`
keeps the bucket and the log of jobs.
"""

import argparse
import datetime
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from kubelet import now
from launches import ROOT
from postgres import Postgres
from rich.console import Console
from rich.table import Table
from whole_lab import WholeLab

from lineage.artifact.store import Store
from lineage.build.nodes import resolve
from recipes import ferry as recipe
from recipes.smoke import smoke_ferry
from resources.cluster import JOBS, Cluster
from resources.stores import DEFAULT_ROOT, FERRY_TTL_DAYS

TIMED = ("evals.report",)
"""Stages whose bytes contain durations of other stages."""


@dataclass(frozen=True)
class Compared:
    """One artifact of both ferries; versions are of its data."""

    name: str
    stage: str
    local: str
    cluster: str

    @property
    def verdict(self) -> str:
        if self.stage in TIMED:
            return "tells times"
        return "equal" if self.local == self.cluster else "DIFFERS"


def local_store() -> Store:
    root = os.environ.get("MARIN_ROOT", DEFAULT_ROOT)
    return Store(str((ROOT / root).resolve() / f"ttl-{FERRY_TTL_DAYS}d"), scratch_folder=str((ROOT / root).resolve() / "work"))


def compared(local: Store, cluster: Store, day: str) -> list[Compared]:
    """Compare every artifact of the local day, its roster first, with the artifact of the same identity on the cluster."""
    ferry = smoke_ferry()
    report = resolve(local, recipe.report(recipe.rostered_run(ferry, local, day)))
    made = [resolve(local, recipe.existing_roster(ferry, local, day)), *reversed(list(local.walk_up(report)))]
    pairs = [(artifact, cluster.find(artifact.spec)) for artifact in made]
    return [
        Compared(here.name, here.spec.stage, here.data_version, "missing" if there is None else there.data_version)
        for here, there in pairs
    ]


def run_ferry(lab: WholeLab, day: str, downloads: Path) -> float:
    """Run the ferry on the cluster and return its seconds. It gets the existing downloads: their hashes are pinned."""
    if downloads.is_dir():
        shutil.copytree(downloads, lab.folder / "scratch" / "downloads")
    lab.kubelet.add_node("cpu-0")
    started = time.monotonic()
    lab.run("-m", "marin_assets.cli", "ferry", "--day", day)
    return time.monotonic() - started


def jobs_table(cluster: Cluster) -> Table:
    table = Table(title=f"Jobs on the API server ({cluster.server_version()})", title_style="bold", pad_edge=False)
    for name in ("job", "artifact", "image", "s", "ended"):
        table.add_column(name)
    for job in cluster.find(JOBS):
        status, notes = job["status"], job["metadata"]["annotations"]
        begun, ended = (datetime.datetime.fromisoformat(status.get(key, now())) for key in ("startTime", "completionTime"))
        state = "succeeded" if status.get("succeeded") else "failed"
        words = (
            notes["marin.community/artifact"],
            notes["marin.community/image"],
            f"{(ended - begun).total_seconds():.0f}",
            state,
        )
        table.add_row(job["metadata"]["name"], *words)
    return table


def versions_table(rows: list[Compared]) -> Table:
    table = Table(title="data versions: local, on the cluster", title_style="bold", pad_edge=False)
    for name in ("artifact", "local", "cluster", ""):
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(row.name, row.local[:16], row.cluster[:16], row.verdict)
    return table


def events(database: Postgres) -> str:
    ((runs, passed),) = database.rows("select count(*), count(*) filter (where status = 'SUCCESS') from runs")
    ((stored,),) = database.rows("select count(*) from event_logs")
    return f"PostgreSQL: {runs} run(s), {passed} of them successful, {stored} events"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--day", default=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"))
    parser.add_argument(
        "--data-runners", type=int, default=0, help="pods of an Indexed Job for each map of shards; 0: the step"
    )
    parser.add_argument("--keep", type=Path, help="an empty folder; otherwise everything goes at the end")
    given = parser.parse_args()
    console = Console(width=150)
    local = local_store()
    if not any(local.artifacts("ferry", "report", given.day)):
        subprocess.run([str(ROOT / "marin"), "ferry", "--day", given.day], check=True)
    with tempfile.TemporaryDirectory(prefix="marin-ferry-") as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        with WholeLab(folder, data_runners=given.data_runners) as lab:
            seconds = run_ferry(lab, given.day, local.downloads)
            os.environ["STORAGE_EMULATOR_HOST"] = lab.bucket.url
            there = Store(f"{lab.root}/ttl-{FERRY_TTL_DAYS}d", scratch_folder=str(folder / "compared"))
            rows = compared(local, there, given.day)
            console.print(jobs_table(lab.admin), versions_table(rows), events(lab.postgres))
    differing = [row.name for row in rows if row.verdict == "DIFFERS"]
    held = sum(row.verdict == "equal" for row in rows)
    console.print(
        f"{held} of {len(rows)} artifacts equal to the local ferry's, {len(differing)} differ; made in {seconds:.0f} s"
    )
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
