"""The storage report: every byte of a listing once, by prefix, owner, class and age; costs that are exact or not known."""

import datetime
import json
from decimal import Decimal
from pathlib import Path

import dagster as dg
from gcs_server import GcsServer
from random_lineage import write
from storage_worlds import NOW, planned

from lineage.artifact.store import Store
from marin_assets.storage_report import storage_report_asset
from operations.ledger.database import opened, query
from operations.ledger.ledger import open_ledger
from operations.ledger.questions import QUESTIONS
from operations.ledger.storage_days import FOLDER
from operations.storage.purge import purge
from operations.storage.report import NO_ARTIFACT, storage_report
from recipes.prices import STORAGE, price_table
from resources.lab import Lab

PRICES = price_table()


def report(store: Store, today: datetime.date) -> list[dict]:
    return storage_report([store], open_ledger([store], PRICES, today), PRICES, today).to_dicts()


def test_every_byte_is_counted_once_by_age_and_last_reader(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    parent = write(store, 1, [])
    child = write(store, 1, [parent], other=True)
    made = datetime.date.fromisoformat(child.manifest.created[:10])
    open_ledger([store], PRICES, made)  # its files are bytes too
    for days, age in ((6, "under 7 days"), (7, "7 to 30 days"), (30, "30 to 90 days"), (90, "over 90 days")):
        rows = report(store, made + datetime.timedelta(days=days))
        assert sum(row["bytes"] for row in rows) == sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())
        [of_artifacts] = [row for row in rows if row["prefix"] == "tests/n1"]
        assert (of_artifacts["age"], of_artifacts["artifacts"], of_artifacts["storage_class"]) == (age, 2, "local")
        assert of_artifacts["owner"] == parent.manifest.made_by.user and of_artifacts["last_read"] == child.manifest.created
        gib = Decimal(of_artifacts["bytes"]) / 2**30
        assert of_artifacts["dollars_a_month"] == (gib * Decimal(STORAGE["local"])).quantize(Decimal("1E-12"))


def test_data_without_a_manifest_is_listed_apart(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write(store, 1, [])
    purge(store, planned(store, {}), {}, NOW)
    [orphan] = [row for row in report(store, NOW.date()) if row["prefix"] == NO_ARTIFACT]
    assert orphan["bytes"] == 1 and orphan["artifacts"] == 0 and orphan["age"] == "" and orphan["last_read"] is None


def test_a_bucket_has_classes_and_one_without_a_price_is_named(gcs: GcsServer, tmp_path: Path) -> None:
    store = Store(f"{gcs.bucket('classes')}/root", str(tmp_path))
    for number in (1, 2, 3):
        write(store, number, [])
    for (_, name), stored in gcs.objects.objects.items():
        stored.storage_class = "COLDLINE" if "/n2/" in name else "RAPID" if "/n3/" in name else "STANDARD"
    rows = {row["prefix"]: row for row in report(store, NOW.date()) if row["prefix"].startswith("tests/")}
    assert {name: row["storage_class"] for name, row in rows.items()} == {
        "tests/n1": "STANDARD", "tests/n2": "COLDLINE", "tests/n3": "RAPID"
    }  # fmt: skip
    assert [rows[f"tests/n{n}"]["dollars_a_month"] is None for n in (1, 2, 3)] == [False, False, True]
    assert rows["tests/n3"]["unpriced"] == "no price of storage class RAPID"


def test_the_asset_writes_the_day_and_says_what_it_holds(tmp_path: Path) -> None:
    lab = Lab.at(str(tmp_path))
    write(lab.store, 1, [])
    result = dg.materialize([storage_report_asset()], resources={"lab": lab})
    assert result.success and all(check.passed for check in result.get_asset_check_evaluations())
    [name] = lab.store.storage.records(FOLDER)
    assert '"prefix": "tests/n1"' in (lab.store.storage.read_text(f"{FOLDER}/{name}") or "")


def test_days_of_the_report_are_a_table_and_a_broken_file_is_named(tmp_path: Path) -> None:
    lab, today = Lab.at(str(tmp_path)), datetime.date(2026, 11, 25)
    write(lab.store, 1, [])
    rows = report(lab.store, today)
    for day, share in (("2026-11-24", 1), ("2026-11-25", 3), ("2026-01-01", 1)):
        text = json.dumps([{**row, "bytes": share * row["bytes"]} for row in rows], default=str)
        lab.store.storage.replace(f"{FOLDER}/{day}.json", text.encode())
    lab.store.storage.replace(f"{FOLDER}/2026-11-23.json", b'{"a": ')
    ledger = open_ledger([lab.store], PRICES, today)
    with opened(ledger) as connection:
        found = query(connection, QUESTIONS["storage-by-day"].sql).filter(prefix="tests/n1")
    [size] = [row["bytes"] for row in rows if row["prefix"] == "tests/n1"]
    days = found.select("day", "bytes", "change").rows()
    assert days == [("2026-11-25", 3 * size, 2 * size), ("2026-11-24", size, None)], "what is older than 60 days is left out"
    assert [name.rpartition("/")[2] for name in ledger.unreadable] == ["2026-11-23.json"]
