"""Descendants of a bad artifact, in rebuild order, with recorded costs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_lineage import Parents, dags, reached, write, write_dag

from lineage.artifact.store import Store
from lineage.graph.affected import affected_by, artifacts_of_stage
from lineage.graph.edges import lineage_tables


@given(dags(max_nodes=12), st.data())
def test_the_affected_are_every_descendant_and_inputs_come_first(
    tmp_path_factory: pytest.TempPathFactory, parents: Parents, data: st.DataObject
) -> None:
    store = Store(str(tmp_path_factory.mktemp("store")))
    made = write_dag(store, parents)
    bad = data.draw(st.sets(st.integers(0, len(made) - 1), min_size=1))
    affected = affected_by(lineage_tables(store), [made[i].spec.address for i in sorted(bad)])
    number = {artifact.spec.address: i for i, artifact in enumerate(made)}
    ordered = [number[address] for address in affected.addresses]
    wanted = set().union(*(reached(parents, i, "down") for i in bad))
    assert sorted(ordered) == sorted(wanted)
    for position, node in enumerate(ordered):
        assert set(parents[node]) & wanted <= set(ordered[:position])
    assert {number[a] for a, own in affected.rows.select("address", "is_origin").iter_rows() if own} == bad
    resources = [made[i].manifest.resources for i in wanted]
    assert affected.cost.num_artifacts == len(wanted)
    assert affected.cost.wall_seconds == pytest.approx(sum(use.wall_seconds for use in resources), abs=1e-2)
    assert affected.cost.num_bytes == sum(entry.bytes for i in wanted for entry in made[i].manifest.files)


def test_checkpoints_of_one_job_count_its_seconds_once(tmp_path: Path) -> None:
    """A job's saved steps count from its start, so the longest holds the seconds of all; two jobs add up."""
    store = Store(str(tmp_path))
    (data,) = write_dag(store, [[]])
    saved = [write(store, 5, [data], run=run, step=step) for run in ("a", "b") for step in (10, 20)]
    affected = affected_by(lineage_tables(store), [data.spec.address])
    seconds = [artifact.manifest.resources.wall_seconds for artifact in saved]
    wanted = data.manifest.resources.wall_seconds + max(seconds[:2]) + max(seconds[2:])
    assert affected.cost.wall_seconds == pytest.approx(wanted, abs=1e-6)
    assert affected.cost.num_artifacts == 5
    assert affected.rows["process"].n_unique() == 3


def test_the_artifacts_of_a_stage_version_and_what_there_is_otherwise(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    made = [write(store, i, [], stage=stage) for i, stage in enumerate(("tests.a", "tests.a", "tests.b"))]
    tables = lineage_tables(store)
    assert set(artifacts_of_stage(tables, "tests.a", "1")) == {made[0].spec.address, made[1].spec.address}
    assert artifacts_of_stage(tables, "tests.b") == [made[2].spec.address]
    with pytest.raises(ValueError, match=r"version '3' of tests\.a; the store holds: 1"):
        artifacts_of_stage(tables, "tests.a", "3")
    with pytest.raises(ValueError, match=r"the store holds: tests\.a, tests\.b"):
        artifacts_of_stage(tables, "tests.c")


def test_an_unknown_address_is_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write_dag(store, [[]])
    with pytest.raises(ValueError, match="no artifact at 'nowhere'"):
        affected_by(lineage_tables(store), ["nowhere"])
