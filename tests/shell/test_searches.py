"""A search really adds rounds: the sensor proposes from results, trials train, one diverges, a kill loses nothing."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from small_assets import TODAY
from small_runs import small_ferry, small_run

import recipes.lab
from lineage.artifact.store import Store
from lineage.build.nodes import ancestors_first, resolve, spec_of
from lineage.build.plan import build
from lineage.config import to_jsonable
from lineage.storage.digests import identity_digest
from lineage.writing.write import writing
from marin_assets.cli.materialize import materialize_all, materialize_with_ancestors, node_after_rounds
from marin_assets.consistency import check_consistency
from marin_assets.declared_table import tabled
from marin_assets.definitions import build_defs
from recipes.lab import Declarations, declarations
from recipes.own_recipes import FOLDER_VARIABLE
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.runs import checkpoint
from recipes.searches import NotProposedError, Rounds, Search
from recipes.sources import catalogue, own_recipes
from recipes.studies.isoflop import isoflop
from recipes.studies.small_models import LAYERS, at_budget
from recipes.sweeps import RESULT_CONFIG, result, results, table, trial
from resources.lab import LabResource, lab_from_environment
from science.forecasts.table import Expected, TableConfig, read_table
from science.search.proposers import NextBudget, SpaceSearch
from science.search.round_stage import proposed_in
from science.search.space import Dimension
from sensors.searches import MOST_TRIES
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec.target import size_of

STEPS = ("proposal", "trial", "result", "table")


def at_rate(name: str, values: Mapping[str, float]) -> Run:
    """Four steps of a small model at a rate."""
    run = small_run(name)
    schedule = WarmupStableDecay(values["learning_rate"], warmup_steps=1, decay_frac=0.0, min_lr_ratio=1.0)
    return replace(run, spec=replace(run.spec, schedule=schedule, num_steps=4, save_every_steps=None))


def first_sweep() -> Sweep:
    """Three rates, and one that diverges."""
    rates = {"a": 3e-4, "b": 1e-3, "c": 3e-3, "wild": 1e30}
    return Sweep("grid", tuple(at_rate(name, {"learning_rate": rate}) for name, rate in rates.items()))


def search(**changed: object) -> Search:
    space = SpaceSearch((Dimension("learning_rate", 1e-4, 1e-1),), count=2)
    return replace(Search("more", first_sweep(), space, at_rate, rounds=2), **changed)


def defined(resource: LabResource, declared: Declarations) -> dg.Definitions:
    return build_defs(resource, ferry=small_ferry(), declared=declared)


class World:
    """A lab with a search or what else is declared, and a hand that does what the daemon does."""

    def __init__(self, root: Path, instance: dg.DagsterInstance, declared: Declarations | None = None) -> None:
        self.resource, self.instance = LabResource(root=str(root), workers=1), instance
        self.definitions = defined(self.resource, declared or Declarations(sweeps=(first_sweep(),), searches=(search(),)))
        self.store: Store = self.resource.lab().store

    def tick(self):
        lab = self.resource.lab()
        context = dg.build_sensor_context(instance=self.instance, resources={"lab": lab}, definitions=self.definitions)
        ticked = self.definitions.resolve_sensor_def("searches").evaluate_tick(context)
        for each in ticked.dynamic_partitions_requests or []:
            self.instance.add_dynamic_partitions(each.partitions_def_name, each.partition_keys)
        return ticked

    def run(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        tags = {name: value for name, value in request.tags.items() if name != "dagster/partition"}
        return self.make(*request.asset_selection, tags=tags, partition_key=request.partition_key)

    def make(self, *keys: dg.AssetKey, **how: object) -> dg.ExecuteInProcessResult:
        job = self.definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection=set(keys))
        return job.execute_in_process(instance=self.instance, raise_on_error=False, **how)

    def step(self) -> str:
        """One tick and the run that it requests; the step that was made, or why there was none."""
        ticked = self.tick()
        if not ticked.run_requests:
            return ticked.skip_message
        (request,) = ticked.run_requests
        assert self.run(request).success
        return request.tags["marin/search_step"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab whose first sweep has results, which were written and not trained; everything after them is made for real."""
    root = tmp_path_factory.mktemp("swept")
    store = LabResource(root=str(root), workers=1).lab().store
    for node in ancestors_first(results(first_sweep())):
        if node.stage.job is None:
            build(store, node)
    write_results(store, first_sweep().trials)
    return root


def write_results(store: Store, runs: Sequence[Run]) -> None:
    """Write trials and their results; the trial `wild` diverged."""
    policy = identity_digest(to_jsonable(RESULT_CONFIG))
    for number, run in enumerate(runs):
        with writing(store, spec_of(store, trial(run))):
            pass
        diverged = "planted" if run.name == "wild" else None
        score = {"task": "heldout", "metric": "micro_bits_per_byte", "value": 7.0 - 0.2 * number}
        with writing(store, spec_of(store, result(run))) as out:
            out.extra["result"] = {"policy": policy, "diverged": diverged, "scores": [] if diverged else [score]}


@pytest.fixture
def world(swept: Path, tmp_path: Path) -> Iterator[World]:
    shutil.copytree(swept, tmp_path / "root")
    with dg.instance_for_test() as instance:
        yield World(tmp_path / "root", instance)


@pytest.mark.slow
def test_a_search_adds_rounds_from_results_and_goes_on_after_a_kill(world: World) -> None:
    """Real trials end to end, through the sensor alone."""
    assert world.step() == "more waits for sweeps/grid/table"
    assert world.make(dg.AssetKey(["sweeps", "grid", "table"])).success
    assert world.step() == "r1:proposal"
    of = Rounds(search(), world.store)
    facts = resolve(world.store, of.proposal(1)).manifest.extra["round"]
    assert facts["infeasible"] == ["wild"] and facts["known"] == 4

    # The process dies after the first of two trials: the next run trains the other one alone.
    keys = [dg.AssetKey(["sweeps", "more", name]) for name in ("trial", "result")]
    one = {"dagster/asset_partition_range_start": "r1|t0", "dagster/asset_partition_range_end": "r1|t0"}
    assert world.make(*keys, tags=one).success
    before = resolve(world.store, trial(of.trials(1)[0])).manifest.created
    assert world.step() == "r1:result"
    assert resolve(world.store, trial(of.trials(1)[0])).manifest.created == before
    assert [world.step() for _ in range(2)] == ["r1:table", "r2:proposal"]
    assert world.instance.get_dynamic_partitions("rounds of more") == ["r1", "r2"]
    assert world.instance.get_materialized_partitions(keys[1]) == {"r1|t0", "r1|t1"}
    graph = world.definitions.resolve_asset_graph()
    wrong = check_consistency([world.store], world.instance, graph, TODAY).disagreements
    assert [each for each in wrong if each.artifact.startswith("sweeps/more")] == []
    check_lineage(world.store)


def check_lineage(store: Store) -> None:
    """A trial has the settings of its proposal, and all results before it among its ancestors."""
    of = Rounds(search(), store)
    rows = {row.name: row for row in read_table(resolve(store, of.table(1)))}
    assert set(rows) == {"a", "b", "c", "wild", "r1-t0", "r1-t1"} and rows["wild"].status == "diverged"
    for each in proposed_in(resolve(store, of.proposal(1))):
        assert rows[each.name].learning_rate == each.values["learning_rate"]
    chosen = {artifact.spec.address for artifact in store.walk_up(resolve(store, of.proposal(2)))}
    before = [*(result(run) for run in (*first_sweep().trials, *of.trials(1))), of.proposal(1), of.table(1)]
    assert {resolve(store, node).spec.address for node in before} <= chosen
    trained = resolve(store, trial(of.trials(1)[1]))
    assert trained.input("proposal").data_version == resolve(store, of.proposal(1)).data_version


@pytest.mark.slow
def test_a_step_that_fails_is_tried_three_times_and_not_beside_itself(world: World) -> None:
    build(world.store, table(first_sweep()))
    (request,) = world.tick().run_requests
    tags = {"marin/search": "more", "marin/search_step": "r1:proposal"}
    assert tags.items() <= request.tags.items() and request.partition_key == "r1"
    job = world.definitions.resolve_implicit_global_asset_job_def()
    started = world.instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.STARTED)
    assert world.step() == "a run makes proposal of more r1"
    world.instance.report_run_failed(started)
    for _ in range(MOST_TRIES - 1):
        assert len(world.tick().run_requests) == 1
        world.instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.FAILURE)
    assert world.step() == "proposal of more r1 was tried 3 times; look at its last run"


OWN = """
from test_searches import first_sweep, search
from recipes.study import Study

def study() -> Study:
    return Study("Which rate?", sweeps=(first_sweep,), searches=(search,))
"""


@pytest.fixture
def home(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What the command line finds: the lab of the sweep, an instance without rounds, the search as a recipe file."""
    for folder in ("own", "dagster"):
        (tmp_path / folder).mkdir()
    shutil.copytree(swept, tmp_path / "root")
    (tmp_path / "own" / "rates.py").write_text(OWN)
    monkeypatch.setenv("MARIN_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "own"))
    monkeypatch.setattr(recipes.lab, "PREFIX", "marin_lab/")  # as in a lab that runs the wheel: its own declarations alone
    read_again()
    yield tmp_path
    monkeypatch.undo()
    read_again()


def read_again() -> None:
    for cached in (own_recipes, catalogue, declarations):
        cached.cache_clear()


@pytest.mark.slow
def test_the_command_makes_partitions_of_rounds_and_the_rounds_before_them(home: Path) -> None:
    """The results of round 1 are written and not trained; the command reports them like any that exist."""
    with dg.DagsterInstance.get() as instance:
        opened = lab_from_environment().lab()
        node, _ = node_after_rounds(opened, instance, "sweeps/more/trial", "r1|t0")
        of = Rounds(search(), opened.store)
        assert node.partition == "r1|t0" and resolve(opened.store, of.proposal(1)).spec.partition == "r1"
        write_results(opened.store, of.trials(1))
        assert materialize_with_ancestors("sweeps/more/result", "r1|t1").spec.partition == "r1|t1"
        assert instance.get_materialized_partitions(dg.AssetKey(["sweeps", "more", "result"])) == {"r1|t1"}
        assert materialize_with_ancestors("sweeps/more/proposal", "r2").spec.partition == "r2"
        assert instance.get_dynamic_partitions("rounds of more") == ["r1", "r2"]
        first = search().first
        every = materialize_all(f"sweeps/{first.name}/result")
        assert [each.spec.partition for each in every] == [run.name for run in first.trials], "they are there"
        assert {row.name for row in read_table(resolve(opened.store, of.table(1)))} == {"a", "b", "c", "wild", "r1-t0", "r1-t1"}
        before = instance.get_runs_count()
        gone = [node(run) for run in first.trials[::2] for node in (trial, result)]  # written, not trained
        for each in [resolve(opened.store, node) for node in gone]:
            shutil.rmtree(Path(opened.store.root, each.spec.address))
        again = materialize_all(f"sweeps/{first.name}/result")
        assert instance.get_runs_count() == before + 2, "one run makes all trials that are missing, and one their results"
        assert [again[at].manifest.extra["result"]["tokens_seen"] for at in (0, 2)] == [4 * 8 * 128] * 2
        assert [again[at].manifest for at in (1, 3)] == [every[at].manifest for at in (1, 3)]


def test_a_trial_of_a_round_has_its_proposal_as_an_input_and_other_trials_have_none() -> None:
    of = search()
    proposed, declared = (checkpoint(run, 4) for run in (of.example, of.first.trials[0]))
    assert (proposed.key, proposed.partition) == (("sweeps", "more", "trial"), "r1|t0")
    assert set(proposed.inputs) - set(declared.inputs) == {"proposal"} and proposed.stage is declared.stage
    made = of.table(1, {1: (of.example,)})
    assert isinstance(made.config, TableConfig)
    assert [each.name for each in made.config.trials] == ["a", "b", "c", "wild", "r1-t0"]


def test_a_round_that_was_not_proposed_has_no_trials(tmp_path: Path) -> None:
    of = Rounds(search(), Store(str(tmp_path)))
    with pytest.raises(NotProposedError, match=r"sweeps/more/proposal\[r1\] was never materialized"):
        of.trial("r1|t0")
    with pytest.raises(NotProposedError, match=r"sweeps/more/proposal\[r1\]"):
        of.proposal(2)
    with pytest.raises(ValueError, match=r"search more has no trial 'r1\|t7'; its round r1 has r1\|t0, r1\|t1"):
        of.trial("r1|t7")
    with pytest.raises(ValueError, match="search more has no round 'r3'; it has r1, r2: raise `rounds` for more"):
        of.trial("r3|t0")


def test_a_search_adds_four_assets_whatever_its_rounds() -> None:
    """And its first sweep must be declared."""
    declared = Declarations(sweeps=(first_sweep(),))
    without, _ = tabled(declared)
    table_of, kept = tabled(replace(declared, searches=(search(),)))
    more = {each.example.key for each in table_of} - {each.example.key for each in without}
    assert more == {("sweeps", "more", name) for name in STEPS} and kept.searches == (search(),)
    _, broken = tabled(Declarations(searches=(search(),)))
    assert broken.searches == () and "its first sweep grid is not declared" in broken.broken[0].error


def test_the_next_isoflop_budget_is_proposed_from_the_declared_sweep() -> None:
    """The page's example: a round takes the declared family's sizes, its budget is the proposed one, and a law follows."""
    sizes = tuple((width, size_of(at_budget("s", width, 1e12).spec).parameters) for width in sorted(LAYERS))
    of = Search("isoflop_next", isoflop(), NextBudget(2.0, sizes), at_size, rounds=2)
    assert of.slots == tuple(f"t{n}" for n in range(7))
    table_of, kept = tabled(Declarations(sweeps=(isoflop(),), searches=(of,)))
    assert kept.searches == (of,)
    assert ("sweeps", "isoflop_next", "fit") in table_of, "the first sweep declares a law"
    made = of.table(1, {1: (of.example,)})
    assert isinstance(made.config, TableConfig)
    assert made.config.trials[-1] == Expected("r1-t0", 1e12) and len(made.config.trials) == len(isoflop().trials) + 1


def at_size(name: str, values: Mapping[str, float]) -> Run:
    return at_budget(name, int(values["width"]), values["budget"], seed=int(values["seed"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "grid"}, "its first sweep has the same name"),
        ({"rounds": 0}, "rounds is 0; it must be at least 1"),
        ({"first": replace(first_sweep(), max_missing=1)}, "may lack 1 trials"),
        ({"run_at": lambda name, values: small_run(name)}, "it keeps its last"),
    ],
)
def test_a_search_that_contradicts_itself_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search(**change)
