"""Purges of runs on rewards: what a run resumes from and what a checkpoint learned from stays, and comes back with it."""

from pathlib import Path

from reward_worlds import SPEC, checkpoint, environment, fields, put, rollouts
from storage_worlds import NOW, bytes_below, planned

from lineage.artifact.store import Artifact, Store
from operations.storage.plan import make_plan
from operations.storage.purge import purge, restore, trashed
from post_training.stage import RolloutsConfig


def goes(store: Store) -> set[str]:
    return {each.address for each in make_plan(store, {}, None, NOW, young_days=0).goes}


def addresses(*artifacts: Artifact) -> set[str]:
    return {each.spec.address for each in artifacts}


def test_a_run_that_has_not_ended_keeps_its_newest_checkpoint_and_all_rollouts(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    prompts = environment(store)
    shards = [rollouts(store, prompts, number) for number in range(3)]
    old = checkpoint(store, prompts, 2, shards[:1])
    checkpoint(store, prompts, 4, shards[:2])
    assert goes(store) == addresses(old)
    last = checkpoint(store, prompts, 6, shards)
    assert goes(store) == {each.spec.address for each in store.artifacts()}, "it has ended, and nothing needs it"
    put(store, "runs/sums/hf_adapter", None, "trainer.hf_adapter", last)
    assert goes(store) == {each.spec.address for each in store.artifacts("runs", "sums", "checkpoint")} - addresses(last)


def test_what_a_rolling_checkpoint_resumes_from_stays(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    data, other = put(store, "mixture/a", None, "lineage.mixture"), put(store, "mixture/b", None, "lineage.mixture")
    assert goes(store) == addresses(data, other)
    checkpoint(store, data, 2, [], rolling=True)
    plan = make_plan(store, {}, None, NOW, young_days=0)
    assert {each.address for each in plan.goes} == addresses(other)
    assert plan.kept[data.spec.address] == "the run can resume from runs/sums/checkpoint[step-00000002]"


def test_a_checkpoint_comes_back_with_the_rollouts_that_it_learned_from(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    prompts = environment(store)
    shards = [rollouts(store, prompts, number) for number in range(3)]
    last = checkpoint(store, prompts, 6, shards)
    before = bytes_below(store)
    digest = planned(store, {})
    taken = purge(store, digest, {}, NOW).taken
    assert set(taken) == addresses(prompts, last, *shards)
    assert taken.index(last.spec.address) < min(taken.index(each.spec.address) for each in shards)
    assert set(restore(store, digest, last.spec.address)) == set(taken)
    assert trashed(store, digest) == [] and bytes_below(store) == before


def test_rollouts_of_other_bytes_are_no_part_of_a_checkpoint(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    prompts = environment(store)
    shard = rollouts(store, prompts, 0)
    other = RolloutsConfig(**fields(SPEC), iteration=1)
    twin = put(store, "runs/sums/rollouts", shard.spec.partition, shard.spec.stage, prompts, config=other)
    kept = checkpoint(store, prompts, 6, [shard])
    put(store, "runs/sums/hf_model", None, "trainer.hf_model", kept)
    assert goes(store) == addresses(twin)
