"""Pools against scores: correlations and p values of slow references, the correction holds its level, refusals by name."""

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scored import made

from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.correlate import correlate, holm, smallest_visible
from science.correlation_stage import CORRELATIONS, CorrelationConfig, RefusedCorrelationError

MODELS = 12
RNG = np.random.default_rng(4)
CODE, PROSE = RNG.normal(2, 0.3, MODELS), RNG.normal(3, 0.3, MODELS)
SOLVED = -CODE + RNG.normal(0, 0.02, MODELS)
CONFIG = CorrelationConfig(("heldout/code", "heldout/prose"), (("programs", "pass"),), permutations=4_000)


def test_rho_is_spearmans_with_ties() -> None:
    one, other = np.array([1.0, 2, 2, 3, 5, 5]), np.array([2.0, 1, 3, 3, 4, 6])
    (pair,) = correlate({"a": one}, {"b": other}, permutations=200)
    assert pair.rho == pytest.approx(stats.spearmanr(one, other).statistic)


def test_the_p_value_is_that_of_all_permutations() -> None:
    one, other = np.array([1.0, 2, 3, 4, 5, 6]), np.array([2.0, 1, 4, 3, 6, 5])
    wanted = abs(stats.spearmanr(one, other).statistic)
    every = [abs(stats.spearmanr(one, order).statistic) >= wanted - 1e-12 for order in itertools.permutations(other)]
    (pair,) = correlate({"a": one}, {"b": other}, permutations=40_000)
    assert pair.p == pytest.approx(np.mean(every), abs=0.005)


def test_holms_correction_is_the_slow_one() -> None:
    ps = np.array([0.04, 0.001, 0.03, 0.5])
    ranked = sorted(ps)
    slow = [min(1.0, max((len(ps) - i) * q for i, q in enumerate(ranked) if q <= p)) for p in ps]
    np.testing.assert_allclose(holm(ps), slow)


def test_of_many_unrelated_pairs_a_false_one_is_rare() -> None:
    """Five pools x four scores without any relation, 200 times: the corrected test names a pair in about 5 % of them."""
    rng, wrong = np.random.default_rng(0), 0
    for repeat in range(200):
        pools = {f"p{i}": rng.normal(size=10) for i in range(5)}
        scores = {f"s{i}": rng.normal(size=10) for i in range(4)}
        wrong += min(each.corrected for each in correlate(pools, scores, permutations=2_000, seed=repeat)) <= 0.05
    assert wrong <= 20  # a binomial of 200 at .05 is above 20 once in a thousand


def test_the_smallest_visible_rho_is_where_the_corrected_test_turns() -> None:
    """Student's approximation at 30 models: rho a little above the bound has a corrected p below the level."""
    models, pairs, level = 30, 10, 0.05
    bound = smallest_visible(models, pairs, level)
    for rho, shown in ((bound + 0.01, True), (bound - 0.01, False)):
        t = rho * ((models - 2) / (1 - rho**2)) ** 0.5
        assert (2 * pairs * stats.t.sf(t, models - 2) <= level) == shown


@dataclass(frozen=True)
class Model:
    number: int


@dataclass(frozen=True)
class Result:
    """Scores of one model on one task."""

    scores: tuple[tuple[str, str, float], ...]
    policy: str = "p"


def write_model(out: Writer, config: Model) -> None:
    (out.folder / "weights").write_text(str(config.number))


def write_result(out: Writer, config: Result, checkpoint: Artifact) -> None:
    out.extra["scores"] = [{"task": task, "metric": metric, "value": value} for task, metric, value in config.scores]
    out.extra["policy"] = {"data_version": config.policy}
    (out.folder / "scores.json").write_text("{}")


MODEL, RESULT = Stage("tests.model", "1", write_model), Stage("tests.result", "1", write_result)


def correlations(config: CorrelationConfig = CONFIG, models: int = MODELS, **last: object) -> Node:
    results = []
    for number in range(models):
        model = Node(("models",), str(number), MODEL, Model(number))
        held_out = Result((("heldout/code", "bits_per_byte", CODE[number]), ("heldout/prose", "bits_per_byte", PROSE[number])))
        fields = last if number == models - 1 else {}
        solved = Result(**({"scores": (("programs", "pass", SOLVED[number]),)} | fields))  # type: ignore[arg-type]
        results += [
            Node(("results", str(number)), name, RESULT, result, {"checkpoint": model})
            for name, result in (("heldout", held_out), ("programs", solved))
        ]
    return Node(("correlations", "c"), None, CORRELATIONS, config, {"results": tuple(results)})


def test_the_artifact_names_the_pool_that_goes_with_the_score_and_the_one_that_does_not(tmp_path: Path) -> None:
    artifact = made(tmp_path, correlations())
    facts = artifact.manifest.extra["correlations"]
    assert [(each["pool"], each["score"]) for each in facts["shown"]] == [("heldout/code", "programs pass")]
    first, second = facts["pairs"]
    assert first["rho"] == pytest.approx(stats.spearmanr(CODE, SOLVED).statistic) and second["corrected"] > 0.05
    assert len(facts["models"]) == MODELS
    assert "1 of 2 pairs shown" in artifact.file("correlations.md").read_text()


def test_a_negative_is_a_result(tmp_path: Path) -> None:
    only_prose = CorrelationConfig(("heldout/prose",), (("programs", "pass"),), permutations=1_000)
    artifact = made(tmp_path, correlations(only_prose))
    assert artifact.manifest.extra["correlations"]["shown"] == []
    assert "No pool says anything about a score here" in artifact.file("correlations.md").read_text()


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (correlations(models=4), "results are of 4 checkpoints; give at least 5"),
        (correlations(policy="q"), "2 policies"),
        (correlations(scores=(("other", "pass", 1.0),)), "no pass of programs; .* it has other"),
    ],
    ids=["few", "policies", "a hole"],
)
def test_what_cannot_be_compared_is_refused(node: Node, message: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedCorrelationError, match=message):
        made(tmp_path, node)


def test_bad_arrays_are_refused() -> None:
    for pools, message in (
        ({"a": np.ones(6)}, "never varies"),
        ({"a": np.array([1, 2, 3, 4, 5, np.nan])}, "not finite"),
        ({"a": np.arange(5.0)}, r"\[5, 6\] values"),
        ({"a": np.arange(6.0), "b": np.arange(5.0)}, r"\[5, 6\] values"),
    ):
        with pytest.raises(ValueError, match=message):
            correlate(pools, {"s": np.arange(6.0)})
