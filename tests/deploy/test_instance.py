"""The production instance with a real PostgreSQL: what it writes, and that its file holds no secret."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.instance.ref import InstanceRef
from postgres import Postgres, postgres

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
LOCAL_LOGS = {"module": "dagster._core.storage.local_compute_log_manager", "class": "LocalComputeLogManager"}


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def production(server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """`deploy/dagster.yaml` as it is, but for the logs, whose package only the cluster's image has (`make image-test`)."""
    for name, value in {
        "HOST": server.host,
        "PORT": str(server.port),
        "USER": server.user,
        "PASSWORD": "trusted",
        "DATABASE": server.database,
    }.items():
        monkeypatch.setenv(f"MARIN_PG_{name}", value)
    (tmp_path / "dagster.yaml").write_text((DEPLOY / "dagster.yaml").read_text())
    logs = {"compute_logs": {**LOCAL_LOGS, "config": {"base_dir": str(tmp_path / "logs")}}}
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(tmp_path), overrides=logs)) as instance:
        yield instance


@dg.asset
def counted() -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"rows": 3}, data_version=dg.DataVersion("three"))


def test_runs_events_and_schedules_lie_in_postgresql(production: dg.DagsterInstance, server: Postgres) -> None:
    for storage in (production.run_storage, production.event_log_storage, production.schedule_storage):
        assert type(storage).__module__.startswith("dagster_postgres."), storage
    result = dg.materialize([counted], instance=production)
    assert server.rows(f"select status from runs where run_id = '{result.run_id}'") == [("SUCCESS",)]
    kinds = server.rows(f"select distinct dagster_event_type from event_logs where run_id = '{result.run_id}'")
    assert ("ASSET_MATERIALIZATION",) in kinds
    assert server.rows("select asset_key from asset_keys") == [('["counted"]',)]
    assert server.rows("select count(*) from job_ticks") == [(0,)]
    latest = production.get_latest_data_version_record(dg.AssetKey("counted"))
    assert latest is not None
    assert latest.asset_materialization is not None
    assert latest.asset_materialization.metadata["rows"].value == 3


def test_no_secret_and_no_address_stands_in_the_instance() -> None:
    instance = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
    database = instance["storage"]["postgres"]["postgres_db"]
    assert all(set(value) == {"env"} for name, value in database.items() if name != "scheme")
    assert set(instance["compute_logs"]["config"]["bucket"]) == {"env"}
    assert database["scheme"] == "postgresql+psycopg2"
