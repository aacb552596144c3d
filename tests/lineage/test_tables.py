"""Shuffles: the same rows whatever the tasks, ranges and engine are; connected components against a plain search."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from in_folder import InFolder

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.shards.execution import Execution
from lineage.shards.run import SCRATCH_FOLDER
from lineage.tables.components import components
from lineage.tables.local import LocalEngine
from lineage.tables.ranges import edges, repeats
from lineage.tables.shuffle import MOST, Shuffle, group_count, opened_files, runs_of
from lineage.writing.write import writing

SPEC = ArtifactSpec(key=("t",), partition=None, stage="t", stage_version="1", config={}, inputs=())
EDGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).filter(lambda e: e[0] != e[1]), max_size=40)


def rows_of(keys, first):
    return pa.table({"key": pa.array(keys, pa.uint64()), "number": np.arange(len(keys)) + first})


def firsts(rows):
    numbers, owners = repeats(rows, ("key",), "number")
    return pa.table({"number": numbers, "first": owners})


def whole(out, engine, parts):
    table = pa.concat_tables([engine.table(out, part) for part in parts])
    return sorted(zip(*table.to_pydict().values(), strict=True))


def repeated(out, keys, tasks, ranges, name):
    """Numbers of keys that an earlier number has, with that number."""
    step = -(-len(keys) // tasks)
    given_rows = [(keys[i : i + step], i) for i in range(0, len(keys), step)]
    engine = LocalEngine(SCRATCH_FOLDER)
    return whole(out, engine, engine.shuffle(out, Shuffle(name, rows_of, given_rows, "key", firsts, ranges, spread=True)))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 4), st.integers(1, 7))
def test_however_rows_are_cut_each_meets_the_first_of_its_key(tmp_path_factory, keys, tasks, ranges):
    expected = [(i, keys.index(key)) for i, key in enumerate(keys) if keys.index(key) < i]
    assert repeated(InFolder(tmp_path_factory.mktemp("s")), keys, tasks, ranges, "cut") == expected


def test_the_ranges_cover_all_keys_in_order(tmp_path):
    keys = [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    engine, out = LocalEngine(SCRATCH_FOLDER), InFolder(tmp_path)
    parts = engine.shuffle(out, Shuffle("s", rows_of, [(keys, 0)], "key", lambda rows: rows, 4))
    assert [engine.table(out, part)["key"].to_pylist() for part in parts] == [keys[:2], [keys[2]], [keys[3]], [keys[4]]]
    assert engine.moved[0].shuffled == engine.moved[0].written == 16 * len(keys)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=40), st.integers(1, 7))
def test_ranges_of_numbers_below_a_bound_are_runs_in_order(tmp_path_factory, keys, ranges):
    engine, out = LocalEngine(SCRATCH_FOLDER), InFolder(tmp_path_factory.mktemp("s"))
    tasks = [(keys[::2], 0), (keys[1::2], 100)]
    parts = engine.shuffle(out, Shuffle("s", rows_of, tasks, "key", lambda rows: rows, ranges, below=100))
    found = [engine.table(out, part)["key"].to_pylist() for part in parts]
    assert [key for part in found for key in sorted(part)] == sorted(keys)
    assert all(key * ranges // 100 == index for index, part in enumerate(found) for key in part)


@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 12))
def test_two_levels_give_each_range_the_rows_of_one_in_the_same_order(tmp_path_factory, keys, tasks, ranges):
    given_rows = [(keys[i::tasks], 100 * i) for i in range(tasks)]
    parts, moved = [], []
    for most in (1 << 13, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lineage.tables.shuffle.MOST_OPENS", most)
            engine, out = LocalEngine(SCRATCH_FOLDER), InFolder(tmp_path_factory.mktemp("s"))
            found = engine.shuffle(out, Shuffle("s", rows_of, given_rows, "key", lambda rows: rows, ranges))
        parts.append([engine.table(out, part).to_pydict() for part in found])
        moved.append(engine.moved)
    assert parts[0] == parts[1] and moved[0] == moved[1]


@pytest.mark.parametrize(("tasks", "ranges"), [(400, 1_000), (1_000, 400), (3, MOST), (MOST, 5), (2_303, 5_756)])
def test_two_levels_open_few_files_and_no_task_of_the_second_is_larger(tasks, ranges):
    groups = group_count(tasks, ranges)
    assert opened_files(tasks, ranges) < tasks * ranges
    assert opened_files(tasks, ranges) <= 2.1 * tasks * ranges**0.5 + ranges
    assert max(map(len, runs_of(range(tasks), groups))) <= groups


def reached(found):
    """(root, member) of every number that is not the smallest that it is linked to."""
    group = defaultdict(set)
    for a, b in found:
        union = {a, b} | group[a] | group[b]
        for number in union:
            group[number] = union
    return sorted((min(union), number) for number, union in group.items() if min(union) != number)


def held(out, engine, found):
    """Edges in two parts of an engine."""
    tasks = [tuple(np.array(found[i::2], np.int64).reshape(-1, 2).T) for i in range(2)]
    return engine.shuffle(out, Shuffle("given", edges, tasks, "member", lambda rows: rows, 2, spread=True))


@given(EDGES, st.sampled_from([None, 0, 5]))
def test_components_are_those_of_a_plain_search_in_one_task_and_in_rounds(tmp_path_factory, found, largest):
    engine, out = LocalEngine(SCRATCH_FOLDER), InFolder(tmp_path_factory.mktemp("s"))
    assert whole(out, engine, components(out, engine, held(out, engine, found), largest=largest)) == reached(found)


def test_a_long_chain_takes_few_rounds(tmp_path):
    numbers = np.random.default_rng(3).permutation(2_000).tolist()
    engine, out = LocalEngine(SCRATCH_FOLDER), InFolder(tmp_path)
    stars = whole(out, engine, components(out, engine, held(out, engine, list(pairwise(numbers))), largest=0))
    assert stars == [(0, number) for number in range(1, 2_000)]
    assert len(engine.moved) < 2 * 20


def test_two_workers_give_the_parts_of_one(tmp_path):
    tasks = [([(i * j * 2654435761) % (1 << 64) for i in range(500)], 500 * j) for j in range(4)]
    step = Shuffle("both", rows_of, tasks, "key", firsts, 5)
    digests = []
    for workers in (1, 2):
        with writing(Store(str(tmp_path / str(workers))), SPEC, execution=Execution(workers)) as out:
            digests.append([part.digest for part in LocalEngine(SCRATCH_FOLDER).shuffle(out, step)])
    assert digests[0] == digests[1] and len(set(digests[0])) > 1


@pytest.mark.parametrize(
    ("ranges", "tasks", "message"), [(0, 1, "has 0 ranges"), (MOST + 1, 1, "allowed: 1 to 65536"), (1, 0, "has 0 tasks")]
)
def test_a_shuffle_that_opens_too_many_files_is_refused(ranges, tasks, message):
    with pytest.raises(ValueError, match=message):
        Shuffle("s", rows_of, [()] * tasks, "key", firsts, ranges)
