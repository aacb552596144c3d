"""The night of scouts in Dagster: each reports, one that fails stops no other, and the check at six names the silent ones."""

import datetime
from pathlib import Path

import dagster as dg
import pytest

from lineage.artifact.store import Store
from marin_assets import scouts
from marin_assets.alerts import silent_scouts
from marin_assets.scouts import REPORTED, SCOUTS, scout_asset, scouts_asset
from operations.scouts.reports import FOLDER
from resources.lab import LabResource


def judged(root: Path) -> tuple[bool, str]:
    """The check that every scout has reported."""
    result = dg.materialize([scouts_asset()], resources={"lab": LabResource(root=str(root))})
    [check] = result.get_asset_check_evaluations()
    assert check.check_name == REPORTED and result.success
    return check.passed, str(check.description)


def test_a_killed_or_silent_scout_makes_the_check_red_and_is_an_incident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = LabResource(root=str(tmp_path)).lab()
    assert judged(tmp_path)[0] is False
    assert not silent_scouts(lab, scouts._now()), "a lab that has never sent its scouts waits for none"
    night = [scout_asset(name) for name in SCOUTS]
    result = dg.materialize(night, resources={"lab": LabResource(root=str(tmp_path))})
    assert result.success and judged(tmp_path) == (True, f"all {len(SCOUTS)} have reported")
    tomorrow = (scouts._now() + datetime.timedelta(days=1)).replace(hour=6)
    monkeypatch.setattr(scouts, "_now", lambda: tomorrow)
    assert judged(tmp_path)[0] is False and silent_scouts(lab, tomorrow).keys() == SCOUTS.keys()
    done = dg.materialize(
        [each for each in night if each.key.path[-1] != "slow_stages"], resources={"lab": LabResource(root=str(tmp_path))}
    )
    passed, why = judged(tmp_path)
    assert (
        done.success
        and not passed
        and why.startswith("slow_stages: its last report is of ")
        and "; " not in why.partition(";")[2]
    )


def test_a_scout_that_fails_stops_no_other_and_is_silent(tmp_path: Path) -> None:
    """A manifest that is no JSON stops the scout that opens every artifact; the ledger lists it and goes on."""
    store = Store(str(tmp_path / "artifacts"))
    names = ["uncleared_drift", "unaudited_checkpoints"]
    store.storage.replace("tests/x/-/1/manifest.json", b"no json")
    result = dg.materialize(
        [scout_asset(name) for name in names], resources={"lab": LabResource(root=str(tmp_path))}, raise_on_error=False
    )
    reported = [name for name in names if store.storage.read_bytes(f"{FOLDER}/{name}.json") is not None]
    assert not result.success and reported == ["unaudited_checkpoints"]
