"""A forecast is frozen before its run, and every way to cheat is refused or void."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from ladder_lab import TARGET as BRANCH
from ladder_lab import ladder_forecast, mixture, rung, written
from simulated import sweep, trials

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, ancestors_first, resolve, spec_of
from lineage.build.plan import build, build_all
from lineage.config import to_jsonable
from lineage.jobs.job import Job
from lineage.stage import Stage
from lineage.writing.write import writing
from lineage.writing.writer import Writer
from science.fit_sweep import FitConfig
from science.forecasts.board import build_board
from science.forecasts.fit_stage import FIT
from science.forecasts.freeze import FORECAST, ForecastConfig, RefusedForecastError
from science.forecasts.table import TABLE, Expected, TableConfig, read_table, write_table
from science.forecasts.two_steps import ScoreStep
from science.forecasts.verdict import VERDICT, Judged, VerdictConfig, judge, write_page
from trainer.spec.config import RunSpec
from trainer.spec.stage import CHECKPOINT, CheckpointConfig, step_partition
from trainer.train import train

TARGET = replace(BRANCH, start=None)
METHOD = FitConfig(calibration_draws=50)
pytestmark = pytest.mark.usefixtures("quick_compilation")


@dataclass(frozen=True)
class Sweep:
    """A table of simulated trials, of which some may rest on a run."""

    seed: int = 0


def simulated(out: Writer, config: Sweep, **leaked: Artifact) -> None:
    write_table(out, trials(sweep(seed=config.seed)), [])


@dataclass(frozen=True)
class Scored:
    """A score of a checkpoint by a policy."""

    value: float = 3.0
    policy: str = "p"
    waived: bool = False


def scored(out: Writer, config: Scored, checkpoint: Artifact) -> None:
    out.extra["scores"] = [{"task": "held-out", "metric": "loss", "value": config.value}]
    out.extra["policy"] = {"data_version": config.policy}
    if config.waived:
        out.extra["waivers"] = [{"who": "somebody"}]
    (out.folder / "scores.json").write_text(json.dumps(config.value))


SWEEP, SCORED = Stage("tests.sweep", "1", simulated), Stage("tests.scored", "1", scored)


def forecast_node(target: RunSpec = TARGET, data: Node | None = None, table: Node | None = None, **changed: str) -> Node:
    made = table or Node(("sweeps", "s", "table"), None, SWEEP, Sweep())
    fit = Node(("sweeps", "s", "fit"), None, FIT, METHOD, {"table": made})
    fields = {"task": "held-out", "metric": "loss", "unit": "nats", "policy": "p", "method": METHOD} | changed
    config = ForecastConfig(target, **fields)  # type: ignore[arg-type]
    return Node(("forecasts", "f"), None, FORECAST, config, {"table": made, "fit": fit, "mixture": data or mixture()})


def run_node(forecast: Node | None, run: RunSpec = TARGET, step: int = 4, data: Node | None = None) -> Node:
    inputs = {"mixture": data or mixture()} | ({} if forecast is None else {"forecast": forecast})
    return Node(("runs", run.name, "checkpoint"), step_partition(step), CHECKPOINT, CheckpointConfig(run, step), inputs)


def made(store: Store, node: Node) -> Artifact:
    for ancestor in ancestors_first([node]):
        if ancestor.stage.job is None:
            build(store, ancestor)
        else:
            trained(store, ancestor)
    return resolve(store, node)


def trained(store: Store, node: Node) -> Artifact:
    build_all(store, node.parents())
    inputs = {name: resolve(store, parent) for name, parent in node.inputs.items() if isinstance(parent, Node)}
    return train(Job(store, spec_of(store, node), dict(inputs), "f", ""))


def verdict(store: Store, run: Node, scores: Scored | None = None, config: VerdictConfig | None = None) -> Judged:
    result = Node(("runs", "target", "result"), None, SCORED, scores or Scored(), {"checkpoint": run})
    forecast = resolve(store, forecast_node())
    return judge(config or VerdictConfig("held-out", "loss"), forecast, made(store, result))


@pytest.fixture(scope="module")
def honest(fitted: Store, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store in which a forecast was frozen and its run trained."""
    store = Store(str(shutil.copytree(fitted.root, tmp_path_factory.mktemp("honest") / "store")))
    made(store, run_node(forecast_node()))
    return store


@pytest.fixture
def after(honest: Store, tmp_path: Path) -> Store:
    """A copy of it to cheat in."""
    shutil.copytree(honest.root, tmp_path / "root")
    return Store(str(tmp_path / "root"))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store of what a forecast is made from."""
    store = Store(str(tmp_path_factory.mktemp("fitted")))
    build_all(store, forecast_node().parents())
    return store


@pytest.fixture
def before(fitted: Store, tmp_path: Path) -> Store:
    """A copy of it, in which nothing was frozen or trained."""
    shutil.copytree(fitted.root, tmp_path / "before")
    return Store(str(tmp_path / "before"))


def test_a_verdict_is_hit_low_or_high_in_three_units(after: Store) -> None:
    forecast = made(after, forecast_node()).manifest.extra["forecast"]
    low, high = forecast["intervals"]["0.9"]
    by_value = {
        value: verdict(after, run_node(forecast_node()), Scored(value)) for value in (low - 0.1, forecast["point"], high + 0.1)
    }
    assert [judged.outcome for judged in by_value.values()] == ["low", "hit", "high"]
    worst = by_value[high + 0.1]
    assert worst.error == pytest.approx(high + 0.1 - forecast["point"]) and worst.sigmas == pytest.approx(
        worst.error / forecast["noise"]
    )
    assert worst.smallest_visible == pytest.approx(min(forecast["point"] - low, high - forecast["point"]))
    assert forecast["not_provable"] and set(forecast["intervals"]) == {"0.5", "0.8", "0.9", "0.99"} and forecast["fit"]


def test_the_forecast_is_part_of_the_identity_of_its_run(after: Store) -> None:
    with_it, without = (spec_of(after, run_node(forecast)) for forecast in (forecast_node(), None))
    assert with_it.version != without.version


def test_an_edited_file_is_refused(before: Store) -> None:
    forecast = made(before, forecast_node())
    path = forecast.file("forecast.json")
    path.chmod(0o644)
    path.write_text(path.read_text().replace('"point"', '"point" '))
    with pytest.raises(ValueError, match="has digest"):
        trained(before, run_node(forecast_node()))
    with pytest.raises(ValueError, match="has digest"):
        judge(VerdictConfig("held-out", "loss"), forecast, forecast)


def test_a_forecast_that_is_made_again_after_the_run_is_refused(after: Store) -> None:
    other = replace(forecast_node(), config=replace(forecast_node().config, siblings=("late",)))  # type: ignore[arg-type]
    with pytest.raises(RefusedForecastError, match="trained already"):
        made(after, other)


def test_another_metric_is_void(after: Store) -> None:
    assert (
        "not held-out accuracy" in verdict(after, run_node(forecast_node()), config=VerdictConfig("held-out", "accuracy")).why
    )


@pytest.mark.parametrize("changed", [{"seed": 9}, {"batch_size": 8}], ids=["seed", "recipe"])
def test_another_seed_or_recipe_is_refused(before: Store, changed: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="forecasts the run"):
        trained(before, run_node(forecast_node(), replace(TARGET, **changed)))


def test_another_mixture_is_refused(before: Store) -> None:
    with pytest.raises(ValueError, match="forecasts the mixture"):
        trained(before, run_node(forecast_node(), data=mixture(2)))


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("target", 0),
        ("renamed", 5),
        pytest.param("target", 5, marks=pytest.mark.slow),
        pytest.param("renamed", 0, marks=pytest.mark.slow),
    ],
)
def test_a_run_that_was_launched_first_is_refused_under_any_name_and_seed(before: Store, name: str, seed: int) -> None:
    made(before, run_node(None, replace(TARGET, name=name, seed=seed)))
    with pytest.raises(RefusedForecastError, match="trained already"):
        made(before, forecast_node())


def test_a_result_of_the_target_among_the_ancestors_is_refused_whatever_its_data(tmp_path: Path) -> None:
    empty = Store(str(tmp_path))  # a table of the same numbers and other ancestors would be found in `before`
    run = run_node(None, data=mixture(2))
    table = Node(("sweeps", "s", "table"), None, SWEEP, Sweep(), {"leaked": run})
    with pytest.raises(RefusedForecastError, match="trained already"):
        made(empty, forecast_node(table=table))


def test_a_law_too_binds_the_start_and_a_ladder_of_the_same_branch_is_its_sibling(before: Store) -> None:
    """One forecast of a branch, whose start it did not name, held for branches of two checkpoints."""
    law = forecast_node(BRANCH)
    with pytest.raises(RefusedForecastError, match="target declares a start, the forecast has none"):
        written(before, law)
    law = replace(law, inputs=law.inputs | {"start": rung(32)})
    target = written(before, law).manifest.extra["forecast"]["target"]
    assert target["start"] == resolve(before, rung(32)).data_version
    for name in ("ladder", "f"):
        with pytest.raises(RefusedForecastError, match="another forecast of this run and metric, f, which"):
            written(before, ladder_forecast(name=name))
    written(before, ladder_forecast(siblings=("f",)))
    with pytest.raises(RefusedForecastError, match="another forecast of this run and metric, f, ladder, which"):
        written(before, replace(law, key=("forecasts", "g")))


def test_a_run_without_the_forecast_is_void(before: Store) -> None:
    made(before, forecast_node())
    assert "no forecast" in verdict(before, run_node(None)).why


def test_a_waived_run_is_void(after: Store) -> None:
    assert "waivers" in verdict(after, run_node(forecast_node()), Scored(waived=True)).why


def test_a_run_that_is_judged_early_is_void(after: Store) -> None:
    assert "step 2 of 4" in verdict(after, run_node(forecast_node(), step=2)).why


def test_another_evaluation_policy_is_void_and_cannot_be_forecast(after: Store) -> None:
    assert "policy q" in verdict(after, run_node(forecast_node()), Scored(policy="q")).why


def test_the_trials_policy_is_the_forecasts(before: Store) -> None:
    with pytest.raises(RefusedForecastError, match="policy is q"):
        made(before, forecast_node(policy="q"))


def test_deleting_a_forecast_and_making_another_is_refused(after: Store) -> None:
    after.delete(resolve(after, forecast_node()))
    with pytest.raises(RefusedForecastError, match="trained already"):
        made(after, forecast_node())


def test_a_target_too_far_away_is_refused_and_a_reason_is_kept(before: Store) -> None:
    far = replace(TARGET, model=replace(TARGET.model, hidden_dim=512, intermediate_dim=2048), num_steps=1_000_000_000)
    with pytest.raises(RefusedForecastError, match="times the largest fitted budget"):
        made(before, forecast_node(far))
    assert made(before, forecast_node(far, beyond="a dare")).manifest.extra["forecast"]["beyond"] == "a dare"


def test_all_verdicts_stand_on_one_page(after: Store, tmp_path: Path) -> None:
    result = Node(("runs", "target", "result"), None, SCORED, Scored(99.0), {"checkpoint": run_node(forecast_node())})
    config = VerdictConfig("held-out", "loss")
    node = Node(("forecasts", "f", "verdict"), None, VERDICT, config, {"forecast": forecast_node(), "result": result})
    made(after, node)
    write_page(
        tmp_path / "page.md", [artifact for artifact in after.artifacts("forecasts") if artifact.spec.stage == VERDICT.name]
    )
    (row,) = (line for line in (tmp_path / "page.md").read_text().splitlines() if line.startswith("| forecasts/f/verdict"))
    facts = resolve(after, node).manifest.extra["verdict"]
    assert [cell.strip() for cell in row.split("|")][2] == "high" and f"| {facts['smallest_visible']:.4f} |" in row
    old = {name: value for name, value in facts.items() if name != "smallest_visible"}
    with writing(after, replace(spec_of(after, node), stage_version="1")) as out:
        out.extra["verdict"] = old
    (shown,) = build_board(after)[0].manifest.extra["verdicts"]["rows"]
    assert shown == facts | {"verdict": "forecasts/f/verdict"}, "of one forecast and result the last version's verdict stands"
    after.delete(resolve(after, node))
    (shown,) = build_board(after)[0].manifest.extra["verdicts"]["rows"]
    assert shown == old | {"verdict": "forecasts/f/verdict", "smallest_visible": None}


@dataclass(frozen=True)
class Trained:
    """Of a trial: its loss, or why it diverged."""

    loss: float | None
    why: str | None = None


def record(out: Writer, config: Trained, trial: Artifact) -> None:
    scores = [] if config.loss is None else [{"task": "held-out", "metric": "loss", "value": config.loss}]
    out.extra["result"] = {"scores": scores, "policy": "p", "diverged": config.why}


def test_a_table_reads_specs_from_trials_and_losses_from_results(tmp_path: Path) -> None:
    trained, recorded = Stage("tests.trained", "1", lambda out, config, mixture: None), Stage("tests.record", "1", record)
    results = []
    for name, stage_config in (("a", Trained(3.5)), ("b", Trained(None, "loss is nan"))):
        run = replace(TARGET, name=name)
        trial = Node(("sweeps", "s", "trial"), name, trained, CheckpointConfig(run, 4), {"mixture": mixture()})
        results.append(Node(("sweeps", "s", "result"), name, recorded, stage_config, {"trial": trial}))
    config = TableConfig(tuple(Expected(name, 1e6) for name in "abc"), "held-out", "loss", max_missing=1)
    store = Store(str(tmp_path))
    table = made(store, Node(("sweeps", "s", "table"), None, TABLE, config, {"results": tuple(results)}))
    first, second = read_table(table)
    assert (first.loss, first.status, second.loss, second.status) == (3.5, "done", None, "diverged")
    assert first.tokens == 4 * 4 * 16 and first.parameters < TARGET.model.num_parameters and first.vocabulary == "tok"
    assert first.epochs == pytest.approx(256 / 8000) and table.manifest.extra["sweep"]["missing"] == ["c"]
    strict = replace(config, max_missing=0)
    with pytest.raises(ValueError, match=r"1 of 3 trials are missing, at most 0 may be: c"):
        made(store, Node(("sweeps", "s", "table"), None, TABLE, strict, {"results": tuple(results)}))


@dataclass(frozen=True)
class Pair:
    """A loss and a score of one checkpoint."""

    loss: float
    share: float
    policy: str = "p2"


def pretend(out: Writer, config: Pair) -> None:
    (out.folder / "weights").write_text(str(config.loss))


def pair_scored(out: Writer, config: Pair, checkpoint: Artifact) -> None:
    values = {("held-out", "loss"): config.loss, ("quiz", "accuracy"): config.share}
    out.extra["scores"] = [{"task": task, "metric": metric, "value": value} for (task, metric), value in values.items()]
    out.extra["policy"] = {"data_version": config.policy}
    (out.folder / "scores.json").write_text("{}")


PRETENDED, PAIR = Stage("tests.pretended_run", "1", pretend), Stage("tests.pair", "1", pair_scored)
STEP = ScoreStep("quiz", "accuracy", floor=0.25)


FORECAST_LOSS = 38.4
"""What the law of the simulated sweep says of the target, which is far smaller than its trials."""


def quiz(loss: float, middle: float = FORECAST_LOSS) -> float:
    """The score of a loss: half way between guessing and all right at the middle."""
    return 0.25 + 0.75 / (1 + np.exp(3 * (loss - middle)))


def point(name: str, pair: Pair, checkpoint: Node | None = None) -> Node:
    other = checkpoint or Node(("runs", name, "pretended"), None, PRETENDED, pair)
    return Node(("runs", name, "pair"), None, PAIR, pair, {"checkpoint": other})


def points(apart: Sequence[float] = (-0.5, -0.3, -0.1, 0.1, 0.3, 0.5, 0.7), middle: float = FORECAST_LOSS) -> tuple[Node, ...]:
    """Checkpoints whose losses are so far from the middle of the curve."""
    random = np.random.default_rng(0)
    pairs = [Pair(middle + off, float(quiz(middle + off, middle) + random.normal(0, 0.01))) for off in apart]
    return tuple(point(f"p{number}", pair) for number, pair in enumerate(pairs))


def two_steps(scores: tuple[Node, ...] | None = None, step: ScoreStep | None = STEP, name: str = "f", **changed: str) -> Node:
    node = forecast_node(**changed)
    config = replace(cast(ForecastConfig, node.config), score=step)
    return replace(node, key=("forecasts", name), config=config, inputs=node.inputs | {"scores": scores or points()})


def test_a_score_is_forecast_in_two_steps_frozen_and_judged(before: Store) -> None:
    frozen = made(before, two_steps())
    facts = frozen.manifest.extra["forecast"]
    loss = facts["steps"]["loss"]
    assert facts["metric"] == {"task": "quiz", "name": "accuracy", "unit": "share", "policy": "p2"}
    assert facts["point"] == pytest.approx(quiz(loss["point"]), abs=0.02) and len(facts["steps"]["curve"]["checkpoints"]) == 7
    low, high = facts["intervals"]["0.9"]
    assert low < facts["point"] < high
    run = run_node(two_steps())
    trained_run = made(before, run)
    assert trained_run.input("forecast").data_version == frozen.data_version
    config, outcomes = VerdictConfig("quiz", "accuracy"), {}
    for share in (facts["point"], high + 0.05, low - 0.05):
        result = made(before, point("target", Pair(9.0, share), run))
        outcomes[share] = judge(config, frozen, result).outcome
    assert list(outcomes.values()) == ["hit", "high", "low"]
    other = judge(config, frozen, made(before, point("target", Pair(9.0, facts["point"], "p3"), run)))
    assert other.outcome == "void" and "scored by the policy p3, not p2" in other.why
    swapped = judge(VerdictConfig("held-out", "loss"), frozen, made(before, point("target", Pair(9.0, 0.5), run)))
    assert swapped.outcome == "void" and swapped.why.startswith("it forecasts quiz accuracy")


@dataclass(frozen=True)
class Sampled:
    """A loss, and pass@k of a checkpoint whose problems have chances about the curve of `quiz`."""

    loss: float


def sampled_scores(out: Writer, config: Sampled, checkpoint: Artifact) -> None:
    random = np.random.default_rng(int(1000 * config.loss))
    chance = 1 / (1 + np.exp(3 * (config.loss - FORECAST_LOSS) + random.normal(0, 1, 500)))
    values = {("held-out", "loss"): config.loss} | {("code", f"pass_at_{k}"): (1 - (1 - chance) ** k).mean() for k in (1, 4, 8)}
    out.extra["scores"] = [{"task": task, "metric": metric, "value": value} for (task, metric), value in values.items()]
    out.extra["policy"] = {"data_version": "p2"}
    (out.folder / "scores.json").write_text("{}")


def test_pass_at_k_is_forecast_by_one_curve_for_all_k(before: Store) -> None:
    stage, nodes = Stage("tests.sampled", "1", sampled_scores), []
    for number, apart in enumerate((-0.6, -0.4, -0.2, 0.2, 0.4, 0.6, 0.8)):
        run = Node(("runs", f"s{number}", "pretended"), None, PRETENDED, Pair(FORECAST_LOSS + apart, 0.0))
        nodes.append(Node(("runs", f"s{number}", "scores"), None, stage, Sampled(FORECAST_LOSS + apart), {"checkpoint": run}))
    step = ScoreStep("code", "pass_at_8", form="pass_at_k")
    facts = made(before, two_steps(tuple(nodes), step, name="pass")).manifest.extra["forecast"]
    curve = facts["steps"]["curve"]
    assert facts["metric"]["name"] == "pass_at_8" and curve["form"] == "pass_at_k" and len(curve["parameters"]) == 3
    apart, hardness = facts["steps"]["loss"]["point"] - FORECAST_LOSS, np.random.default_rng(1).normal(0, 1, 9999)
    chance = 1 / (1 + np.exp(3 * apart + hardness))
    assert facts["point"] == pytest.approx((1 - (1 - chance) ** 8).mean(), abs=0.02)
    assert "form" not in made(before, two_steps(name="again", siblings=("f",))).manifest.extra["forecast"]["steps"]["curve"]


def test_a_forecast_of_a_loss_keeps_its_identity_beside_the_second_step() -> None:
    assert "score" not in to_jsonable(forecast_node().config) and "score" in to_jsonable(two_steps().config)


def test_a_score_forecast_from_its_own_target_or_without_a_curve_is_refused(after: Store) -> None:
    own = point("target", Pair(4.4, 0.5), run_node(forecast_node()))
    with pytest.raises(RefusedForecastError, match="the target's recipe was trained already"):
        made(after, two_steps((*points(), own), name="g"))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (lambda: two_steps(points((-0.5, 0.1, 0.5))), "3 checkpoints have a loss and a score; at least 6"),
        (lambda: two_steps(points((3.5, 3.6, 3.7, 3.8, 3.9, 4.0))), "quiz accuracy does not follow the loss"),
        (lambda: two_steps(points(middle=20.0)), "loss is 38.4, the checkpoints have 19.5 to 20.7; add"),
        (lambda: two_steps((*points(), point("x", Pair(4.0, 0.5, "p3")))), r"the results have 2 policies \(p2, p3\)"),
        (lambda: two_steps(step=None), "it has 7 results of scores, and its step is None"),
    ],
)
def test_a_second_step_that_says_nothing_is_refused(before: Store, node: Callable[[], Node], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(before, node())
