"""An isoflop study whose runs are written as a law says: forecasts, verdicts, the joint test and the page are made for real."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.science.isoflop import run_study
from benchmarks.science.isoflop_again import read_held_out, read_trials
from benchmarks.science.isoflop_page import rate_doubts
from benchmarks.science.isoflop_study import (
    REHEARSAL,
    WHOLE,
    Study,
    forecasts,
    mixture,
    rate_trials,
    run_of,
    table_and_fit,
)
from benchmarks.science.isoflop_study import trials as declared_trials
from lineage.artifact.store import Store
from lineage.build.nodes import Node, ancestors_first, exists, resolve, spec_of
from lineage.build.plan import build, build_all
from lineage.writing.write import writing
from science.forecasts.scoring import interval_score
from trainer.spec.config import RunSpec
from trainer.spec.target import size_of

STUDY = replace(REHEARSAL, text_bytes=400_000, draws=50)
SIGMA = 0.004


def law(run: RunSpec, middle: RunSpec) -> float:
    """Chinchilla's form with its optimum near the middle run."""
    size, at = size_of(run), size_of(middle)
    return 2.0 + 0.7 * (size.parameters / at.parameters) ** -0.35 + 1.2 * (size.tokens / at.tokens) ** -0.35


def written(store: Store, node: Node, value: float, policy: str) -> None:
    """A result and the run that it scores, without training: both manifests as they would be."""
    for ancestor in ancestors_first([node]):
        if not exists(store, ancestor) and ancestor.stage.name in ("trainer.trial", "trainer.checkpoint", "benchmarks.heldout"):
            with writing(store, spec_of(store, ancestor)) as out:
                scores = [{"task": "python", "metric": "nats", "value": value}]
                if ancestor.stage.name == "benchmarks.heldout":
                    out.extra["scores"], out.extra["policy"] = scores, {"data_version": policy}
                    out.extra["result"] = {"scores": scores, "policy": policy, "diverged": None}
        elif not exists(store, ancestor):
            build(store, ancestor)


def write_runs(store: Store, study: Study) -> None:
    """All runs of the study as the law says, the held-out ones after their forecasts."""
    random = np.random.default_rng(1)
    middle = run_of(study, "m", 16, study.budgets[1][0], 0, 1.0)

    def loss(node: Node) -> float:
        run = next(parent for parent in node.parents() if parent.key[0] in ("sweeps", "runs")).config.run
        return law(run, middle) + float(random.normal(0, SIGMA))

    build_all(store, [mixture(study, True, 0)])
    policy = resolve(store, mixture(study, True, 0)).data_version
    for (_, _), multiplier, node in rate_trials(study):
        written(store, node, 4.0 + float(np.log(multiplier)) ** 2, policy)
    for _, node in declared_trials(study, chosen := 1.0):
        written(store, node, loss(node), policy)
    for node in table_and_fit(study, chosen):
        build(store, node)
    frozen = list(forecasts(study, chosen, policy))
    for forecast, _ in frozen:
        build(store, forecast)
    for _, verdict in frozen:
        result = verdict.inputs["result"]
        assert isinstance(result, Node)
        written(store, result, loss(result), policy)


@pytest.mark.slow
def test_a_study_ends_with_a_page_of_its_law_its_forecasts_and_how_they_did(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    write_runs(store, STUDY)
    assert run_study(tmp_path, STUDY, workers=1) == 0
    page = tmp_path / "isoflop-rehearsal.md"
    text = page.read_text()
    assert "Chosen: 1 times the rule." in text and "## Forms" in text and "| all 2 runs under the forecast's covariance" in text
    assert text.count("**Met**: ") + text.count("**Missed**: ") == 3
    assert text.count("| isoflop-rehearsal-c2e11-d32-s") == 2 and "| the last budget's lowest loss |" in text
    assert page.with_suffix(".png").stat().st_size > 10_000
    assert "forecasts/isoflop-rehearsal-c2e11-d32-s1/verdict" in (tmp_path / "isoflop-rehearsal-verdicts.md").read_text()


def test_a_rate_at_the_edge_of_its_grid_or_of_a_grid_that_diverged_is_in_doubt() -> None:
    inside, edge = {0.5: 3.0, 1.0: 2.0, 2.0: 2.5}, {0.5: 2.0, 1.0: 2.5, 2.0: None}
    assert rate_doubts({"low": inside}) == []
    (doubt,) = rate_doubts({"low": inside, "high": edge})
    assert doubt.startswith("high: the best rate 0.5 is at the edge of the grid")
    (doubt,) = rate_doubts({"high": dict.fromkeys(edge)})
    assert doubt.startswith("high: 0 of 3 rates have a loss")


def test_an_interval_is_charged_for_its_width_and_for_what_lies_outside() -> None:
    assert interval_score(1.0, 2.0, 1.5) == pytest.approx(1.0)
    for outside in (2.1, 0.9):
        assert interval_score(1.0, 2.0, outside) == pytest.approx(1.0 + 20 * 0.1)


def test_a_page_of_trials_is_read_again() -> None:
    page = "\n".join(
        [
            "| c1e12-d16-s0 | 5,968 | 5,208,576 | 1e+12 | 0.17 | 3.6724 |",
            "| c8e12-d96-s0 | 443,232 | 1,911,808 | 7.999e+12 | 0.06 | diverged |",
            "| isoflop-c2e13-d80-s1 | 2.50 | 2.4353 | 2.3255 to 2.5698 | 2.3611 | hit  |",
            "| isoflop-c4e13-d96-s0 | 5.00 | 2.2780 | 2.1428 to 2.4471 | 0.1522 | 2.2857 | hit  |",
        ]
    )
    first, diverged = read_trials(page)
    assert (first.budget, first.width, first.parameters, first.tokens, first.loss) == (1e12, 16, 5968, 5208576, 3.6724)
    assert diverged.loss is None and diverged.flops == 7.999e12
    (_, size, loss), (_, other, last) = read_held_out(WHOLE, page)
    assert size.flops == pytest.approx(2e13, rel=0.01) and loss == 2.3611
    assert other.flops == pytest.approx(4e13, rel=0.01) and last == 2.2857
