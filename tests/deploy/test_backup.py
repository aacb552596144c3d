"""Backup and restore, as docs/deploy.md describes them: the database behind the bucket, and the store's roots."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.instance.ref import InstanceRef
from postgres import Postgres, postgres
from small_assets import SmallAssets
from test_instance import DEPLOY, LOCAL_LOGS

from lineage.artifact.store import Store
from lineage.trust.verdicts import record_check, verdicts
from marin_assets.event_log import read_log
from marin_assets.rebuild import rebuild_event_log


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


def instance_of(server: Postgres, home: Path, monkeypatch: pytest.MonkeyPatch) -> dg.DagsterInstance:
    """The production instance over a database of the server."""
    where = {"HOST": server.host, "PORT": str(server.port), "USER": server.user, "PASSWORD": "-", "DATABASE": server.database}
    for name, value in where.items():
        monkeypatch.setenv(f"MARIN_PG_{name}", value)
    home.mkdir()
    (home / "dagster.yaml").write_text((DEPLOY / "dagster.yaml").read_text())
    logs = {"compute_logs": {**LOCAL_LOGS, "config": {"base_dir": str(home / "logs")}}}
    return dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(home), overrides=logs))


def run(program: str, server: Postgres, *arguments: str) -> None:
    where = ["--host", server.host, "--port", str(server.port), "--username", server.user]
    subprocess.run([program, *where, *arguments], check=True, capture_output=True)


def reported(instance: dg.DagsterInstance) -> set[str]:
    return {event.version for event in read_log(instance).reported}


@pytest.mark.slow
def test_a_restored_database_is_brought_up_to_the_bucket(
    server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ran before the backup has its runs, and what ran after it has its events again, from manifests."""
    dump, root = tmp_path / "dump", tmp_path / "root"
    with instance_of(server, tmp_path / "before", monkeypatch) as lost:
        small = SmallAssets(root, lost)
        small.make("raw", "a")
        small.make("clean", "a")
        run("pg_dump", server, "--format=custom", f"--file={dump}", server.database)
        runs, events = {each.run_id for each in lost.get_runs()}, reported(lost)
        small.make_all()
        after = reported(lost)
    assert events < after
    restored = Postgres(server.port, "restored")
    restored.create_database()
    run("pg_restore", restored, "--no-owner", "--exit-on-error", f"--dbname={restored.database}", str(dump))
    with instance_of(restored, tmp_path / "after", monkeypatch) as instance:
        small = SmallAssets(root, instance)
        assert ({each.run_id for each in instance.get_runs()}, reported(instance)) == (runs, events)
        rebuild_event_log([small.lab.store], instance, small.graph(), fill_gaps=True)
        assert reported(instance) == after
        assert small.compared().disagreements == ()
        small.declared["a"] = 2
        small.make_all()
        assert small.compared().disagreements == (), "and work goes on"


def test_restored_roots_have_every_byte_and_every_verdict(tmp_path: Path) -> None:
    root, backup = tmp_path / "root", tmp_path / "backup"
    with dg.DagsterInstance.ephemeral() as instance:
        small = SmallAssets(root, instance)
        small.make_all()
        refused = small.built(small.raw("a"))
        record_check(refused, "licence", ["withdrawn"], "somebody")
        shutil.copytree(root, backup)
        held = verdicts(refused)
        made = {artifact.spec.address: artifact.manifest for artifact in small.lab.store.artifacts()}
        shutil.rmtree(root)
        assert list(small.lab.store.artifacts()) == []
        shutil.copytree(backup, root)
        restored = list(Store(small.lab.store.root).artifacts())
        assert {artifact.spec.address: artifact.manifest for artifact in restored} == made
        for artifact in restored:
            artifact.verify()
        assert verdicts(small.built(small.raw("a"))) == held != []
        assert small.compared().disagreements == ()
