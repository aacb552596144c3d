"""A forecast binds the checkpoint that its target starts from, and a target has one forecast, of either kind."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from ladder_lab import TARGET, checkpoint, ladder_forecast, mixture, rung, written
from scored import SCORE, Score

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve, spec_of
from lineage.jobs.job import Job
from science.forecasts.freeze import RefusedForecastError
from science.forecasts.verdict import Judged, VerdictConfig, judge
from trainer.train import train

FROZEN, ELSEWHERE = rung(32), rung(32, seed=5)


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store of all that the forecast is made from."""
    store = Store(str(tmp_path_factory.mktemp("climbed")))
    for node in ladder_forecast().parents():
        written(store, node)
    return store


@pytest.fixture
def store(climbed: Store, tmp_path: Path) -> Store:
    """A copy of it, in which nothing is frozen."""
    shutil.copytree(climbed.root, tmp_path / "root")
    return Store(str(tmp_path / "root"))


def target(forecast: Node, start: Node) -> Node:
    return checkpoint(TARGET, forecast=forecast, start=start)


def verdict(store: Store, forecast: Node, start: Node, loss: float = 2.5) -> Judged:
    result = Node(("results", "target"), None, SCORE, Score(loss), {"trial": target(forecast, start)})
    return judge(VerdictConfig("held-out", "loss"), written(store, forecast), written(store, result))


def test_a_target_that_starts_from_another_checkpoint_is_refused_by_the_trainer(store: Store) -> None:
    node = target(ladder_forecast(FROZEN), ELSEWHERE)
    inputs: dict[str, Artifact] = {name: written(store, parent) for name, parent in node.inputs.items()}  # type: ignore[arg-type]
    own, other = inputs["start"].data_version, written(store, FROZEN).data_version
    with pytest.raises(ValueError, match=f"forecasts the start {other}, this run's is {own}; make a forecast of this run"):
        train(Job(store, spec_of(store, node), inputs, "f", ""))


def test_a_run_that_was_warm_started_elsewhere_is_void(store: Store) -> None:
    """A checkpoint that did not pass the trainer's check, as those before it."""
    forecast = ladder_forecast(FROZEN)
    assert verdict(store, forecast, FROZEN).outcome == "hit"
    judged = verdict(store, forecast, ELSEWHERE)
    own, other = (resolve(store, each).data_version for each in (ELSEWHERE, FROZEN))
    said = f"warm-started elsewhere: the run starts from {own}, the forecast is of a start from {other}"
    assert (judged.outcome, judged.why, judged.smallest_visible) == ("void", said, None)


def test_a_forecast_needs_the_start_that_its_target_declares(store: Store) -> None:
    fresh = replace(TARGET, start=None)
    with pytest.raises(RefusedForecastError, match="target declares no start, the forecast has one"):
        written(store, ladder_forecast(target=fresh))


def test_a_second_ladder_of_one_target_must_name_the_first(store: Store) -> None:
    first = written(store, ladder_forecast()).manifest.extra["forecast"]
    with pytest.raises(RefusedForecastError, match="another forecast of this run and metric, ladder, which `siblings`"):
        written(store, ladder_forecast(name="again", asymptote=2.1))
    named = written(store, ladder_forecast(name="again", asymptote=2.1, siblings=("ladder",)))
    assert named.manifest.extra["forecast"]["target"] == first["target"]
    with pytest.raises(RefusedForecastError, match="another forecast of this run and metric, again, ladder"):
        written(store, ladder_forecast(name="third", asymptote=2.05))
    assert written(store, ladder_forecast(start=ELSEWHERE, name="another_target")).spec.key[-1] == "another_target"
    assert written(store, ladder_forecast(name="another_policy", policy="q")).spec.key[-1] == "another_policy"


def test_a_result_of_the_target_above_its_start_is_refused(store: Store) -> None:
    trained = checkpoint(replace(TARGET, name="before"), start=FROZEN, mixture=mixture(2))
    after = checkpoint(replace(TARGET, name="after", batch_size=8), start=trained)
    with pytest.raises(RefusedForecastError, match="trained already"):
        written(store, ladder_forecast(after))


def test_the_smallest_visible_error_is_where_the_verdict_turns(store: Store) -> None:
    forecast = ladder_forecast()
    point = written(store, forecast).manifest.extra["forecast"]["point"]
    seen = verdict(store, forecast, FROZEN).smallest_visible
    assert seen is not None and seen > 0
    shares = {0.99: "hit", 1.01: "high", -0.99: "hit", -1.01: "low"}
    assert {share: verdict(store, forecast, FROZEN, point + share * seen).outcome for share in shares} == shares
