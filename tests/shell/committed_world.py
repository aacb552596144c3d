"""A daemon over PostgreSQL and a bucket, as deployed, and a training job that commits there while no step watches.

Run by itself it builds the small ferry's data, trains, and takes the picture of what the sensor reported (needs a Chromium):

    PYTHONPATH=.:tests/lab:tests/shell:tools .venv/bin/python tests/shell/committed_world.py PICTURE.png
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import dagster as dg
import yaml
from dagster_processes import DagsterProcesses
from gcs_process import BucketProcess
from launches import ROOT, until
from postgres import Postgres, postgres
from small_runs import DAY, small_ferry
from whole_lab import instance_of

from lineage.artifact.store import Store
from lineage.build.nodes import Node, resolve
from lineage.build.plan import build, build_all
from lineage.shards.execution import Execution
from lineage.upkeep.mirror import mirror
from recipes import ferry as recipe

LOOKS = "select count(*) from job_ticks where type = 'SENSOR' and status in ('SKIPPED', 'SUCCESS')"


@dataclass(frozen=True)
class Watched:
    """A running deployment; `final` is the checkpoint that its bucket has all inputs of."""

    dagster: DagsterProcesses
    instance: dg.DagsterInstance
    database: Postgres
    store: Store
    final: Node

    def looks(self) -> int:
        """Ticks of the sensor that ended well."""
        return self.database.rows(LOOKS)[0][0]

    def until_looked(self, times: int) -> None:
        """Wait for so many whole ticks after this moment: one that is under way may have listed before it."""
        before = self.looks()
        until(lambda: self.looks() > before + times, f"{times} more ticks of the sensor")

    def reported(self) -> list[dg.AssetMaterialization]:
        """Every materialization in the event log, of any asset, the newest first."""
        keys = self.instance.get_asset_keys()
        reports = [self.instance.fetch_materializations(dg.AssetRecordsFilter(key), limit=100).records for key in keys]
        return [event for records in reports for record in records if (event := record.asset_materialization) is not None]


@contextmanager
def watched(folder: Path, made: Store) -> Iterator[Watched]:
    """A deployment whose bucket has what training reads (of `made`, a ferry's store), and whose sensor has looked once."""
    with BucketProcess(folder / "objects") as bucket, postgres() as database:
        root = bucket.bucket("marin-artifacts")
        home = folder / "home"
        home.mkdir()
        (home / "dagster.yaml").write_text(yaml.safe_dump(instance_of(home)))
        environment = {
            "DAGSTER_HOME": str(home), "STORAGE_EMULATOR_HOST": bucket.url, "MARIN_ROOT": root,
            "MARIN_SCRATCH": str(folder / "scratch"), "MARIN_PG_HOST": database.host, "MARIN_PG_PORT": str(database.port),
            "MARIN_PG_USER": database.user, "MARIN_PG_PASSWORD": "trusted", "MARIN_PG_DATABASE": database.database,
            "PYTHONPATH": ":".join(str(ROOT / part) for part in (".", "tests/lab", "tests/shell")),
        }  # fmt: skip
        with patch.dict(os.environ, environment), dg.DagsterInstance.from_config(str(home)) as instance:
            store = Store(f"{root}/ttl-7d", str(folder / "scratch"))
            final = _give_data(made, store)
            with DagsterProcesses("committed_location", dict(os.environ), folder) as dagster:
                world = Watched(dagster, instance, database, store, final)
                world.until_looked(1)
                yield world


def _give_data(made: Store, into: Store) -> Node:
    """The day's roster and all that its final checkpoint is made of; that checkpoint."""
    ferry = small_ferry()
    final = recipe.final_checkpoint(recipe.rostered_run(ferry, made, DAY))
    for node in (recipe.existing_roster(ferry, made, DAY), *final.parents()):
        for _ in mirror(resolve(made, node), into, "a test"):
            pass
    return final


def main(picture: Path) -> None:
    from playwright.sync_api import sync_playwright
    from screenshots import FLAGS, shoot, webserver

    with tempfile.TemporaryDirectory(prefix="marin-committed-") as scratch:
        made = Store(f"{scratch}/made", f"{scratch}/work")
        ferry = small_ferry()
        build(made, recipe.roster(ferry, DAY, reachable=True))
        build_all(made, recipe.final_checkpoint(ferry.run(DAY, reachable=True)).parents(), execution=Execution(2))
        with watched(Path(scratch), made) as world:
            build(world.store, world.final)
            until(world.reported, "the sensor reports the checkpoint")
            workspace, path = world.dagster.workspace, "/".join(world.final.key)
            with webserver(workspace) as base, sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
                page = browser.new_page(viewport={"width": 1800, "height": 1000})
                shoot(page, f"{base}/assets/{path}?view=partitions&partition={DAY}", picture, 8)
                browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
