"""Report, site and ledger after Dagster's database is deleted: all is the same but the fields that only the database had."""

import datetime
import json
import shutil
from pathlib import Path

import dagster as dg
from site_worlds import all_files
from small_runs import DAY

from marin_assets.ledger_dagster import dagster_tables
from marin_assets.site import site_asset
from marin_assets.weekly import REPORTS, weekly_report_asset
from operations.ledger.ledger import open_ledger
from operations.ledger.schema import ONLY_IN_DAGSTER
from operations.reports.week import ONLY_IN_DAGSTER as SECTIONS
from recipes.prices import price_table
from resources.lab import Lab, LabResource

CAMPAIGNS = ["ferry", "canary_cpu"]
MONDAY = datetime.date.fromisoformat(DAY) - datetime.timedelta(days=datetime.date.fromisoformat(DAY).weekday())


def published(lab: Path, home: Path) -> dict[str, bytes]:
    """What the assets write, by path, with the instance of a folder."""
    resources = {"lab": LabResource(root=str(lab), workers=1)}
    with dg.instance_for_test(temp_dir=str(home)) as instance:
        assert dg.materialize([site_asset(CAMPAIGNS)], instance=instance, resources=resources).success
        weekly = [weekly_report_asset(CAMPAIGNS)]
        assert dg.materialize(weekly, instance=instance, resources=resources, partition_key=MONDAY.isoformat()).success
    root = Path(Lab.at(str(lab)).store.root)
    site = {f"site/{name}": data for name, data in all_files(root / ".operations/site").items()}
    return site | {f"week/{name}": data for name, data in all_files(root / REPORTS / MONDAY.isoformat()).items()}


def test_only_the_listed_fields_of_report_and_site_need_the_database(own_day: Path) -> None:
    before = published(own_day / "lab", own_day / "dagster")
    shutil.rmtree(own_day / "dagster")
    (own_day / "dagster").mkdir()
    after = published(own_day / "lab", own_day / "dagster")
    assert len(before) > 40 and before.keys() == after.keys()
    of_week = {f"week/week.{suffix}" for suffix in ("html", "md", "json")}
    assert {name for name in before if before[name] != after[name]} == {"site/index.html", "site/.site.json", *of_week}
    with_it, without = (json.loads(each["week/week.json"]) for each in (before, after))
    changed = {name for name in with_it["sections"] if with_it["sections"][name] != without["sections"][name]}
    assert changed == set(SECTIONS) and with_it | {"sections": 0} == without | {"sections": 0}
    lines = [each["site/index.html"].decode().splitlines() for each in (before, after)]
    differing = [pair for pair in zip(*lines, strict=True) if pair[0] != pair[1]]
    assert differing and all("ferry" in line for pair in differing for line in pair)


def test_tables_of_the_ledger_do_not_need_the_database(own_day: Path) -> None:
    lab, today = Lab.at(str(own_day / "lab")), datetime.date(2026, 11, 25)
    with dg.instance_for_test(temp_dir=str(own_day / "dagster")) as instance:
        known = dagster_tables(instance)
    with_it, without = (open_ledger([lab.store, lab.ferry_store], price_table(), today, each).tables for each in (known, None))
    differing = {name for name in with_it if not with_it[name].equals(without[name])}
    assert differing == set(ONLY_IN_DAGSTER) and all(len(with_it[name]) for name in differing)
