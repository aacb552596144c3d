"""Which engine runs the shuffles of the lab's data stages."""

import pickle

import pytest

from lineage.tables.ray_tasks import RayEngine
from resources.lab import lab_from_environment


def test_an_address_makes_ray_the_engine_and_no_worker_gets_it(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_ROOT", str(tmp_path))
    monkeypatch.delenv("MARIN_RAY", raising=False)
    assert lab_from_environment().lab().execution.tables is None
    monkeypatch.setenv("MARIN_RAY", "head:6379")
    execution = lab_from_environment().lab().execution
    assert execution.tables == RayEngine("head:6379")
    assert pickle.loads(pickle.dumps(execution)).tables is None
