"""The sensor of checkpoints asks for the verdict on a forecast of a task score as soon as the judging evaluation is there.

Artifacts are written without training, as the manifests would be; the sensor, the request and the verdict are real.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from law_lab import declared_sweep, declared_target, definitions, store_of
from small_runs import small_run

from lineage.artifact.store import Artifact
from lineage.build.nodes import Node, ancestors_first, exists, resolve, spec_of
from lineage.storage.digests import identity_digest
from lineage.writing.write import writing
from lineage.writing.writer import Writer
from recipes.forecasts import Forecast, forecast, outcome, verdict
from recipes.records.run import Run
from recipes.runs import checkpoint, eval_tasks, mixture, policy
from resources.lab import LabResource
from science.forecasts.two_steps import ScoreStep
from sensors.checkpoints import checkpoint_sensor
from trainer.spec.target import FORECAST_FILE, run_digest

POINT = small_run("point")
STEP = ScoreStep(eval_tasks(POINT)[0].name, "accuracy", floor=0.25)
SWEEP = replace(declared_sweep(), trials=declared_sweep().trials[:1], budgets=declared_sweep().budgets[:1])
FORECAST = Forecast("f", SWEEP, score=STEP, points=((POINT, POINT.spec.num_steps),))
TARGET = declared_target(FORECAST)
LAST = checkpoint(TARGET, TARGET.spec.num_steps)
JUDGING, VERDICT = outcome(FORECAST, TARGET), verdict(FORECAST, TARGET)
WAITS = f"forecasts/f/verdict waits for {JUDGING.name}"


class World:
    """A lab and the sensor of a run."""

    def __init__(self, root: Path, instance: dg.DagsterInstance, run: Run = TARGET) -> None:
        self.root, self.store, self.lab, self.instance = root, store_of(root), LabResource(root=str(root)).lab(), instance
        self.sensor, self.cursor = checkpoint_sensor([run]), None

    def tick(self) -> tuple[list[dg.RunRequest], str]:
        """Requests for verdicts of one tick, and why it asked for nothing."""
        with dg.build_sensor_context(instance=self.instance, cursor=self.cursor, resources={"lab": self.lab}) as context:
            ticked = self.sensor(context)
        self.cursor = ticked.cursor or self.cursor
        asked = [each for each in ticked.run_requests or [] if dg.AssetKey(VERDICT.key) in each.asset_selection]
        return asked, "" if ticked.skip_reason is None else ticked.skip_reason.skip_message

    def plant(self, *nodes: Node) -> None:
        """Write what is missing of some nodes and above them, with what a verdict reads of them."""
        for node in ancestors_first(nodes):
            if not exists(self.store, node):
                with writing(self.store, spec_of(self.store, node)) as out:
                    self._fill(out, node)

    def evaluate(self, accuracy: float = 0.5) -> Artifact:
        """Commit the evaluation that judges the forecast, in place of an earlier one."""
        self.plant(LAST, policy(TARGET), *JUDGING.parents())
        if exists(self.store, JUDGING):
            self.store.delete(resolve(self.store, JUDGING))
        with writing(self.store, spec_of(self.store, JUDGING)) as out:
            out.extra["scores"] = [{"task": STEP.task, "metric": STEP.metric, "value": accuracy}]
            out.extra["policy"] = {"data_version": "p"}
            (out.folder / "scores.json").write_text(str(accuracy))
        return resolve(self.store, JUDGING)

    def run(self, request: dg.RunRequest) -> str:
        """Carry out a request for a verdict; what it says."""
        job = definitions(self.root, POINT, TARGET, sweep=SWEEP).resolve_implicit_global_asset_job_def()
        selected = job.get_subset(asset_selection=set(request.asset_selection))
        assert selected.execute_in_process(instance=self.instance, tags=request.tags).success
        return resolve(self.store, VERDICT).manifest.extra["verdict"]["outcome"]

    def _fill(self, out: Writer, node: Node) -> None:
        (out.folder / "node").write_text(identity_digest([node.name]))
        if node.key == LAST.key:
            out.extra["checkpoint"] = {"step": TARGET.spec.num_steps, "loss_nats": 3.0, "tokens_seen": 1}
            out.extra["throughput"] = {"tokens_per_second": 1.0}
        if node.key == forecast(FORECAST, TARGET).key:
            read = resolve(self.store, mixture(TARGET)).data_version
            target = {"run": run_digest(TARGET.spec), "mixture": read, "steps": TARGET.spec.num_steps}
            metric = {"task": STEP.task, "name": STEP.metric, "unit": "share", "policy": "p"}
            facts = {"target": target, "metric": metric, "point": 0.5, "noise": 0.01, "intervals": {"0.9": [0.45, 0.55]}}
            (out.folder / FORECAST_FILE).write_text(json.dumps(facts))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield World(tmp_path, instance)


def test_a_verdict_is_asked_for_when_the_evaluation_is_there_and_once(world: World) -> None:
    assert world.tick() == ([], f"no new checkpoint of 1 runs; 0 are reported; {WAITS}")
    world.plant(LAST)
    asked, _ = world.tick()
    assert asked == [], "the evaluation is asked for, and comes first"
    assert world.tick() == ([], f"no new checkpoint of 1 runs; 1 are reported; {WAITS}")
    result = world.evaluate()
    (request,), _ = world.tick()
    assert request.run_key == f"target:{result.data_version}:verdict" and request.asset_selection == [dg.AssetKey(VERDICT.key)]
    assert world.tick() == ([], "no new checkpoint of 1 runs; 1 are reported"), "the request is not repeated"
    assert world.run(request) == "hit"
    world.cursor = None
    assert world.tick()[0] == [], "a verdict that exists is not asked for, the cursor lost or not"


def test_a_verdict_is_asked_for_when_the_evaluation_came_before_the_sensor(world: World) -> None:
    world.evaluate(accuracy=0.7)
    ((request,), _) = world.tick()
    world.cursor = None
    ((again,), _) = world.tick()
    assert again.run_key == request.run_key, "Dagster runs the key of a request once"
    result = world.evaluate(accuracy=0.5)
    ((other,), _) = world.tick()
    assert other.run_key == f"target:{result.data_version}:verdict" != again.run_key, "another evaluation has another verdict"


@pytest.mark.parametrize("of", [None, Forecast("f", SWEEP)], ids=["no forecast", "a forecast of a loss"])
def test_only_a_forecast_of_a_score_waits_for_an_evaluation(of: Forecast | None, tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert World(tmp_path, instance, declared_target(of)).tick() == ([], "no new checkpoint of 1 runs; 0 are reported")
