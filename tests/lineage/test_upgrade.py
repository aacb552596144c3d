"""Stores of older code keep working: an upgrade changes formats and keys, and no data version.

`old_store` was written by the code of commit 2178272: manifests of schema 1, with MinHash signatures of two presets below one
key, a quarantine, and descendants.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from upgrade_anywhere import contents, key_today

from lineage.artifact.made_by import MadeBy
from lineage.artifact.manifest import MANIFEST_NAME, SCHEMA, content_version, from_json, sealed, to_json
from lineage.artifact.store import Artifact, Store
from lineage.graph.check_tables import check_lineage, every_manifest
from lineage.graph.consistency import Comparison, LogEvent, compare
from lineage.trust.verdicts import verdicts
from lineage.upkeep.migrations import MIGRATIONS, ManifestMigration, Migrations
from lineage.upkeep.upgrade import KEPT_FOLDER, apply_upgrade
from lineage.upkeep.upgrade_plan import plan_upgrade

OLD_STORE = Path(__file__).with_name("old_store")
ROOT = Path(__file__).resolve().parents[2]
MOVED = {"datakit/minhash[kjv]", "duplicates/small"}
"""The signatures of the preset that has a key of its own now, and what reads them. The key and the bytes of `duplicates/small`
are the same as before, so what reads it keeps its identity; its manifest names the new address."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    shutil.copytree(OLD_STORE, tmp_path / "store")
    return Store(str(tmp_path / "store"))


def unsealed(store: Store, created: str = "2026-11-20T12:00:00.000+00:00") -> None:
    """Make every manifest one of the time before seals."""
    for path in Path(store.root).rglob(MANIFEST_NAME):
        record = json.loads(path.read_text())
        del record["seal"]
        path.write_text(json.dumps({**record, "created": created}))


def upgraded(store: Store, migrations: Migrations = MIGRATIONS) -> list[str]:
    """Upgrade a store; names of the changes."""
    return [change.name for change in apply_upgrade(store, plan_upgrade(store, key_today, migrations))]


def by_name(store: Store) -> dict[str, Artifact]:
    return {artifact.name: artifact for artifact in store.artifacts()}


def test_old_manifests_are_read_without_an_upgrade(store: Store) -> None:
    corpus = by_name(store)["corpus/small[kjv]"]
    assert corpus.manifest.made_by == MadeBy("unknown", "unknown", "unknown")
    assert len(list(store.walk_up(corpus))) == 5
    unsealed(store)
    assert len(by_name(store)) == 5


def test_a_plan_says_what_changes_and_writes_nothing(store: Store) -> None:
    before = contents(Path(store.root))
    plan = plan_upgrade(store, key_today)
    assert {rewrite.change.name for rewrite in plan.rewrites if rewrite.moves} == MOVED
    assert len(plan.changes) == 6 and len(plan.files) == 1 and not plan.problems
    signatures = next(change for change in plan.changes if change.name == "datakit/minhash[kjv]")
    assert "schema 1, sealed, datakit/minhash/kjv/" in signatures.before
    assert "schema 2, sealed, datakit/minhash-20x5/kjv/" in signatures.after and "its key has changed" in signatures.why
    assert contents(Path(store.root)) == before


@pytest.mark.parametrize("is_sealed", [True, False])
def test_an_upgrade_keeps_data_versions_walks_and_verdicts(store: Store, is_sealed: bool) -> None:
    if not is_sealed:
        unsealed(store)
    before = by_name(store)
    assert {name for name in upgraded(store) if not name.endswith("verdict.json")} == set(before)
    assert not list(Path(store.root, "duplicates").rglob("verdict.json"))
    after = by_name(store)
    renamed = {"datakit/minhash[kjv]": "datakit/minhash-20x5[kjv]"}
    assert {ref.address for ref in after["corpus/small[kjv]"].spec.inputs} == {
        after[name].spec.address for name in ("datakit/normalized[kjv]", "duplicates/small")
    }
    assert after.keys() == {renamed.get(name, name) for name in before}
    for name, artifact in before.items():
        made = after[renamed.get(name, name)]
        made.verify()
        assert made.data_version == artifact.data_version
        assert made.manifest.earlier[0].address == artifact.spec.address
        assert json.loads((made.folder().parent / MANIFEST_NAME).read_text())["schema"] == SCHEMA
        assert (made.spec.address == artifact.spec.address) == (name not in MOVED)
        walked = {renamed.get(ancestor.name, ancestor.name) for ancestor in Store(str(OLD_STORE)).walk_up(artifact)}
        assert {ancestor.name for ancestor in store.walk_up(made)} == walked
    assert check_lineage(store) == []
    (verdict,) = verdicts(after["duplicates/small"])
    assert verdict.kind == "quarantined" and verdict.standing and verdict.who == "ada"
    kept = list(Path(store.root, KEPT_FOLDER).rglob("manifest.*.json"))
    assert {json.loads(path.read_text())["data_version"] for path in kept} == {a.data_version for a in before.values()}


def test_twice_is_once(store: Store) -> None:
    upgraded(store)
    before = contents(Path(store.root))
    assert plan_upgrade(store, key_today).is_empty
    assert upgraded(store) == []
    assert contents(Path(store.root)) == before


def test_a_damaged_file_of_an_unsealed_artifact_stops_the_upgrade(store: Store) -> None:
    unsealed(store)
    damaged = next(Path(store.root, "datakit/normalized").rglob("0.txt"))
    damaged.write_text(damaged.read_text().upper())
    with pytest.raises(ValueError, match=r"datakit/normalized\[kjv\]: file part/0.txt has digest"):
        upgraded(store)
    assert "seal" not in json.loads(next(Path(store.root, "datakit/normalized").rglob(MANIFEST_NAME)).read_text())


def test_a_manifest_that_lost_its_seal_is_a_problem_and_stays(store: Store) -> None:
    unsealed(store, created="2026-11-22T00:00:00.000+00:00")
    before = contents(Path(store.root))
    plan = plan_upgrade(store, key_today)
    assert len(plan.problems) == 5 and "has no seal although it was created on 2026-11-22" in plan.problems[0]
    assert [change.name for change in apply_upgrade(store, plan)] == [change.name for change in plan.files]
    after = contents(Path(store.root))
    assert {name: after[name] for name in before if not name.endswith("verdict.json")} == {
        name: text for name, text in before.items() if not name.endswith("verdict.json")
    }


def test_a_new_manifest_without_its_seal_is_refused(store: Store) -> None:
    upgraded(store)
    path = next(Path(store.root).rglob(MANIFEST_NAME))
    record = json.loads(path.read_text())
    del record["seal"]
    with pytest.raises(ValueError, match="a manifest of schema 2 must have a seal"):
        from_json(json.dumps(record), "here")


def test_other_bytes_at_the_new_address_are_a_problem(store: Store) -> None:
    plan = plan_upgrade(store, key_today)
    move = next(rewrite for rewrite in plan.rewrites if rewrite.change.name == "datakit/minhash[kjv]")
    there = from_json(move.after, "here")
    other = replace(there, data_version=content_version(()), files=(), earlier=())
    store.storage.create(f"{move.target}/{MANIFEST_NAME}", to_json(other))
    plan = plan_upgrade(store, key_today)
    assert any("it belongs at datakit/minhash-20x5/kjv/" in problem for problem in plan.problems)
    assert not any(rewrite.moves for rewrite in plan.rewrites), "what was made from it stays with it"


def test_files_of_a_verdicts_name_among_the_data_are_not_records(store: Store) -> None:
    """A made-up artifact whose data has the name of a record."""
    from lineage.artifact.spec import ArtifactSpec
    from lineage.writing.write import writing

    with writing(store, ArtifactSpec(("named",), None, "tests.named", "1", {})) as out:
        (out.folder / "verdicts" / "x").mkdir(parents=True)
        (out.folder / "verdicts" / "x" / "verdict.json").write_text("{}")
    upgraded(store)
    out.artifact.verify()
    assert (out.folder / "verdicts/x/verdict.json").exists() or "verdicts/x/verdict.json" in out.artifact.manifest.paths
    assert verdicts(out.artifact) == []


@pytest.mark.parametrize("address", ["corpus", "../outside/_/" + "0" * 32, ".work/writing/" + "0" * 32, ""])
def test_an_earlier_address_that_is_none_is_refused(store: Store, address: str) -> None:
    """An upgrade deletes what a killed one left at earlier addresses, so they must be addresses of artifacts."""
    upgraded(store)
    record = json.loads(next(Path(store.root, "corpus").rglob(MANIFEST_NAME)).read_text())
    del record["seal"]
    record["earlier"][0]["address"] = address
    with pytest.raises(ValueError, match="an earlier address is"):
        from_json(sealed(record), "here")


def test_an_earlier_address_where_an_artifact_stands_is_left(store: Store) -> None:
    """A manifest that claims the place of another one: nothing is deleted and no input follows it."""
    upgraded(store)
    before = contents(Path(store.root))
    made = by_name(store)
    normalized, other = made["datakit/normalized[kjv]"], made["datakit/minhash[wiki]"]
    record = json.loads(before[f"{other.spec.address}/{MANIFEST_NAME}"])
    del record["seal"]
    record["earlier"].append({"address": normalized.spec.address, "schema": 1, "manifest": "0" * 32})
    store.storage.replace(f"{other.spec.address}/{MANIFEST_NAME}", sealed(record).encode())
    assert plan_upgrade(store, key_today).is_empty


def test_a_further_schema_follows_after_the_others(store: Store) -> None:
    """A later format: its step is applied after the first, and to manifests of the first's result alone."""
    later = Migrations(
        (
            ManifestMigration(2, "a note is required", lambda record: {**record, "extra": {**record["extra"], "note": "none"}}),
            *MIGRATIONS.manifests,
        )
    )
    old, new = plan_upgrade(store, key_today, later), None
    assert {json.loads(rewrite.after)["schema"] for rewrite in old.rewrites} == {3}
    assert all(json.loads(rewrite.after)["extra"]["note"] == "none" for rewrite in old.rewrites)
    upgraded(store)
    new = plan_upgrade(store, key_today, later)
    assert [json.loads(rewrite.after)["made_by"]["user"] for rewrite in new.rewrites] == ["unknown"] * 5
    assert {rewrite.change.why for rewrite in new.rewrites} == {"a note is required"}


def test_events_from_before_an_upgrade_still_agree(store: Store) -> None:
    def compared(events: list[LogEvent]) -> Comparison:
        return compare(
            every_manifest(store), [], events, is_expired=lambda event: False, remake=lambda key, partition: "make it"
        )

    manifests = every_manifest(store)
    events = [
        LogEvent(
            number, m.spec.key, m.spec.partition, m.data_version, m.spec.version, manifests.digests[address], m.spec.inputs
        )
        for number, (address, m) in enumerate(manifests.sound.items())
    ]
    assert not compared(events).disagreements
    upgraded(store)
    after = compared(events)
    assert not after.disagreements
    assert sum("an upgrade moved it" in unknown.why for unknown in after.unknown) == len(MOVED)
    lie = replace(next(event for event in events if event.key == ("corpus", "small")), data_version="0" * 32)
    assert [each.kind for each in compared([lie]).disagreements] == ["other_bytes"]


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_operation_it_loses_nothing_and_the_next_run_finishes(store: Store, tmp_path: Path, stride: int) -> None:
    unsealed(store)
    command = [
        sys.executable,
        str(Path(__file__).with_name("upgrade_anywhere.py")),
        store.root,
        str(tmp_path / "lives"),
        str(stride),
    ]
    (tmp_path / "lives").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    lives = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(lives) > 100 // stride and all(life["killed"] == signal.SIGKILL for life in lives)
    for life in lives:
        assert life["lost"] == [] and life["unsound"] == [], life
        assert life["resumed"] == 0 and life["equal"], life
