"""Purges: what is protected stays, what goes can be put back to the byte, and builds that run at once lose no input."""

import datetime
import json
import os
import random
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from random_lineage import Parents, dags, reached, write, write_dag
from storage_worlds import NOW, WHEN, bytes_below, copy_of, dangling, planned

from lineage.artifact.manifest import MANIFEST_NAME, sealed
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.jobs.claims import MARKS, BeingPurgedError
from lineage.jobs.summary import SUMMARIES, summarizing
from lineage.stage import Stage
from operations.storage.pins import FOLDER as PINS
from operations.storage.pins import Pin, add_pin
from operations.storage.plan import PLANS, RefusedPlanError, approve, make_plan, read_plan, save_plan
from operations.storage.purge import purge, restore, settle, trashed
from recipes.prices import price_table

DAY = datetime.timedelta(days=1)


@given(graph=dags(), pinned=st.sets(st.integers(0, 8), max_size=3), declared=st.sets(st.integers(0, 8), max_size=2))
def test_exactly_what_nothing_protects_goes_and_comes_back(
    tmp_path_factory: pytest.TempPathFactory, graph: Parents, pinned: set[int], declared: set[int]
) -> None:
    store = Store(str(tmp_path_factory.mktemp("purge")))
    made = write_dag(store, graph)
    pinned, declared = ({i for i in chosen if i < len(made)} for chosen in (pinned, declared))
    for number in pinned:
        add_pin(store, Pin(made[number].spec.address, "ada", "needed", "2999-01-01"))
    roots = {made[number].spec.address: "declared" for number in declared}
    before = bytes_below(store)
    kept = {made[i].spec.address for root in pinned | declared for i in reached(graph, root, "up")}
    digest = planned(store, roots)
    done = purge(store, digest, roots, NOW)
    left = {artifact.spec.address for artifact in store.artifacts()}
    assert left == kept and set(done.taken) == {a.spec.address for a in made} - kept
    assert not dangling(store)
    for artifact in store.artifacts():
        artifact.verify()
    for address in trashed(store, digest):
        if store.open(address) is None:
            restore(store, digest, address)
        assert not dangling(store)
    assert bytes_below(store) == before


@settings(max_examples=examples(4))
@given(graph=dags(), chance=st.integers(0, 2**32))
def test_after_three_days_the_bytes_are_gone_and_others_stay(
    tmp_path_factory: pytest.TempPathFactory, graph: Parents, chance: int
) -> None:
    store = Store(str(tmp_path_factory.mktemp("settle")))
    made = write_dag(store, graph)
    kept = random.Random(chance).choice(made)
    roots = {kept.spec.address: "declared"}
    digest = planned(store, roots)
    taken = purge(store, digest, roots, NOW).taken
    if taken:
        with pytest.raises(RefusedPlanError, match="can be restored"):
            settle(store, digest, NOW + 2 * DAY)
    assert set(settle(store, digest, NOW + 3 * DAY)) == set(taken)
    assert not [name for name in bytes_below(store) if any(name.startswith(f"{address}/") for address in taken)]
    for artifact in store.artifacts():
        artifact.verify()


def test_a_plan_that_was_edited_is_old_or_is_not_approved_is_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write(store, 1, [])
    digest = save_plan(store, make_plan(store, {}, None, NOW, young_days=0))
    with pytest.raises(RefusedPlanError, match="not approved"):
        purge(store, digest, {}, NOW)
    with pytest.raises(RefusedPlanError, match="a person is needed"):
        approve(store, digest, " ", NOW)
    approve(store, digest, "ada", NOW)
    with pytest.raises(RefusedPlanError, match="make a new one"):
        purge(store, digest, {}, NOW + 2 * DAY)
    with pytest.raises(RefusedPlanError, match="make a new one"):
        purge(store, digest, {}, NOW - DAY)
    path = tmp_path / PLANS / digest / "plan.json"
    path.write_text(path.read_text().replace("tests/n1", "tests/n2"))
    with pytest.raises(RefusedPlanError, match="edited"):
        purge(store, digest, {}, NOW)
    with pytest.raises(RefusedPlanError, match="there is no plan"):
        read_plan(store, "0" * 64)
    approval = path.with_name("approval.json")
    other = save_plan(store, make_plan(store, {}, None, NOW + DAY, young_days=0))
    shutil.copy(approval, tmp_path / PLANS / other / "approval.json")
    with pytest.raises(RefusedPlanError, match="the approval beside"):
        purge(store, other, {}, NOW + DAY)
    assert len(list(store.artifacts())) == 1


@pytest.mark.parametrize("change", ["pinned", "declared", "child", "made again"])
def test_a_plan_that_does_not_fit_the_store_any_more_is_refused(tmp_path: Path, change: str) -> None:
    store = Store(str(tmp_path))
    first = write(store, 1, [])
    second = write(store, 2, [first])
    digest = planned(store, {})
    roots: Mapping[str, str] = {}
    if change == "pinned":
        add_pin(store, Pin(first.spec.address, "ada", "needed", "2999-01-01"))
    elif change == "declared":
        roots = {second.spec.address: "declared"}
    elif change == "child":
        write(store, 3, [second])
    else:
        store.delete(second)
        write(store, 2, [first])
    with pytest.raises(RefusedPlanError, match="make a new plan"):
        purge(store, digest, roots, NOW)
    assert not trashed(store, digest) and not list((tmp_path / MARKS).glob("*"))


def test_what_a_running_attempt_reads_is_left(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    first = write(store, 1, [])
    second, other = write(store, 2, [first]), write(store, 3, [first])
    third = write(store, 4, [second])
    digest = planned(store, {}, now=WHEN())
    store.delete(third)
    with summarizing(store, third.spec, "r"):
        done = purge(store, digest, {}, WHEN())
        assert done.left.keys() == {each.spec.address for each in (first, second, third)}
    assert done.taken == (other.spec.address,) and store.open(second.spec.address) is not None


def test_a_build_stops_at_an_input_that_a_purge_takes(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    base = Node(("base",), None, Stage("tests.base", "1", _text), None)
    child = Node(("child",), None, Stage("tests.child", "1", _text), None, {"base": base})
    made = build(store, base).artifact
    store.storage.replace(f"{MARKS}/x.json", f'["{made.spec.address}"]'.encode())
    with pytest.raises(BeingPurgedError, match="is being purged"):
        build(store, child)
    store.storage.delete(f"{MARKS}/x.json")
    assert not build(store, child).reused


def test_files_that_are_being_written_are_no_marks_claims_or_pins(tmp_path: Path) -> None:
    """A killed writer leaves them, empty or in half."""
    store = Store(str(tmp_path))
    base = Node(("base",), None, Stage("tests.base", "1", _text), None)
    build(store, base)
    for folder in (MARKS, PINS, f"{SUMMARIES}/{datetime.datetime.now(datetime.UTC).date()}"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / ".x.json.0badf00d").write_text("")
    build(store, Node(("child",), None, Stage("tests.child", "1", _text), None, {"base": base}))
    assert len(purge(store, planned(store, {}, now=WHEN()), {}, WHEN()).taken) == 2


@pytest.mark.parametrize("text", ["", "{}", "[1]", '["a"'])
def test_a_mark_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    store = Store(str(tmp_path))
    base = Node(("base",), None, Stage("tests.base", "1", _text), None)
    build(store, base)
    store.storage.replace(f"{MARKS}/x.json", text.encode())
    with pytest.raises(ValueError, match=r"x\.json is no mark of a purge.*delete it if no purge runs"):
        build(store, Node(("child",), None, Stage("tests.child", "1", _text), None, {"base": base}))


def test_builders_and_readers_beside_purges_never_see_a_dangling_input(tmp_path: Path) -> None:
    """Three threads build chains while the main thread purges everything, again and again."""
    store, stop, faults = Store(str(tmp_path)), threading.Event(), list[str]()

    def builder(name: str) -> None:
        chance = random.Random(name)
        while not stop.is_set():
            base = Node((name, "a"), None, Stage("tests.a", "1", _text), {"n": chance.randrange(3)})
            middle = Node((name, "b"), None, Stage("tests.b", "1", _text), None, {"base": base})
            try:
                build(store, base)
                build(store, middle)
                build(store, Node((name, "c"), None, Stage("tests.c", "1", _text), None, {"middle": middle, "base": base}))
            except (BeingPurgedError, LookupError):
                continue
            except Exception as error:
                faults.append(repr(error))

    threads = [threading.Thread(target=builder, args=(f"t{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    taken = 0
    try:
        for _ in range(12):
            digest = planned(store, {}, now=WHEN())
            try:
                taken += len(purge(store, digest, {}, WHEN()).taken)
            except RefusedPlanError:
                continue
            faults += dangling(store)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not faults and not dangling(store)
    for artifact in store.artifacts():
        artifact.verify()


def _text(out, config, **inputs: Artifact) -> None:
    (out.folder / "text.txt").write_text(f"{config} {sorted(inputs)}")
    out.record(rows_in=0, rows_out=1)


def test_a_purge_that_was_killed_is_continued(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    second = write(store, 2, [write(store, 1, [])])
    digest = planned(store, {})
    trash = tmp_path / ".trash" / digest / second.spec.address / "trashed.json"
    trash.parent.mkdir(parents=True)
    trash.write_text((tmp_path / second.spec.address / MANIFEST_NAME).read_text())
    purge(store, digest, {}, NOW)
    assert not list(store.artifacts()) and len(trashed(store, digest)) == 2


def test_an_artifact_that_was_made_again_survives_the_settlement(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write(store, 1, [])
    digest = planned(store, {})
    purge(store, digest, {}, NOW)
    again = write(store, 1, [])
    settle(store, digest, NOW + 3 * DAY)
    again.verify()


def test_both_versions_of_what_was_made_again_and_purged_again_can_be_restored(tmp_path: Path) -> None:
    """Found 2026-11-26: a commit took the data in the trash for what a killed writer had left, and deleted it."""
    store = Store(str(tmp_path))
    write(store, 1, [])
    first = bytes_below(store)
    digest = planned(store, {})
    purge(store, digest, {}, NOW)
    address = write(store, 1, []).spec.address
    assert restore(store, digest, address) == [] and trashed(store, digest) == [address]  # what stands stays
    second = {name: data for name, data in bytes_below(store).items() if "/trashed-" not in name and name not in first}
    later = NOW + DAY
    again = planned(store, {}, now=later)
    purge(store, again, {}, later)
    assert restore(store, digest, address) == [address]
    assert first.items() <= bytes_below(store).items()
    assert settle(store, again, later + 3 * DAY) == [address]
    assert bytes_below(store) == first and second.keys().isdisjoint(first)


def test_what_lost_its_data_is_not_restored(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    artifact = write(store, 1, [])
    digest = planned(store, {})
    purge(store, digest, {}, NOW)
    store.storage.delete(f"{artifact.spec.address}/{artifact.manifest.data_folder}")
    with pytest.raises(ValueError, match=r"cannot be restored: number\.txt and 0 other files"):
        restore(store, digest, artifact.spec.address)
    assert store.open(artifact.spec.address) is None


def test_what_was_built_on_the_trash_brings_it_back(tmp_path: Path) -> None:
    """A writer that bypassed claims committed a child: the settlement restores its input and deletes nothing of it."""
    store = Store(str(tmp_path))
    first = write(store, 1, [])
    digest = planned(store, {})
    purge(store, digest, {}, NOW)
    write(store, 2, [first])
    settle(store, digest, NOW + 3 * DAY)
    first.verify()
    assert not dangling(store)


def test_the_plan_says_what_protects_and_what_it_saves(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    first = write(store, 1, [])
    second = write(store, 2, [first])
    other = write(store, 3, [])
    add_pin(store, Pin(second.spec.address, "ada", "paper", "2999-01-01"))
    plan = make_plan(store, {}, price_table().at("STANDARD", "gib_month", "2026-11-25"), NOW, young_days=0)
    assert [each.address for each in plan.goes] == [other.spec.address] and plan.bytes == 1
    assert plan.kept[second.spec.address] == "pinned by ada until 2999-01-01: paper"
    assert plan.kept[first.spec.address].endswith(f"an ancestor of {second.name}")
    assert plan.dollars_a_month == "0.000000"
    assert not make_plan(store, {}, None, NOW, young_days=0, under="tests/n9").goes
    assert not make_plan(store, {}, None, WHEN(), young_days=7).goes


@pytest.mark.parametrize("written_days_ago", [1, 9])
def test_what_was_written_lately_is_young_whatever_its_writer_says(tmp_path: Path, written_days_ago: int) -> None:
    """A machine whose clock is a year late made it: by `created` it is old enough to go."""
    store = Store(str(tmp_path))
    parent = write(store, 1, [])
    made = write(store, 2, [parent])
    for artifact, days in ((parent, 30), (made, written_days_ago)):
        path = tmp_path / artifact.spec.address / MANIFEST_NAME
        record = json.loads(path.read_text())
        del record["seal"]
        path.write_text(sealed(record | {"created": "2025-11-26T00:00:00.000+00:00"}))
        when = (WHEN() - days * DAY).timestamp()
        os.utime(path, (when, when))
    plan = make_plan(store, {}, None, WHEN(), young_days=7)
    gone = [] if written_days_ago < 7 else [made.spec.address, parent.spec.address]
    assert [each.address for each in plan.goes] == gone
    if not gone:
        assert plan.kept[made.spec.address] == "written less than 7 days ago by the storage's clock"
        assert plan.kept[parent.spec.address].endswith(f"an ancestor of {made.name}")


def test_a_pin_that_has_expired_holds_nothing_and_a_broken_one_stops_the_plan(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    made = write(store, 1, [])
    name = add_pin(store, Pin(made.spec.address, "ada", "paper", "2026-01-01"))
    assert len(make_plan(store, {}, None, NOW, young_days=0).goes) == 1
    (tmp_path / ".operations/pins" / f"{name}.json").write_text("{}")
    with pytest.raises(ValueError, match="pins"):
        make_plan(store, {}, None, NOW, young_days=0)


def test_a_manifest_that_cannot_be_read_stops_every_plan(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    made = write(store, 1, [])
    (tmp_path / made.spec.address / MANIFEST_NAME).write_text("{")
    with pytest.raises(ValueError, match="tests/n1"):
        make_plan(store, {}, None, NOW, young_days=0)


def test_the_same_rules_hold_on_a_copy(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "a"))
    write(store, 2, [write(store, 1, [])])
    other = copy_of(store, tmp_path / "b")
    assert make_plan(store, {}, None, NOW, young_days=0) == make_plan(other, {}, None, NOW, young_days=0)
