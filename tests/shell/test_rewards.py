"""A run on rewards from the graph: training with its checks, the sensor, scores, and the audit of its rollouts.

The environment is a suite's own items, so every rollout holds a benchmark item: the audit must say which rollout of which
prompt, and which update read it.
"""

from dataclasses import replace

import dagster as dg
import numpy as np
import polars as pl
import pytest
from rich.console import Console
from small_assets import TODAY

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve
from lineage.build.plan import build_all
from lineage.jobs.job import LaunchRecord, LaunchRequest, read_job
from lineage.match_tiers import STANDING_TIERS
from marin_assets.cli.audit import print_audit
from marin_assets.cli.exposure import print_exposure
from marin_assets.consistency import check_consistency
from marin_assets.definitions import build_defs
from marin_assets.rewards import ADVISORIES, LOSS, SAMPLER
from post_training.environments.benchmark import BENCHMARK, Benchmark
from post_training.held_out import score_held_out
from post_training.rollouts import drawn_of
from post_training.spec import Imitate, LossConfig, RewardRunSpec, Rloo, SamplingConfig
from post_training.stage import HELD_OUT, ROLLOUTS_FILE, parse_iteration
from post_training.texts import shards_of
from post_training.train import train_on_rewards
from post_training.update import batches
from recipes.data import suites
from recipes.lab import Declarations
from recipes.records.data import decontamination
from recipes.records.reward_run import RewardRun, held_out_like
from recipes.reward_runs import audit_of_rollouts, held_out, last_checkpoint, rollout_texts
from recipes.rewards import BYTES, byte_tokenizer
from recipes.smoke import smoke_ferry
from recipes.suites import Suite
from resources.lab import Lab
from tests.tiny import tiny_model, tiny_spec
from trainer.spec.config import WarmStart

SUITE = Suite("small", "vendored")
LONGEST, NEW = 1536, 16


def here(launch: LaunchRequest) -> LaunchRecord:
    """Run a job in this process: a new one compiles everything again."""
    job = read_job(launch.job_path)
    if job.spec.stage == HELD_OUT.name:
        score_held_out(job)
    else:
        train_on_rewards(job)
    return LaunchRecord("this process", "", ())


def declared(spec: RewardRunSpec, start: RewardRun | None = None) -> RewardRun:
    (suite,) = suites((SUITE,))
    environment = Node(("environments", "items"), None, BENCHMARK, Benchmark("gsm8k", held_out_share=0.03), {"suite": suite})
    scored = held_out_like(replace(spec.sampling, max_new_tokens=NEW), 2, 8)
    return RewardRun(spec, environment, byte_tokenizer(), scored, decontamination("small", (SUITE,), ()), start)


def imitation() -> RewardRun:
    """Two iterations of 4 worked answers, one update each."""
    model = tiny_model(vocab_size=BYTES, max_seq_len=LONGEST)
    run = tiny_spec(name="imitation", model=model, batch_size=4, seq_len=LONGEST, num_steps=2, seed=1)
    return declared(RewardRunSpec(run, SamplingConfig(4, 1, 1000), Imitate()))


def learner() -> RewardRun:
    """RLOO from there: two iterations of 2 prompts x 2 completions, two updates each."""
    start = imitation()
    run = replace(start.spec.run, name="learner", batch_size=2, num_steps=4, save_every_steps=2, start=WarmStart())
    return declared(RewardRunSpec(run, SamplingConfig(2, 2, NEW), Rloo(), LossConfig(truncated="train")), start)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Everything above the audit of the learner, made without Dagster."""
    lab = Lab.at(str(tmp_path_factory.mktemp("rewards")), launcher=here)
    run = learner()
    build_all(lab.store, [audit_of_rollouts(run, 4), held_out(run, 4)], launcher=here)
    return lab


@pytest.fixture(scope="module")
def store(lab: Lab) -> Store:
    return lab.store


def steps_by_reading(checkpoint: Artifact, spec: RewardRunSpec) -> set[tuple[str, int, int]]:
    """(prompt, iteration, step) of every completion, found in the batches that the updates read."""
    found = set()
    for shard in shards_of(checkpoint):
        table, iteration = pl.read_parquet(shard.file(ROLLOUTS_FILE)), parse_iteration(str(shard.spec.partition))
        drawn = drawn_of(spec, table, 0)
        for number, batch in enumerate(batches(spec, iteration, table, drawn)):
            for row in np.asarray(batch.tokens):
                (same,) = np.nonzero((drawn.tokens == row).all(axis=1))
                found |= {(table["prompt_id"][int(at)], iteration, iteration * spec.updates + number) for at in same[:1]}
    return found


@pytest.mark.slow
def test_the_audit_names_prompt_rollout_and_update_of_every_item(store: Store) -> None:
    run = learner()
    audit = resolve(store, audit_of_rollouts(run, 4))
    exposed = pl.read_parquet(audit.file("exposures.parquet")).filter(pl.col("tier").is_in(STANDING_TIERS))
    for leg, each in enumerate(run.history):
        wanted = steps_by_reading(resolve(store, last_checkpoint(each)), each.spec)
        own = exposed.filter((pl.col("leg") == leg) & (pl.col("prompt_id") == "gsm8k/" + pl.col("item_id")))
        assert set(own.select("prompt_id", "iteration", "step").iter_rows()) == wanted
        assert own["checkpoint"].unique().to_list() == [resolve(store, last_checkpoint(each)).name]
    facts = audit.manifest.extra["audit"]
    assert facts["verdict_at_step"] == "contaminated" and facts["before"] is None
    items = pl.read_parquet(audit.file("items.parquet"))
    asked = {prompt.removeprefix("gsm8k/") for prompt in exposed["prompt_id"]}
    unread = items.filter(pl.col("first_step") == -1)
    assert len(items) == 360 and asked.isdisjoint(unread.filter(pl.col("task") == "gsm8k")["item_id"])
    assert len(unread) > 300


@pytest.mark.slow
def test_the_commands_show_an_item_of_a_rollout(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    run = learner()
    checkpoint = resolve(store, last_checkpoint(run))
    origins = pl.read_parquet(resolve(store, rollout_texts(run, 4)).file("origins.parquet"))
    prompt = origins["prompt_id"][0]
    console = Console(width=200)
    print_exposure(checkpoint.uri, store.root, [], f"gsm8k/{prompt.removeprefix('gsm8k/')}", as_json=False, console=console)
    printed = capsys.readouterr().out
    assert prompt in printed and "iteration" in printed and checkpoint.name in printed
    assert not print_audit(checkpoint.uri, store.root, as_json=False, console=console)
    assert prompt in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_is_materialized_checked_and_reported(lab: Lab) -> None:
    """From the graph: training reuses what the store has, its checks pass, and the sensor reports and requests."""
    run, before = learner(), imitation()
    definitions = build_defs(
        dg.ResourceDefinition.hardcoded_resource(lab), ferry=smoke_ferry(), declared=Declarations(rewards=(before, run))
    )
    sensor = definitions.resolve_sensor_def("rewards")
    with dg.instance_for_test() as instance:
        key = dg.AssetKey(["runs", "learner", "training"])
        job = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={key})
        result = job.execute_in_process(instance=instance, raise_on_error=True)
        checks = {each.check_name: each for each in result.get_asset_check_evaluations()}
        assert set(checks) == {LOSS.name, SAMPLER.name, *(each.name for each in ADVISORIES)}
        assert checks[LOSS.name].passed and checks[SAMPLER.name].passed
        assert not checks["second_verifier_agrees"].passed  # benchmark items have no second verifier, and it says so
        context = dg.build_sensor_context(instance=instance, resources={"lab": lab}, definitions=definitions)
        reported = sensor.evaluate_tick(context)
        for event in reported.asset_events:
            instance.report_runless_asset_event(event)
        partitions = instance.get_materialized_partitions(dg.AssetKey(["runs", "learner", "rollouts"]))
        assert partitions == {"iteration-00000000", "iteration-00000001"}
        requested = {(each.tags["marin/run"], str(each.run_key).rpartition(":")[2]) for each in reported.run_requests}
        assert requested == {("imitation", "held_out"), ("imitation", "audit")}, "those of the learner exist"
        of_learner = [each for each in reported.asset_events if "learner" in each.asset_key.path]
        (event,) = [each for each in of_learner if each.partition == "iteration-00000001"]
        assert {"reward", "length", "entropy", "mismatch", "sampled_rollouts"} <= set(event.metadata)
        again = sensor.evaluate_tick(
            dg.build_sensor_context(instance=instance, resources={"lab": lab}, definitions=definitions, cursor=reported.cursor)
        )
        assert not again.asset_events and again.skip_message
        graph = definitions.resolve_asset_graph()
        wrong = check_consistency([lab.store], instance, graph, TODAY).disagreements
        assert [each for each in wrong if each.artifact.startswith("runs/learner/")] == []
