"""A policy identifies items by their bytes: equal items give an equal policy, one changed item another."""

from dataclasses import dataclass, replace

import pytest

from evals.items.item import ITEMS_FILE, Item, write_items
from evals.items.stage import TaskSpec
from evals.tasks.policy import POLICY, PolicyConfig, PolicyRule, check_policy
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build, build_all
from lineage.stage import Stage
from lineage.writing.writer import Writer

TASKS = (TaskSpec("quiz", "gold_bpb", num_shots=1),)


@dataclass(frozen=True)
class Questions:
    words: tuple[str, ...]


def _write(out: Writer, config: Questions) -> None:
    items = [Item("s", "quiz", f"{n}", word, "yes", "MIT", "d") for n, word in enumerate(config.words)]
    write_items(out.folder / ITEMS_FILE, items)


def _suite(name: str, day: str, *words: str) -> Node:
    return Node(("ferry", "eval_suite", name), day, Stage("tests.suite", "1", _write), Questions(words))


def _policy(store: Store, day: str, *words: str) -> Artifact:
    declared = PolicyConfig("2026-11-22-tests", tuple(PolicyRule(task) for task in TASKS), 5)
    inputs = {"suites": (_suite("quiz", day, *words),), "shots": (_suite("shots", day, "An example?"),)}
    node = Node(("ferry", "eval_policy", declared.name), day, POLICY, declared, inputs)
    return build_all(store, [node])[0]


def test_a_day_is_not_in_a_policy_and_an_item_is(tmp_path):
    store = Store(str(tmp_path))
    first, second = (_policy(store, day, "Is it?", "Was it?") for day in ("2026-11-21", "2026-11-22"))
    assert first.spec.version != second.spec.version
    assert first.data_version == second.data_version, "results of two days are under one policy"
    other = _policy(store, "2026-11-23", "Is it?", "Will it?")
    assert other.data_version != first.data_version, "as many items, but others"


def test_items_that_a_policy_does_not_bind_are_not_asked(tmp_path):
    store = Store(str(tmp_path))
    policy = _policy(store, "2026-11-21", "Is it?")
    suites, shots = (
        (build(store, _suite(*given)).artifact,)
        for given in (("quiz", "2026-11-21", "Is it?"), ("shots", "2026-11-21", "An example?"))
    )
    check_policy(policy, TASKS, 5, suites, shots)
    other = build(store, _suite("quiz", "2026-11-22", "Will it?")).artifact
    with pytest.raises(ValueError, match=r"binds the suites .*, not ferry/eval_suite/quiz.* of version"):
        check_policy(policy, TASKS, 5, (other,), shots)
    with pytest.raises(ValueError, match="binds the shots"):
        check_policy(policy, TASKS, 5, suites, (other,))
    with pytest.raises(ValueError, match="does not hold"):
        check_policy(policy, (replace(TASKS[0], num_shots=0),), 5, suites, shots)
