"""Trust goes by bytes: a recompute with equal bytes changes nothing of what the gate and `affected` say.

`make test-long` tries 204 random graphs, `make test` 17.
"""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from random_lineage import Recomputes, recomputes, write

from lineage.artifact.store import Artifact, Store
from lineage.graph.affected import affected_by
from lineage.graph.edges import lineage_tables
from lineage.trust.gate import inspect
from lineage.trust.verdicts import quarantine


@settings(max_examples=examples(17))
@given(recomputes(), st.data())
def test_a_quarantine_stops_every_descendant_by_bytes_and_affected_lists_them(graph: Recomputes, data: st.DataObject) -> None:
    """Some artifacts were deleted since; an equal one takes the place of each."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        made = graph.write(store)
        bad = data.draw(st.sampled_from(sorted(made)))
        quarantine(made[bad], "scraped from the wrong site", "ada")
        for place in data.draw(st.sets(st.sampled_from(sorted(made)), max_size=3)) - {bad}:
            store.delete(made.pop(place))
        wanted = {made[place].spec.address for place in graph.below(bad[0], made)}
        assert {a.spec.address for a in made.values() if is_quarantined(store, a)} == wanted
        affected = affected_by(lineage_tables(store), [made[bad].spec.address])
        assert set(affected.addresses) == wanted and len(affected.addresses) == len(wanted)
        origins = affected.rows.filter(is_origin=True)["address"].to_list()
        assert set(origins) == {artifact.spec.address for place, artifact in made.items() if place[0] == bad[0]}


def is_quarantined(store: Store, artifact: Artifact) -> bool:
    """Whether the gate refuses it for a quarantine; it may also refuse it for something missing."""
    return any(finding.problem == "quarantined" for finding in inspect(store, [artifact.ref("x")], {}))


def test_what_lies_below_a_superseded_artifact_is_found_from_todays(tmp_path: Path) -> None:
    """a(v1) -> b -> r; a is made again with equal bytes, b and r are reused; a(v2) is found to be bad."""
    store = Store(str(tmp_path))
    first = write(store, 0, [], version=1)
    below = write(store, 1, [first])
    run = write(store, 2, [below])
    second = write(store, 0, [], version=2)
    quarantine(second, "scraped from the wrong site", "ada")
    assert [f.problem for f in inspect(store, [run.ref("x")], {})] == ["quarantined"]
    assert set(affected_by(lineage_tables(store), [second.spec.address]).addresses) == {
        artifact.spec.address for artifact in (first, second, below, run)
    }


def test_an_equal_artifact_stands_in_for_one_that_was_deleted(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    first = write(store, 0, [], version=1)
    below = write(store, 1, [first])
    second = write(store, 0, [], version=2)
    store.delete(first)
    assert inspect(store, [below.ref("x")], {}) == []
    assert below.input("inputs.0").spec.address == second.spec.address
    store.delete(second)
    assert [f.problem for f in inspect(store, [below.ref("x")], {})] == ["missing"]
    with pytest.raises(ValueError, match="which is gone"):
        below.input("inputs.0")


def test_what_lies_above_an_equal_sibling_stops_nothing(tmp_path: Path) -> None:
    """Two empty tables of duplicates are equal, one of a clean source and one of a leaked source (the Bison replay)."""
    store = Store(str(tmp_path))
    good, bad = write(store, 0, []), write(store, 1, [])
    used, other = write(store, 2, [good], version=1), write(store, 2, [bad], version=2)
    run, leaked_run = write(store, 3, [used]), write(store, 4, [other])
    quarantine(bad, "leaked", "ada")
    assert inspect(store, [run.ref("x")], {}) == []
    assert [finding.problem for finding in inspect(store, [leaked_run.ref("x")], {})] == ["quarantined"]
    affected = set(affected_by(lineage_tables(store), [bad.spec.address]).addresses)
    assert affected == {artifact.spec.address for artifact in (bad, other, leaked_run)}


def test_two_equal_artifacts_that_are_both_used_are_both_walked(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    good, bad = write(store, 0, []), write(store, 1, [])
    first, second = write(store, 2, [good], version=1), write(store, 2, [bad], version=2)
    run = write(store, 4, [write(store, 3, [first]), second])
    quarantine(bad, "leaked", "ada")
    assert [finding.problem for finding in inspect(store, [run.ref("x")], {})] == ["quarantined"]
