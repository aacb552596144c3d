"""Sweeps, laws and forecasts through the real graph: a run cannot start without its forecast, and eleven ways to cheat fail."""

import datetime
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from law_lab import (
    BUDGETS,
    TARGET_BATCH,
    WIDTHS,
    declared_sweep,
    declared_target,
    definitions,
    failure,
    loss_of,
    made,
    materialize,
    spec_of_size,
    store_of,
    write_trials,
)
from small_runs import small_ferry, small_run

from lineage.artifact.store import Artifact
from lineage.build.waiver_stage import waive
from lineage.trust.verdicts import quarantine
from lineage.trust.waivers import Waiver
from marin_assets.declared_table import tabled
from marin_assets.definitions import build_defs
from recipes.correlations import PoolCorrelation, correlation_node
from recipes.forecasts import Forecast, forecast, outcome, verdict
from recipes.lab import Declarations
from recipes.promotions import Promotion, promotion_node
from recipes.records.run import AtStep, Run
from recipes.records.sweep import Loss, Sweep
from recipes.runs import checkpoint, eval_tasks, mixture
from recipes.sweeps import crossed, fit, result, seed_variance, table
from resources.lab import LabResource
from science.correlation_stage import CorrelationConfig
from science.forecasts.two_steps import ScoreStep
from science.forecasts.verdict import VerdictConfig
from science.gates import Gates
from trainer.spec.config import WarmStart

FORECAST = Forecast("f", declared_sweep())
TARGET = declared_target(FORECAST)
LAW = ("sweeps/small/table", "sweeps/small/fit")
FROZEN = (*LAW, "forecasts/f")
JUDGED = ("forecasts/f/result", "forecasts/f/verdict")
TRAINED = "runs/target/training"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab whose sweep has all its results."""
    root = tmp_path_factory.mktemp("swept")
    write_trials(store_of(root), declared_sweep())
    return root


@pytest.fixture(scope="module")
def honest(swept: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, after the forecast was frozen and its target trained."""
    root = tmp_path_factory.mktemp("honest") / "root"
    shutil.copytree(swept, root)
    defs = definitions(root, TARGET)
    assert materialize(defs, *FROZEN).success
    assert materialize(defs, TRAINED).success
    return root


@pytest.fixture
def before(swept: Path, tmp_path: Path) -> Path:
    """A copy of the lab without the forecast, to cheat in."""
    return copied(swept, tmp_path)


@pytest.fixture
def after(honest: Path, tmp_path: Path) -> Path:
    """A copy of the lab with the trained target, to cheat in."""
    return copied(honest, tmp_path)


def copied(root: Path, folder: Path) -> Path:
    shutil.copytree(root, folder / "root")
    return folder / "root"


def judged(root: Path, run: Run = TARGET, of: Forecast = FORECAST) -> Artifact:
    assert materialize(definitions(root, run), *JUDGED).success
    return made(root, verdict(of, run))


@pytest.mark.slow
def test_a_law_is_fitted_a_run_forecast_trained_and_judged(after: Path) -> None:
    rows = made(after, table(FORECAST.sweep)).manifest.extra["sweep"]
    law = made(after, fit(FORECAST.sweep)).manifest.extra["fit"]
    assert rows == {"trials": 21, "missing": [], "diverged": []} and len(law["forms"]) == 3 and len(law["ahead"]) == 3
    frozen = made(after, forecast(FORECAST, TARGET))
    low, high = frozen.manifest.extra["forecast"]["intervals"]["0.99"]
    assert low < loss_of(TARGET.spec) < high
    trained = made(after, checkpoint(TARGET, TARGET.spec.num_steps))
    assert trained.input("forecast").data_version == frozen.data_version
    facts = judged(after).manifest.extra["verdict"]
    measured = made(after, outcome(FORECAST, TARGET)).manifest.extra["result"]["scores"]
    assert facts["measured"] in [s["value"] for s in measured if s["metric"] == "micro_bits_per_byte"]
    assert facts["outcome"] == "high", "the trials are of a law and the target was trained: the miss is told"
    assert materialize(definitions(after, TARGET), "forecast_verdicts").success
    (page,) = store_of(after).artifacts("forecast_verdicts")
    assert "| forecasts/f/verdict | high | " in page.file("verdicts.md").read_text()


@pytest.mark.slow
def test_a_run_cannot_start_without_its_forecast(before: Path) -> None:
    assert materialize(definitions(before, TARGET), *LAW).success
    assert "missing: forecasts/f" in failure(materialize(definitions(before, TARGET), TRAINED))


@pytest.mark.slow
def test_a_table_names_what_is_missing_and_makes_do_where_it_may(before: Path) -> None:
    """Missing trials are named in the error; a sweep that allows some has a table that names them."""
    store, sweep = store_of(before), declared_sweep()
    gone = [sweep.trials[0], sweep.trials[4]]
    for run in gone:
        store.delete(made(before, result(run)))
    message = failure(materialize(definitions(before), LAW[0]))
    assert all(run.name in message for run in gone) and "2 of 21 trials have no result, at most 0" in message
    lenient = declared_sweep(max_missing=2)
    assert materialize(definitions(before, sweep=lenient), LAW[0]).success
    (made_table,) = store.artifacts("sweeps/small/table")
    assert made_table.manifest.extra["sweep"]["missing"] == sorted(run.name for run in gone)
    with pytest.raises(ValueError, match="may lack 2 trials"):
        Forecast("f", lenient)


def test_a_run_without_a_forecast_keeps_its_identity_and_one_with_it_has_another() -> None:
    plain, bound = (checkpoint(declared_target(of), TARGET.spec.num_steps) for of in (None, FORECAST))
    assert set(bound.inputs) - set(plain.inputs) == {"forecast"} and plain.config == bound.config


def refused(root: Path, run: Run, message: str, sweep: Sweep | None = None, forecasts: str = "forecasts/f") -> None:
    keys = (f"sweeps/{sweep.name}/table", f"sweeps/{sweep.name}/fit", forecasts) if sweep is not None else (forecasts,)
    assert message in failure(materialize(definitions(root, run, sweep=sweep), *keys))


@pytest.mark.slow
def test_cheat_1_an_edited_forecast_is_refused_by_the_trainer(before: Path) -> None:
    assert materialize(definitions(before, TARGET), *FROZEN).success
    path = made(before, forecast(FORECAST, TARGET)).file("forecast.json")
    path.chmod(0o644)
    path.write_text(path.read_text().replace('"seed": 7', '"seed": 8'))  # of the same size
    assert "has digest" in failure(materialize(definitions(before, TARGET), TRAINED))


@pytest.mark.slow
def test_cheat_2_a_law_that_is_fitted_again_after_the_run_is_refused(after: Path) -> None:
    sweep = declared_sweep(seed=1)
    refused(after, declared_target(Forecast("f", sweep)), "trained already", sweep)


@pytest.mark.slow
def test_cheat_3_another_metric_after_the_run_is_refused(after: Path) -> None:
    sweep = declared_sweep(loss=Loss(metric="macro_bits_per_byte"))
    run = declared_target(Forecast("f", sweep))
    message = failure(materialize(definitions(after, run, sweep=sweep), *LAW))
    assert "has no score heldout macro_bits_per_byte" in message, "these trials were not scored by it"
    refused(after, declared_target(replace(FORECAST, beyond="another metric")), "trained already")


@pytest.mark.slow
def test_cheat_4_another_seed_of_a_trained_run_is_refused(after: Path) -> None:
    refused(after, declared_target(FORECAST, seed=8), "trained already")


@pytest.mark.slow
def test_cheats_5_and_6_a_run_that_was_launched_first_is_refused_also_under_another_name(before: Path) -> None:
    assert materialize(definitions(before, declared_target(None, name="other")), "runs/other/training").success
    assert materialize(definitions(before, TARGET), *LAW).success
    refused(before, TARGET, "trained already")
    refused(before, declared_target(FORECAST, name="other"), "trained already")


@pytest.mark.slow
def test_cheat_7_a_run_under_a_waiver_is_void_and_a_missing_forecast_cannot_be_waived(before: Path) -> None:
    store = store_of(before)
    assert materialize(definitions(before, TARGET), *FROZEN).success
    expires = str(datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(1))
    quarantine(made(before, mixture(TARGET)), "doubtful", "ada")
    assert "quarantined" in failure(materialize(definitions(before, TARGET), TRAINED))
    waive(store, Waiver("quarantined", "mixture/*", "ada", "I want it", expires))
    assert materialize(definitions(before, TARGET), TRAINED).success
    assert "waivers" in judged(before).manifest.extra["verdict"]["why"]
    with pytest.raises(ValueError, match="others must be mended"):
        Waiver("missing", "forecasts/f", "ada", "I want it", expires)  # type: ignore[arg-type]


@pytest.mark.slow
def test_cheat_8_a_forecast_that_is_deleted_and_made_again_is_refused(after: Path) -> None:
    store_of(after).delete(made(after, forecast(FORECAST, TARGET)))
    refused(after, TARGET, "trained already")


@pytest.mark.slow
def test_cheat_9_a_result_of_the_target_among_the_trials_is_refused(before: Path) -> None:
    """The target itself as a trial of the sweep, under a name and a seed of its own."""
    base = declared_sweep()
    more = [spec_of_size(f"leak-d{width}", width, 2.5 * BUDGETS[-1], seed=3, batch=TARGET_BATCH) for width in WIDTHS]
    trials = (*base.trials, *(replace(base.trials[0], spec=spec) for spec in more))
    sweep = Sweep("leaky", trials, budgets=(*base.budgets, *[2.5 * BUDGETS[-1]] * len(more)), law=base.law)
    write_trials(store_of(before), sweep)
    of = Forecast("f", sweep)
    defs = definitions(before, declared_target(of), sweep=sweep)
    assert materialize(defs, "sweeps/leaky/table", "sweeps/leaky/fit").success
    refused(before, declared_target(of), "trained already", sweep)


@pytest.mark.slow
def test_cheat_10_a_second_forecast_under_another_name_must_be_named(before: Path) -> None:
    assert materialize(definitions(before, TARGET), *FROZEN).success
    refused(before, declared_target(replace(FORECAST, name="g")), "another forecast of this run", forecasts="forecasts/g")
    named = declared_target(replace(FORECAST, name="g", siblings=("f",)))
    assert materialize(definitions(before, named), "forecasts/g").success


@pytest.mark.slow
def test_cheat_11_a_branch_of_another_checkpoint_than_the_forecast_one_is_refused(before: Path) -> None:
    one, other = (declared_target(None, name, seed) for name, seed in (("one", 3), ("other", 4)))
    of_one, of_other = (branch(run) for run in (one, other))
    for run in (one, other):
        assert materialize(definitions(before, run), f"runs/{run.name}/training").success
    assert materialize(definitions(before, one, of_one), *FROZEN).success
    frozen = made(before, forecast(FORECAST, of_one)).manifest.extra["forecast"]["target"]
    assert frozen["start"] == made(before, checkpoint(one, one.spec.num_steps)).data_version
    assert "stale: forecasts/f" in failure(materialize(definitions(before, other, of_other), TRAINED))
    assert materialize(definitions(before, one, of_one), TRAINED).success


def branch(first: Run) -> Run:
    """The target as a branch of the last step of another run."""
    run = declared_target(FORECAST)
    return replace(run, spec=replace(run.spec, start=WarmStart()), start=AtStep(first, first.spec.num_steps))


def pairs_sweep(name: str) -> Sweep:
    """A run of the middle width at each budget."""
    base = declared_sweep(seeds=1)
    chosen = [index for index, run in enumerate(base.trials) if f"-d{WIDTHS[2]}-" in run.name]
    return replace(base, name=name, trials=tuple(base.trials[i] for i in chosen), budgets=BUDGETS, law=None)


def promotion(variant: Sweep) -> Promotion:
    names = [run.name for run in pairs_sweep("baseline").trials]
    gates = Gates(1.5, tuple(names[:1]), tuple(names[1:]), (1e9,))
    return Promotion("p", declared_sweep(), pairs_sweep("baseline"), variant, gates)


@pytest.mark.parametrize(("gain", "verdict"), [(0.3, "promote"), (-0.1, "bench")], ids=["better", "worse"])
def test_a_variant_is_judged_by_two_gates_in_the_graph(gain: float, verdict: str, before: Path) -> None:
    variant = pairs_sweep("variant")
    of = promotion(variant)
    defs = definitions(before, others=(of.baseline, variant), promotions=(of,))
    assert not materialize(defs, "promotions/p").success, "its results are not there yet"
    write_trials(store_of(before), of.baseline)
    write_trials(store_of(before), variant, gain)
    done = materialize(defs, *LAW, "promotions/p")
    assert done.success
    (event,) = (each for each in done.get_asset_materialization_events() if each.asset_key.path == ["promotions", "p"])
    assert event.materialization.metadata["verdict"].text == verdict
    assert {"speed_ups", "projections", "speed_up_by_size", "page"} <= event.materialization.metadata.keys()
    inputs = {each.name for each in made(before, promotion_node(of)).spec.inputs}
    assert {name.split("[")[0].split(".")[0] for name in inputs} >= {"fit"} and len(inputs) == 1 + 2 * len(BUDGETS)


def test_a_promotion_that_cannot_be_judged_is_refused() -> None:
    of = promotion(pairs_sweep("variant"))
    shorter = replace(of.variant, trials=of.variant.trials[:-1], budgets=BUDGETS[:-1])
    for changes, message in (
        ({"variant": shorter}, "baseline has 3 trials, variant has 2; pair them"),
        ({"law": of.baseline}, "sweep baseline declares no law"),
        ({"variant": replace(of.variant, loss=Loss("heldout", "loss"))}, "compare 2 different losses"),
        ({"gates": replace(of.gates, first=("nope",))}, "a gate names nope"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(of, **changes)


def test_the_seed_variance_of_a_crossed_sweep_is_an_asset(before: Path) -> None:
    run = replace(declared_target(None, "base"), spec=spec_of_size("base", WIDTHS[0], BUDGETS[0]))
    sweep = Sweep("seeds", crossed(run, (0, 1), (3, 4)), crossed_seeds=True)
    assert [trial.name for trial in sweep.trials] == ["base-i0-o3", "base-i0-o4", "base-i1-o3", "base-i1-o4"]
    write_trials(store_of(before), sweep)
    assert materialize(definitions(before, others=(sweep,)), "sweeps/seeds/seed_variance").success
    (row,) = made(before, seed_variance(sweep)).manifest.extra["seeds"]["budgets"]
    losses = [made(before, result(trial)).manifest.extra["result"]["scores"][0]["value"] for trial in sweep.trials]
    assert row["runs"] == 4 and row["sigma"] <= 2 * np.std(losses)


def test_a_score_is_forecast_from_evaluations_of_declared_checkpoints() -> None:
    """The run's own evaluation judges it, so there is no result of the forecast's own."""
    runs = tuple(small_run(f"m{n}") for n in range(6))
    step = ScoreStep(f"{eval_tasks(runs[0])[0].name}", "accuracy", floor=0.25)
    of = Forecast("f", declared_sweep(), score=step, points=tuple((run, run.spec.num_steps) for run in runs))
    target = declared_target(of)
    table_of, declared = tabled(Declarations(runs=(*runs, target), sweeps=(declared_sweep(),)))
    assert declared.broken == () and len(declared.runs) == 7
    assert ("forecasts", "f", "verdict") in table_of and ("forecasts", "f", "result") not in table_of
    scores = forecast(of, target).inputs["scores"]
    assert isinstance(scores, tuple) and {node.key for node in scores} == {("runs", run.name, "eval_result") for run in runs}
    assert outcome(of, target).key == ("runs", "target", "eval_result")
    verdict_config = verdict(of, target).config
    assert isinstance(verdict_config, VerdictConfig) and (verdict_config.task, verdict_config.metric) == of.judged_by
    assert set(checkpoint(target, target.spec.num_steps).inputs) == {"mixture", "forecast"}
    build_defs(LabResource(root="unused"), ferry=small_ferry(), declared=declared)
    with pytest.raises(ValueError, match="the policy of m0 has no task nope; it has"):
        Forecast("f", declared_sweep(), score=replace(step, task="nope"), points=of.points)
    with pytest.raises(ValueError, match="0 checkpoints are given; a score needs both"):
        Forecast("f", declared_sweep(), score=step)


def test_correlations_of_declared_checkpoints_are_an_asset() -> None:
    runs = tuple(small_run(f"run{number}") for number in range(5))
    task = next(task.name for task in eval_tasks(runs[0]) if task.name != "heldout")
    compared = CorrelationConfig(("heldout/prose",), ((task, "gold_bits_per_byte"),))
    of = PoolCorrelation("pools", tuple((run, run.spec.num_steps) for run in runs), compared)
    _, declared = tabled(Declarations(runs=runs, correlations=(of,)))
    assert declared.broken == () and declared.correlations == (of,)
    results = correlation_node(of).inputs["results"]
    assert isinstance(results, tuple)
    assert {node.key for node in results} == {("runs", run.name, "eval_result") for run in runs} and len(results) == 10
    with pytest.raises(ValueError, match="has no task nope; it has"):
        replace(of, compared=replace(compared, scores=(("nope", "accuracy"),)))
