"""A run of one step uses one process; each step of a longer run has its own."""

import os
from pathlib import Path

import dagster as dg
import pytest
from executor_location import FOLDER, both


@pytest.mark.parametrize("chosen", [["second"], ["first", "second"]], ids=["one step", "two steps"])
def test_one_step_runs_here_and_several_apart(chosen: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    (tmp_path / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "home")) as instance:
        keys = [dg.AssetKey(name) for name in chosen]
        result = dg.execute_job(dg.reconstructable(both), instance=instance, asset_selection=keys, raise_on_error=True)
    assert result.success
    pids = {name: int((tmp_path / name).read_text()) for name in chosen}
    if len(chosen) == 1:
        assert pids == {"second": os.getpid()}
    else:
        assert len({*pids.values(), os.getpid()}) == 3
