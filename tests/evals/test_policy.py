"""Evaluation policies: when rules are due, which suites hold their items, which evaluations they refuse."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.items.item import ITEMS_FILE, Item, write_items
from evals.items.stage import TaskSpec
from evals.tasks.policy import POLICY, POLICY_FILE, PolicyConfig, PolicyRule, check_policy
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build_all
from lineage.stage import Stage
from lineage.writing.writer import Writer

QUIZ = TaskSpec("quiz", "multiple_choice")
TEXT = TaskSpec("heldout", "perplexity")
NAME = "2026-11-22-tests"


@dataclass(frozen=True)
class Holding:
    """So many items of each task."""

    items: dict[str, int]


def write_suite(out: Writer, config: Holding) -> None:
    held = [
        Item("s", task, f"{n}", f"{task} {n}?", "a", "MIT", "d", choices=("a", "b"), answer_index=0)
        for task, count in config.items.items()
        for n in range(count)
    ]
    write_items(out.folder / ITEMS_FILE, held)


def suite(name: str, **items: int) -> Node:
    return Node(("suite", name), None, Stage("tests.suite", "1", write_suite), Holding(items))


def policy_node(rules: tuple[PolicyRule, ...], suites: tuple[Node, ...], shots: tuple[Node, ...] = (), seed: int = 1) -> Node:
    return Node(("policy",), None, POLICY, PolicyConfig(NAME, rules, seed), {"suites": suites, "shots": shots})


def made(root: Path, node: Node) -> Artifact:
    store = Store(str(root))
    return build_all(store, [node])[0]


def inputs(policy: Artifact, name: str) -> tuple[Artifact, ...]:
    pairs = zip(policy.store.parents(policy), policy.spec.inputs, strict=True)
    return tuple(parent for parent, ref in pairs if ref.name.split(".")[0] == name)


@given(st.integers(0, 6), st.integers(1, 20))
def test_a_rule_is_due_at_every_so_many_saves_and_always_at_the_last(every, count):
    rule = PolicyRule(TEXT, every_saves=every)
    due = [number for number in range(count) if rule.is_due(number, count)]
    assert due[-1] == count - 1
    before = [number for number in due if number < count - 1]
    assert before == [number for number in range(count - 1) if every and (number + 1) % every == 0]


@pytest.mark.parametrize("number", [-1, 3])
def test_a_save_that_does_not_exist_is_never_due(number):
    with pytest.raises(ValueError, match=f"saved step {number} of 3 does not exist"):
        PolicyRule(TEXT).is_due(number, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PolicyRule(QUIZ, every_saves=-1), "rule of quiz: every_saves is -1; it must be at least 0"),
        (lambda: PolicyConfig("today", (PolicyRule(QUIZ),), 1), "policy name is 'today'; give a date"),
        (lambda: PolicyConfig(NAME, (), 1), r"has the tasks \[\]; give at least one, each name once"),
        (lambda: PolicyConfig(NAME, (PolicyRule(QUIZ),) * 2, 1), "give at least one, each name once"),
        (lambda: PolicyConfig(NAME, (PolicyRule(QUIZ),), 1).rule("vibes"), "has no task 'vibes'; it has: quiz"),
    ],
)
def test_a_bad_rule_or_policy_names_what_is_wrong(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("task", "suites", "shots", "message"),
    [
        (QUIZ, (suite("a", other=3),), (), "task quiz asks 'quiz', which 0 suites hold"),
        (QUIZ, (suite("a", quiz=3), suite("b", quiz=3)), (), "task quiz asks 'quiz', which 2 suites hold"),
        (QUIZ, (), (suite("x", quiz=3),), "task quiz asks 'quiz', which 0 suites hold"),
        (replace(QUIZ, num_shots=2), (suite("a", quiz=3),), (suite("x", quiz=1),), "task quiz wants 2 examples, 1 are there"),
    ],
)
def test_a_policy_whose_items_are_not_there_is_not_written(tmp_path, task, suites, shots, message):
    with pytest.raises(ValueError, match=message):
        made(tmp_path, policy_node((PolicyRule(task),), suites, shots))


def test_a_policy_says_its_rules_and_a_task_of_text_needs_no_items(tmp_path):
    rules = (PolicyRule(TEXT, priority=2), PolicyRule(replace(QUIZ, num_shots=1), every_saves=0, priority=-1))
    policy = made(tmp_path, policy_node(rules, (suite("a", quiz=3),), (suite("x", quiz=1),)))
    declared = json.loads(policy.files(POLICY_FILE)[0].read_text())
    assert [(r["task"]["name"], r["every_saves"], r["priority"]) for r in declared["rules"]] == [
        ("heldout", 1, 2),
        ("quiz", 0, -1),
    ]
    assert policy.manifest.statistics["rows_out"] == 2


def test_an_evaluation_may_ask_what_the_policy_says_and_nothing_else(tmp_path):
    policy = made(tmp_path, policy_node((PolicyRule(QUIZ), PolicyRule(TEXT)), (suite("a", quiz=3),)))
    suites = inputs(policy, "suites")
    check_policy(policy, (QUIZ,), 1, suites, ())
    check_policy(policy, (TEXT, QUIZ), 1, suites, ())
    for tasks in ((replace(QUIZ, style="letters"),), (QUIZ, TaskSpec("other", "gold_bpb"))):
        with pytest.raises(ValueError, match="policy does not hold"):
            check_policy(policy, tasks, 1, suites, ())
    with pytest.raises(ValueError, match="has the seed 1, the evaluation 2"):
        check_policy(policy, (QUIZ,), 2, suites, ())


@pytest.mark.parametrize("field", ["evaluator", "rendering"])
def test_code_of_another_version_is_refused(tmp_path, field):
    """A policy that was written for other code; today's evaluator reads it and says so."""
    config = PolicyConfig(NAME, (PolicyRule(QUIZ),), 1, **{field: "of old"})
    node = Node(("policy",), None, POLICY, config, {"suites": (suite("a", quiz=3),), "shots": ()})
    policy = made(tmp_path, node)
    with pytest.raises(ValueError, match=r"policy is for .*of old.*; date a new policy"):
        check_policy(policy, (QUIZ,), 1, inputs(policy, "suites"), ())


def test_items_that_the_policy_does_not_bind_are_refused(tmp_path):
    policy = made(tmp_path, policy_node((PolicyRule(QUIZ),), (suite("a", quiz=3),)))
    other = made(tmp_path, suite("b", quiz=4))
    with pytest.raises(ValueError, match="binds the suites"):
        check_policy(policy, (QUIZ,), 1, (other,), ())
