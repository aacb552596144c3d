"""The stage `evals.policy`: a dated evaluation policy, `policy/2`, an artifact that every result binds.

A policy says what is asked of a checkpoint and when: tasks with their styles, examples and limits, the seed, at which of the
saved steps, in which order; and of which items: the data versions of the suites. Where a suite lies and which day made it are
not in its bytes, so a policy of equal items is one policy on every day. Results under different policies never mix: the
policy's digest is in their identity, and the leaderboard has a board for each. A policy that was used is not edited; the next
one has another date.
"""

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass, field

from evals.items.item import read_items
from evals.items.prompts import RENDERING
from evals.items.stage import EVAL_RESULT, TEXT_KINDS, TaskSpec
from lineage.artifact.store import Artifact
from lineage.config import to_jsonable
from lineage.stage import Stage
from lineage.trust.fingerprint import CODE_FINGERPRINT, code_fingerprint
from lineage.writing.writer import Writer

POLICY_FILE = "policy.json"
_NAME = re.compile(r"\d{4}-\d{2}-\d{2}(?:-[a-z0-9]+)*")


@dataclass(frozen=True)
class PolicyRule:
    """One task and its schedule: every `every_saves`-th saved step, and always the last (0: only the last)."""

    task: TaskSpec
    every_saves: int = 1
    priority: int = 0
    """Priority of the requests: higher ones run first."""

    def __post_init__(self) -> None:
        if self.every_saves < 0:
            raise ValueError(f"rule of {self.task.name}: every_saves is {self.every_saves}; it must be at least 0")

    def is_due(self, number: int, count: int) -> bool:
        """Whether the task runs at the `number`-th (from 0) of `count` saved steps."""
        if not 0 <= number < count:
            raise ValueError(f"saved step {number} of {count} does not exist")
        return number == count - 1 or (self.every_saves > 0 and (number + 1) % self.every_saves == 0)


@dataclass(frozen=True)
class PolicyConfig:
    """A policy. `evaluator` and `rendering` are the code versions for which it was written."""

    name: str
    rules: tuple[PolicyRule, ...]
    seed: int
    evaluator: str = field(default=f"{EVAL_RESULT.name}@{EVAL_RESULT.version}")
    rendering: str = field(default=RENDERING)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"policy name is {self.name!r}; give a date and optional words after it: 2026-11-22-smoke")
        names = [rule.task.name for rule in self.rules]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"policy {self.name} has the tasks {names}; give at least one, each name once")

    @property
    def tasks(self) -> tuple[TaskSpec, ...]:
        return tuple(rule.task for rule in self.rules)

    def rule(self, task: str) -> PolicyRule:
        """Find a task by name. Raises: ValueError that names the known tasks."""
        for rule in self.rules:
            if rule.task.name == task:
                return rule
        raise ValueError(f"policy {self.name} has no task {task!r}; it has: {', '.join(t.name for t in self.tasks)}")


def write_policy(out: Writer, config: PolicyConfig, suites: tuple[Artifact, ...], shots: tuple[Artifact, ...] = ()) -> None:
    """Write `policy.json`: the config, and the suites by data version with how many items they hold of each task.

    Raises: ValueError for a task without items, or with items in two suites, or with too few examples.
    """
    scored, examples = [_bound(suite) for suite in suites], [_bound(suite) for suite in shots]
    for task in config.tasks:
        if task.kind in TEXT_KINDS:
            continue
        holding = [suite.name for suite in scored if task.item_task in suite.items]
        if len(holding) != 1:
            raise ValueError(
                f"policy {config.name}: task {task.name} asks {task.item_task!r}, which {len(holding)} suites hold"
            )
        held = sum(suite.items.get(task.item_task, 0) for suite in examples)
        if held < task.num_shots:
            raise ValueError(f"policy {config.name}: task {task.name} wants {task.num_shots} examples, {held} are there")
    bound = {role: [asdict(suite) for suite in role_suites] for role, role_suites in (("suites", scored), ("shots", examples))}
    record = {"format": "policy/2", **to_jsonable(config), **bound}
    (out.folder / POLICY_FILE).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    out.extra["policy"] = {"name": config.name, CODE_FINGERPRINT: code_fingerprint(EVAL_RESULT.module)}
    out.record(rows_out=len(config.rules))


POLICY = Stage(
    "evals.policy",
    "3",
    write_policy,
    description="The dated evaluation policy: tasks, styles, examples, limits, seed, and when each task runs.",
    checks=("file_set",),
)
"""3: the evaluator's fingerprint is called one, so evidence takes it for no result. 2: items are bound by their suites' data
versions; were: counts by the suites' names, which hold a ferry's day."""


@dataclass(frozen=True)
class _BoundSuite:
    """Describe a suite in a policy: the last part of its key, its data version, and its number of items by task."""

    name: str
    data_version: str
    items: dict[str, int]


def _bound(suite: Artifact) -> _BoundSuite:
    counts = Counter(item.task for item in read_items(suite))
    return _BoundSuite(suite.spec.key[-1], suite.data_version, dict(sorted(counts.items())))


def check_policy(
    policy: Artifact,
    tasks: tuple[TaskSpec, ...],
    seed: int,
    suites: tuple[Artifact, ...],
    shots: tuple[Artifact, ...],
) -> None:
    """Refuse tasks that the policy does not hold, items that it does not bind, and code of another version.

    Raises: ValueError naming the task, the seed, the suite or the version.
    """
    declared = json.loads(policy.files(POLICY_FILE)[0].read_text())
    evaluator = f"{EVAL_RESULT.name}@{EVAL_RESULT.version}"
    if (declared["evaluator"], declared["rendering"]) != (evaluator, RENDERING):
        raise ValueError(
            f"{policy.name} is for {declared['evaluator']} with rendering {declared['rendering']}, this is {evaluator} with "
            f"rendering {RENDERING}; date a new policy"
        )
    if declared["seed"] != seed:
        raise ValueError(f"{policy.name} has the seed {declared['seed']}, the evaluation {seed}")
    known = {rule["task"]["name"]: rule["task"] for rule in declared["rules"]}
    for task in tasks:
        if known.get(task.name) != to_jsonable(task):
            raise ValueError(f"{policy.name} does not hold {asdict(task)}; it holds {known.get(task.name)}")
    for role, given in (("suites", suites), ("shots", shots)):
        bound = {suite["data_version"]: suite["name"] for suite in declared[role]}
        for suite in given:
            if suite.data_version not in bound:
                raise ValueError(f"{policy.name} binds the {role} {bound}, not {suite.name} of version {suite.data_version}")
