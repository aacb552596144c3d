"""The ledger by the commit log: it follows whatever commits, purges, folds and rebuilds do, and looks at folders at times."""

import json
import random
import shutil
import time
import uuid
from pathlib import Path

import pytest
from gcs_server import GcsServer
from random_lineage import write
from storage_worlds import WHEN, planned

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Artifact, Store
from lineage.commit_log.compact import fold, merge
from lineage.commit_log.entries import FOLDER as ENTRIES
from lineage.commit_log.entries import announce_deletion
from lineage.graph.by_log import present_tables
from lineage.graph.scan import open_log, rebuild_log
from lineage.storage.files import Listed
from lineage.storage.gs import BucketFiles
from lineage.writing.delete import delete as remove
from operations.ledger.tables import CURSOR, update_tables
from operations.storage.purge import purge, restore, trashed


def addresses(store: Store) -> set[str]:
    """What the saved tables have after an update."""
    tables, bad = update_tables(store)
    assert not bad and set(tables["inputs"]["child"]) <= set(tables["artifacts"]["address"])
    return set(tables["artifacts"]["address"])


def logged(root: Path) -> Store:
    store = Store(str(root))
    write(store, 0, [])
    open_log(store)
    return store


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_it_has_what_is_there_after_any_commits_purges_folds_and_rebuilds(tmp_path: Path, seed: int) -> None:
    follow(logged(tmp_path), random.Random(seed), 40)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_tables_of_a_bucket_have_what_is_there_and_its_root_is_not_listed(
    gcs: GcsServer, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger's tables and those of `marin list`. After the first look, only parts of the bucket may be listed."""
    store = Store(gcs.bucket(uuid.uuid4().hex), scratch_folder=str(tmp_path / "scratch"))
    write(store, 0, [])
    assert set(present_tables(store).artifacts["address"]) == addresses(store)
    listing = BucketFiles.listing
    listed = list[str]()

    def noted(files: BucketFiles, prefix: str, name: str | None) -> dict[str, Listed]:
        listed.append(prefix)
        return listing(files, prefix, name)

    monkeypatch.setattr(BucketFiles, "listing", noted)
    follow(store, random.Random(seed), 12, listed)


def follow(store: Store, chance: random.Random, steps: int, listed: list[str] | None = None) -> None:
    """Do what changes a store, at random, and hold the tables to what is there. `listed`: prefixes of listings, on a bucket."""
    plans = list[str]()

    def commit() -> None:
        there = list(store.artifacts())
        write(store, chance.randrange(6), chance.sample(there, min(len(there), chance.randrange(3))), chance=chance.random())

    def take() -> None:
        plans.append(planned(store, {}, now=WHEN()))
        purge(store, plans[-1], {}, WHEN())

    def put_back() -> None:
        for plan in plans:
            for address in trashed(store, plan)[:2]:
                if store.open(address) is None:
                    restore(store, plan, address)

    def delete() -> None:
        leaves = {a.spec.address for a in store.artifacts()} - {r.address for a in store.artifacts() for r in a.spec.inputs}
        for address in sorted(leaves)[:1]:
            found = store.open(address)
            assert found is not None
            remove(found)

    def compact() -> None:
        log = open_log(store)
        fold(store.storage, log.entries)
        merge(store.storage)

    works = [commit, commit, commit, take, put_back, delete, compact, lambda: rebuild_log(store)]
    for _ in range(steps):
        for _ in range(chance.randrange(1, 4)):
            chance.choice(works)()
        there = {artifact.spec.address: artifact.manifest.created for artifact in store.artifacts()}
        if listed is not None:
            listed.clear()
        assert addresses(store) == there.keys()
        if listed is not None:
            assert dict(present_tables(store).artifacts.select("address", "created").iter_rows()) == there
            assert "" not in listed


def test_a_deletion_that_is_under_way_on_a_bucket_is_seen_when_it_ends(gcs: GcsServer, tmp_path: Path) -> None:
    """The entry comes first, so a table that reads it then still finds the manifest, and asks again."""
    store = Store(gcs.bucket(uuid.uuid4().hex), scratch_folder=str(tmp_path / "scratch"))
    kept, gone = write(store, 0, []), write(store, 1, [])
    both = {kept.spec.address, gone.spec.address}
    assert set(present_tables(store).artifacts["address"]) == both == addresses(store)
    announce_deletion(store.storage, gone.spec.address, "by a test")
    for _ in range(2):
        assert set(present_tables(store).artifacts["address"]) == both == addresses(store)
    store.storage.delete(f"{gone.spec.address}/{MANIFEST_NAME}")
    for _ in range(2):
        assert addresses(store) == {kept.spec.address} == set(present_tables(store).artifacts["address"])


@pytest.mark.parametrize("seconds", [86_400, -60])
def test_what_was_deleted_by_hand_on_a_bucket_is_seen_a_day_later(
    gcs: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """Or at once, if the clock has stepped back since: nobody knows then how long ago the root was listed."""
    store = Store(gcs.bucket(uuid.uuid4().hex), scratch_folder=str(tmp_path / "scratch"))
    kept, gone = write(store, 0, []), write(store, 1, [])
    both = {kept.spec.address, gone.spec.address}
    assert set(present_tables(store).artifacts["address"]) == both == addresses(store)
    store.storage.delete(f"{gone.spec.address}/{MANIFEST_NAME}")
    assert set(present_tables(store).artifacts["address"]) == both == addresses(store)
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + seconds * 10**9)
    assert addresses(store) == {kept.spec.address} == set(present_tables(store).artifacts["address"])


def test_a_commit_that_was_under_way_is_seen_when_it_ends(tmp_path: Path) -> None:
    store = logged(tmp_path)
    made = write(store, 1, [])
    manifest = tmp_path / made.spec.address / MANIFEST_NAME
    text = manifest.read_text()
    manifest.unlink()  # as between the entry of a commit and its manifest
    assert made.spec.address not in addresses(store) | addresses(store)
    manifest.write_text(text)
    assert made.spec.address in addresses(store)


def test_folders_are_looked_at_only_after_a_while(tmp_path: Path) -> None:
    """A copy by hand is in no log. It shows that folders are not looked at in between, and that they are later."""
    store = logged(tmp_path / "store")
    by_hand = copied_by_hand(store, tmp_path / "other")
    assert by_hand in addresses(store)  # the first update looks everywhere
    late = copied_by_hand(store, tmp_path / "another", 2)
    assert late not in addresses(store)
    cursor = json.loads(store.storage.read_text(CURSOR) or "")
    store.storage.replace(CURSOR, json.dumps(cursor | {"looked_ns": cursor["looked_ns"] - 601 * 10**9}).encode())
    assert late in addresses(store)


def test_without_a_whole_log_every_update_looks_at_folders(tmp_path: Path) -> None:
    store = logged(tmp_path / "store")
    assert len(addresses(store)) == 1
    store.storage.replace(f"{ENTRIES}/{'0' * 64}.json", b"no entry")
    assert copied_by_hand(store, tmp_path / "other") in addresses(store)


def test_a_cursor_of_other_tables_is_not_used(tmp_path: Path) -> None:
    """Two updates at once: one's tables may be saved beside the other's cursor."""
    store = logged(tmp_path)
    addresses(store)
    folder = tmp_path / ".operations" / "ledger"
    shutil.copytree(folder, tmp_path / "older")
    made = write(store, 1, [])
    assert made.spec.address in addresses(store)
    for table in (tmp_path / "older").glob("*.parquet"):
        shutil.copy(table, folder)
    assert made.spec.address in addresses(store)


def test_a_forged_row_leads_nowhere(tmp_path: Path) -> None:
    store, outside = logged(tmp_path / "store"), Store(str(tmp_path / "outside"))
    stranger = write(outside, 1, [])
    addresses(store)
    for place in (f"../outside/{stranger.spec.address}", f"/{tmp_path}/outside/{stranger.spec.address}"):
        entry = json.dumps({"address": "tests/n9/-/v", "keys": [1]}).replace("tests/n9/-/v", place)
        store.storage.replace(f"{ENTRIES}/{'1' * 64}.json", entry.encode())
        assert addresses(store) == {artifact.spec.address for artifact in store.artifacts()}


def copied_by_hand(store: Store, folder: Path, number: int = 1) -> str:
    other: Artifact = write(Store(str(folder)), number, [])
    shutil.copytree(folder / other.spec.address, Path(store.root) / other.spec.address)
    return other.spec.address
