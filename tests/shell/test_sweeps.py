"""A sweep really trains through the launcher: many trials in a run, a divergence is a result, what is finished is reused."""

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from small_assets import TODAY
from small_runs import small_ferry, small_run

from lineage.artifact.store import Store
from lineage.build.nodes import ancestors_first, exists, resolve
from lineage.build.plan import build
from lineage.jobs.child_processes import run_subprocess
from lineage.jobs.job import LaunchRecord, LaunchRequest
from marin_assets.cli.dagster_runs import by_depth
from marin_assets.consistency import check_consistency
from marin_assets.definitions import build_defs
from recipes.lab import Declarations
from recipes.records.sweep import Sweep
from recipes.sweeps import result, results, trial
from resources.lab import Lab, LabResource
from trainer.spec.schedules import WarmupStableDecay


def small_sweep() -> Sweep:
    """Two rates that train and one whose first updates leave no finite number."""

    def at(name: str, rate: float):
        run = small_run(name)
        schedule = WarmupStableDecay(rate, warmup_steps=1, decay_frac=0.0, min_lr_ratio=1.0)
        return replace(run, spec=replace(run.spec, schedule=schedule, num_steps=6, save_every_steps=None))

    return Sweep("small", (at("lr0.001", 1e-3), at("lr0.002", 2e-3), at("lr1e30", 1e30)))


def make(definitions: dg.Definitions, instance: dg.DagsterInstance, first: str, last: str, *names: str):
    """Materialize a range of trials of some assets of the sweep in one run, as a backfill does."""
    keys = {dg.AssetKey(["sweeps", "small", name]) for name in names}
    job = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection=keys)
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    return job.execute_in_process(instance=instance, tags=tags, raise_on_error=False)


LAUNCHES: list[LaunchRequest] = []


def pod(launch: LaunchRequest) -> LaunchRecord:
    """A launcher whose processes are elsewhere, like that of a cluster: none of them is kept."""
    LAUNCHES.append(launch)
    return run_subprocess(launch)


class LabOfPods(LabResource):
    def lab(self, *args, **kwargs) -> Lab:
        return replace(super().lab(*args, **kwargs), launcher=pod)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LabResource, LabOfPods])
def test_a_sweep_trains_scores_and_reports_every_trial(tmp_path: Path, kind: type[LabResource]) -> None:
    LAUNCHES.clear()
    sweep = small_sweep()
    resource = kind(root=str(tmp_path), workers=1)
    definitions = build_defs(resource, ferry=small_ferry(), declared=Declarations(sweeps=(sweep,)))
    store = resource.lab().store
    with dg.instance_for_test() as instance:
        refused = make(definitions, instance, "lr0.001", "lr0.001", "result")
        assert not refused.success, "the data are not there yet"
        for node in ancestors_first(results(sweep)):
            if node.stage.job is None:
                build(store, node)
        assert make(definitions, instance, "lr0.001", "lr1e30", "result").success
        trained, scored = (dg.AssetKey(["sweeps", "small", name]) for name in ("trial", "result"))
        names = {run.name for run in sweep.trials}
        assert instance.get_materialized_partitions(trained) == instance.get_materialized_partitions(scored) == names
        graph = definitions.resolve_asset_graph()
        wrong = [
            d for d in check_consistency([store], instance, graph, TODAY).disagreements if d.artifact.startswith("sweeps/")
        ]
        assert wrong == [], "the event of each trial has the versions of its own manifest"
        made = [resolve(store, trial(run)).manifest.created for run in sweep.trials]
        assert make(definitions, instance, "lr0.001", "lr1e30", "trial", "result").success
        assert made == [resolve(store, trial(run)).manifest.created for run in sweep.trials], "nothing is trained twice"
    finished, other, diverged = (resolve(store, result(run)).manifest.extra["result"] for run in sweep.trials)
    assert finished["diverged"] is None and other["diverged"] is None
    assert {(s["task"], s["metric"]) for s in finished["scores"]} == {(s["task"], s["metric"]) for s in other["scores"]}
    assert finished["scores"] and finished["scores"] != other["scores"]
    assert finished["training_flops"] > 0 and finished["tokens_seen"] == 6 * 8 * 128
    assert "step" in diverged["diverged"] and diverged["scores"] == []
    assert diverged["spec"]["name"] == "lr1e30" and diverged["policy"] == finished["policy"]
    wanted = ["trial (3 jobs)", "result (3 jobs)"] if kind is LabOfPods else []
    assert [launch.name for launch in LAUNCHES] == [f"sweeps/small/{name}" for name in wanted]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda runs: Sweep("s", (runs[0], runs[0])), "its trials are named \\['lr0.001'\\]; .* each name once"),
        (lambda runs: Sweep("s", ()), "give at least one"),
        (lambda runs: Sweep("s", (small_run("a"),)), "trial a keeps steps"),
        (lambda runs: Sweep("s", (replace(runs[0], spec=replace(runs[0].spec, name="a|b")),)), "is a partition key"),
        (lambda runs: small_sweep().trial("x"), "has no trial 'x'; it has 3, such as lr0.001"),
    ],
)
def test_a_sweep_that_contradicts_itself_is_refused(change, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        change(small_sweep().trials)


def test_all_trials_come_before_their_results_and_inputs_before_what_is_made_of_them() -> None:
    nodes = by_depth(ancestors_first(results(small_sweep())))
    assert [node.key[-1] for node in nodes if node.key[0] == "sweeps"] == ["trial"] * 3 + ["result"] * 3
    seen: set[str] = set()
    for node in nodes:
        assert {parent.name for parent in node.parents()} <= seen
        seen.add(node.name)


def test_a_trial_is_not_the_run_of_that_name() -> None:
    run = small_run("a")
    run = replace(run, spec=replace(run.spec, save_every_steps=None))
    (placed,) = Sweep("s", (run,)).trials
    assert trial(placed).key == ("sweeps", "s", "trial") and trial(placed).partition == "a"
    assert not exists(Store("."), trial(placed))
