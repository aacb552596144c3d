"""Runs compared with a control in pairs that share a seed, so what a seed does to both is not noise.

The difference of a pair has Student's t interval over the pairs. The level is divided by the number of comparisons
(Bonferroni), so that all intervals of a verdict hold together. Annealings and proxies are judged by it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from lineage.artifact.store import Artifact
from lineage.figures import new_figure
from lineage.writing.writer import Writer
from science.forecasts.outcome import Outcome, outcome_of
from science.paired import paired

LEAST_SEEDS = 3
type Verdict = Literal["better", "worse", "undecided", "diverged"]
type Arms = Mapping[str, Sequence[Outcome]]
"""The outcomes of each arm, in the order of the seeds."""


class PairsConfig(Protocol):
    """What is compared; part of a verdict's identity."""

    @property
    def arms(self) -> tuple[str, ...]:
        """The control first. The results stand in this order, all seeds of an arm together."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """A seed is one pair: the arm and the control."""

    @property
    def tasks(self) -> tuple[str, ...]: ...

    @property
    def metric(self) -> str: ...

    @property
    def unit(self) -> str: ...

    @property
    def level(self) -> float: ...


@dataclass(frozen=True)
class Words:
    """How a kind of verdict is named."""

    kind: str
    """Name of its files and of its part of the manifest."""
    arm: str
    arms: str


class RefusedPairsError(ValueError):
    """The runs cannot be compared; the message says why."""


@dataclass(frozen=True)
class Compared:
    """An arm against the control on one task; a difference below 0 is a lower loss."""

    arm: str
    task: str
    verdict: Verdict
    why: str = ""
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    smallest_visible: float | None = None
    """The difference whose interval would have excluded 0."""

    def row(self, words: Words) -> dict[str, Any]:
        """The fields, with the arm under its own word."""
        values = asdict(self)
        return {words.arm: values.pop("arm")} | values


def check_config(config: PairsConfig, words: Words) -> None:
    """Raises: ValueError for a config that decides nothing."""
    if len(config.arms) < 2 or len(set(config.arms)) < len(config.arms):
        raise ValueError(f"{words.kind}: {words.arms} are {config.arms}; give a control and at least one other, each once")
    if len(set(config.seeds)) < LEAST_SEEDS or len(set(config.seeds)) < len(config.seeds):
        raise ValueError(f"{words.kind}: seeds are {config.seeds}; give at least {LEAST_SEEDS}, each once")
    if not config.tasks or not 0 < config.level < 1:
        raise ValueError(f"{words.kind}: tasks are {config.tasks}, level is {config.level}; give a task and a level in 0..1")


def outcomes_by_arm(
    name: str,
    config: PairsConfig,
    words: Words,
    results: Sequence[Artifact],
    more_faults: Callable[[Arms], Iterable[str]],
) -> Arms:
    """Return the outcomes of each arm, the control first.

    Raises: RefusedPairsError for results of several policies or held-out texts, a control that diverged, or other faults.
    """
    count, outcomes = len(config.seeds), [outcome_of(result) for result in results]
    if len(outcomes) != len(config.arms) * count:
        raise RefusedPairsError(
            f"{name}: there are {len(outcomes)} results for {len(config.arms)} {words.arms} x {count} seeds; give each once"
        )
    arms = {arm: outcomes[index * count : (index + 1) * count] for index, arm in enumerate(config.arms)}
    if odd := [*_faults(results, outcomes, arms[config.arms[0]]), *more_faults(arms)]:
        raise RefusedPairsError(f"{name}: {'; '.join(odd)}")
    return arms


def _faults(results: Sequence[Artifact], outcomes: Sequence[Outcome], control: Sequence[Outcome]) -> Iterator[str]:
    policies = sorted({outcome.policy for outcome in outcomes})
    if len(policies) > 1:
        yield f"the results have {len(policies)} policies ({', '.join(policies)}); score all by one"
    texts = {frozenset(ref.data_version for ref in each.spec.inputs if ref.name.startswith("corpora.")) for each in results}
    if len(texts) > 1:
        yield f"the results are scored on {len(texts)} sets of held-out text; score all on one corpus"
    for outcome in control:
        if outcome.diverged is not None:
            yield f"{outcome.name}, of the control, diverged: {outcome.diverged}"


def compare(config: PairsConfig, arms: Arms) -> list[Compared]:
    """Compare every arm with the control on every task. An arm of which a run diverged is not compared."""
    control, *others = config.arms
    return [_compared(config, arm, task, arms[control], arms[arm]) for arm in others for task in config.tasks]


def _compared(config: PairsConfig, arm: str, task: str, control: Sequence[Outcome], runs: Sequence[Outcome]) -> Compared:
    gone = [run.name for run in runs if run.diverged is not None]
    if gone:
        return Compared(arm, task, "diverged", f"{', '.join(gone)} diverged")
    comparisons = (len(config.arms) - 1) * len(config.tasks)
    base, tried = ([each.score(task, config.metric) for each in side] for side in (control, runs))
    difference = paired(base, tried, 1 - (1 - config.level) / comparisons)
    verdict: Verdict = "undecided" if not difference.excludes_zero else "better" if difference.mean < 0 else "worse"
    width = difference.high - difference.mean
    return Compared(arm, task, verdict, "", difference.mean, difference.low, difference.high, difference.pairs, width)


def write_verdict(
    out: Writer, config: PairsConfig, words: Words, arms: Arms, own: Mapping[str, Any], sentences: Iterable[str]
) -> None:
    """Write `<kind>.json`, `<kind>.png` and `<kind>.md`. `own` are more facts, `sentences` begin the page."""
    rows = compare(config, arms)
    facts = {
        "control": config.arms[0],
        "unit": config.unit,
        "level": config.level,
        "seeds": list(config.seeds),
        "rows": [row.row(words) for row in rows],
        **own,
    }
    picture = f"{words.kind}.png"
    (out.folder / f"{words.kind}.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    draw(rows, config, out.folder / picture)
    page = (f"# {out.spec.name}", "", *sentences, *_table(rows, config, words, picture))
    (out.folder / f"{words.kind}.md").write_text("\n".join(page) + "\n")
    out.extra[words.kind] = facts
    out.record(rows_in=sum(len(runs) for runs in arms.values()), rows_out=len(rows))


def draw(rows: Sequence[Compared], config: PairsConfig, path: Path) -> None:
    """A dot with its interval for each arm and task, and a line at no difference."""
    shown = [row for row in rows if row.difference is not None]
    figure = new_figure(6.5, 1.2 + 0.3 * max(len(shown), 1))
    axes = figure.subplots()
    middle = np.array([row.difference for row in shown], float)
    width = np.array([row.smallest_visible for row in shown], float)
    places = np.arange(len(shown))
    axes.errorbar(middle, places, xerr=width, fmt="o", capsize=4)
    axes.axvline(0.0, color="0.5", linewidth=1)
    axes.set_yticks(places, [f"{row.arm}: {row.task}" for row in shown])
    axes.invert_yaxis()
    axes.set_xlabel(f"difference from {config.arms[0]}, {config.unit} (left is better)")
    figure.savefig(path, metadata={"Software": None})


def _table(rows: Sequence[Compared], config: PairsConfig, words: Words, picture: str) -> Iterator[str]:
    yield f"Intervals hold together at {config.level:g}: each has the level for {len(rows)} comparisons."
    yield from ("", f"![Differences from the control]({picture})", "")
    yield f"| {words.arm} | task | verdict | difference, {config.unit} | interval | smallest difference that would show |"
    yield "|---" * 6 + "|"
    for row in rows:
        if row.difference is None:
            yield f"| {row.arm} | {row.task} | {row.verdict} | - | {row.why} | - |"
            continue
        interval = f"{row.low:+.5f} to {row.high:+.5f}"
        numbers = f"{row.difference:+.5f} | {interval} | {row.smallest_visible:.5f}"
        yield f"| {row.arm} | {row.task} | {row.verdict} | {numbers} |"
