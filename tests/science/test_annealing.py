"""Branches against a control in pairs: planted differences are found, small ones named as too small, bad sets refused."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from scored import SCORE, Score, made

from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.stage import Stage
from lineage.writing.writer import Writer
from marin_assets.describe import recorded
from science.annealing_stage import ANNEALING, AnnealingConfig
from science.forecasts.outcome import Outcome
from science.in_pairs import RefusedPairsError, compare
from tests.trainer.tiny_run import RUN
from trainer.spec.stage import CheckpointConfig

SEEDS, SHARED, OWN = tuple(range(5)), 0.2, 0.002
GAINS = {"even": 0.0, "prose": -0.03, "code": 0.02, "odd": 0.0}
CONFIG = AnnealingConfig(tuple(GAINS), SEEDS, ("held-out",), "loss", "nats")


@dataclass(frozen=True)
class Start:
    """A checkpoint that branches start from."""

    name: str


def write_start(out: Writer, config: Start) -> None:
    (out.folder / "weights").write_text(config.name)


def write_branch(out: Writer, config: CheckpointConfig, start: Artifact | None = None) -> None:
    (out.folder / "weights").write_text(config.run.name)


START, BRANCH = Stage("tests.start", "1", write_start), Stage("tests.branch", "1", write_branch)


def branch(mix: str, seed: int, score: Score, start: str | None = "a") -> Node:
    run = replace(RUN, name=f"{mix}-s{seed}", seed=seed)
    inputs = {} if start is None else {"start": Node(("starts", start), None, START, Start(start))}
    trial = Node(("branches",), run.name, BRANCH, CheckpointConfig(run, run.num_steps), inputs)
    return Node(("results",), run.name, SCORE, score, {"trial": trial})


def losses() -> dict[tuple[str, int], float]:
    """What a seed does to all mixes alike is a hundred times what it does to one."""
    random = np.random.default_rng(0)
    shared = 3 + SHARED * random.normal(size=len(SEEDS))
    return {(mix, seed): float(shared[seed] + gain + OWN * random.normal()) for mix, gain in GAINS.items() for seed in SEEDS}


def verdict(config: AnnealingConfig = CONFIG, **changed: Node) -> Node:
    """All branches, of which some are replaced by name, `<mix>_s<seed>`."""
    nodes = tuple(changed.get(f"{mix}_s{seed}", branch(mix, seed, Score(loss))) for (mix, seed), loss in losses().items())
    return Node(("annealings", "a", "verdict"), None, ANNEALING, config, {"results": nodes})


def test_differences_are_found_by_pairs_although_seeds_differ_more(tmp_path: Path) -> None:
    artifact = made(tmp_path, verdict())
    facts = artifact.manifest.extra["annealing"]
    rows = {row["mix"]: row for row in facts["rows"]}
    assert {mix: row["verdict"] for mix, row in rows.items()} == {"prose": "better", "code": "worse", "odd": "undecided"}
    for mix, row in rows.items():
        assert row["low"] < GAINS[mix] < row["high"] and 0 < row["smallest_visible"] < 0.02 and row["pairs"] == 5
        assert row["high"] - row["difference"] == pytest.approx(row["smallest_visible"])
    assert abs(rows["odd"]["difference"]) < rows["odd"]["smallest_visible"]
    assert json.loads(artifact.file("annealing.json").read_text()) == facts and facts["start"] == "starts/a"
    page = artifact.file("annealing.md").read_text()
    assert "| prose | held-out | better |" in page and "for 3 comparisons" in page
    assert recorded(artifact)["control"].value == "even"


def test_at_most_one_set_in_twenty_names_a_difference_that_is_none() -> None:
    """Over three mixes that equal the control, the corrected intervals exclude 0 together as often as they say."""
    random, wrong = np.random.default_rng(1), 0

    def outcomes(values: np.ndarray) -> list[Outcome]:
        return [Outcome("o", None, {("held-out", "loss"): float(value)}, "p", None) for value in values]  # type: ignore[arg-type]

    for _ in range(600):
        shared = random.normal(size=5)
        arms = {mix: outcomes(shared + 0.01 * random.normal(size=5)) for mix in CONFIG.mixes}
        wrong += any(row.verdict != "undecided" for row in compare(CONFIG, arms))
    assert 0.02 < wrong / 600 < 0.065


def test_a_mix_that_diverged_is_named_and_the_others_are_compared(tmp_path: Path) -> None:
    gone = branch("code", 2, Score(0.0, diverged="planted"))
    rows = made(tmp_path, verdict(code_s2=gone)).manifest.extra["annealing"]["rows"]
    assert [(row["mix"], row["verdict"]) for row in rows] == [("prose", "better"), ("code", "diverged"), ("odd", "undecided")]
    assert rows[1]["why"] == "results[code-s2] diverged"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"prose_s1": branch("prose", 1, Score(3.0, policy="q"))}, r"the results have 2 policies \(p, q\)"),
        ({"prose_s1": branch("prose", 1, Score(3.0), start="b")}, "the branches start from 2 checkpoints"),
        ({"prose_s1": branch("prose", 1, Score(3.0), start=None)}, r"results\[prose-s1\] start from no checkpoint"),
        ({"even_s0": branch("even", 0, Score(3.0, diverged="planted"))}, "of the control, diverged: planted"),
    ],
)
def test_branches_that_cannot_be_compared_are_refused(tmp_path: Path, changed: dict[str, Node], message: str) -> None:
    with pytest.raises(RefusedPairsError, match=message):
        made(tmp_path, verdict(**changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mixes": ("even",)}, "give a control and at least one other"),
        ({"seeds": (0, 1)}, "give at least 3"),
        ({"tasks": ()}, "give a task"),
    ],
)
def test_a_config_that_decides_nothing_is_refused(changed: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **changed)
