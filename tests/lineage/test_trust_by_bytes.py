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

from lineage.artifact.store import Store
from lineage.graph.affected import affected_by
from lineage.graph.edges import lineage_tables
from lineage.trust.gate import inspect
from lineage.trust.verdicts import quarantine


@settings(max_examples=examples(17))
@given(recomputes(), st.data())
def test_a_quarantine_stops_every_descendant_by_bytes_and_affected_lists_them(graph: Recomputes, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = graph.write(Store(folder))
        number, _ = bad = data.draw(st.sampled_from(sorted(made)))
        quarantine(made[bad], "scraped from the wrong site", "ada")
        wanted = {made[place].spec.address for place in made if place[0] in graph.below([number])}
        store = made[bad].store
        stopped = {a.spec.address for a in made.values() if inspect(store, [a.ref("x")], {})}
        assert stopped == wanted
        found = affected_by(lineage_tables(store), [made[bad].spec.address])
        assert set(found.addresses) == wanted and len(found.addresses) == len(wanted)
        origins = found.rows.filter(is_origin=True)["address"].to_list()
        assert set(origins) == {made[place].spec.address for place in made if place[0] == number}


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


def test_a_superseded_recompute_is_named_with_what_it_holds_back(tmp_path: Path) -> None:
    """The bad bytes are above an equal recompute only; the finding says which one, and deleting that leads out."""
    store = Store(str(tmp_path))
    good, bad = write(store, 0, []), write(store, 1, [])
    used, other = write(store, 2, [good], version=1), write(store, 2, [bad], version=2)
    run = write(store, 3, [used])
    quarantine(bad, "scraped from the wrong site", "ada")
    (finding,) = inspect(store, [run.ref("x")], {})
    assert finding.problem == "quarantined" and f"it is above {other.spec.address}" in finding.detail
    store.delete(other)
    assert inspect(store, [run.ref("x")], {}) == []
