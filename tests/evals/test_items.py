"""Items: nested subsets, storage, repeated ids, inconsistent fields."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.items.item import ITEMS_FILE, Item, read_items, select_items, write_items
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.stage import Stage


def item(task: str, number: int, **fields) -> Item:
    basis = Item("suite", task, f"{number:04d}", f"Question {number}?", "42", "MIT", "digest")
    return replace(basis, **fields)


ITEMS = [item(task, number) for task in ("a", "b") for number in range(50)]


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 3), st.randoms())
def test_a_smaller_subset_lies_in_a_larger_one_whatever_the_order_given(small, large, seed, shuffler: random.Random):
    small, large = sorted((small, large))
    shuffled = list(ITEMS)
    shuffler.shuffle(shuffled)
    chosen = select_items(shuffled, small, seed)
    assert chosen == select_items(ITEMS, small, seed)
    assert set(chosen) <= set(select_items(ITEMS, large, seed))
    assert sum(i.task == "a" for i in chosen) == min(small, 50)


def test_other_tasks_do_not_change_a_subset_but_the_seed_does():
    alone = select_items([i for i in ITEMS if i.task == "a"], 10, 0)
    assert alone == [i for i in select_items(ITEMS, 10, 0) if i.task == "a"]
    assert alone != select_items([i for i in ITEMS if i.task == "a"], 10, 1)
    assert select_items(ITEMS, None, 0) == sorted(ITEMS, key=lambda i: (i.task, i.item_id))
    with pytest.raises(ValueError, match="n is 0"):
        select_items(ITEMS, 0, 0)


CHOICE_ITEM = item("c", 1, choices=("x", "42"), answer_index=1, passage="p", solution="s\n<<1+1=2>>", code="pass")


def write_two(out, config):
    write_items(out.folder / ITEMS_FILE, [CHOICE_ITEM, ITEMS[0]])


def test_items_come_back_as_written(tmp_path):
    suite = build(Store(str(tmp_path)), Node(("suite",), None, Stage("test.items", "1", write_two), {})).artifact
    assert read_items(suite) == [ITEMS[0], CHOICE_ITEM]
    assert read_items(suite, "c") == [CHOICE_ITEM]
    with pytest.raises(ValueError, match=r"no task 'z'; it has: a, c"):
        read_items(suite, "z")


def test_an_id_that_occurs_twice_in_a_task_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"task 'a' has 2 items with the id '0003'"):
        write_items(tmp_path / "items.parquet", [*ITEMS, ITEMS[3]])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"question": " "}, "empty question"),
        ({"choices": ("42",), "answer_index": 1}, "must be 0..0"),
        ({"choices": ("41",), "answer_index": 0}, "is not choice 0"),
        ({"answer_index": 0}, "without choices"),
    ],
)
def test_an_inconsistent_item_is_refused_by_name(fields, message):
    with pytest.raises(ValueError, match=rf"item a/0001.*{message}"):
        item("a", 1, **fields)
