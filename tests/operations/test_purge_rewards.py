"""Purges of runs on rewards: what a run resumes from and what a checkpoint learned from stays, and comes back with it."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from reward_worlds import SPEC, checkpoint, environment, fields, put, rollouts
from storage_worlds import NOW, bytes_below, planned

from lineage.artifact.store import Artifact, Store
from operations.storage.pins import Pin, add_pin
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


runs = st.lists(st.tuples(st.integers(1, 3), st.sets(st.sampled_from([2, 4, 6]))), min_size=1, max_size=3)
"""For each run, how many iterations it has sampled, and the steps that it has kept, if it has sampled for them."""


@settings(max_examples=examples(8))
@given(declared=runs, chance=st.integers(0, 2**32))
def test_exactly_what_nothing_needs_goes_and_comes_back(
    tmp_path_factory: pytest.TempPathFactory, declared: list[tuple[int, set[int]]], chance: int
) -> None:
    store, draw = Store(str(tmp_path_factory.mktemp("runs"))), random.Random(chance)
    needs, roots = dict[str, set[str]](), set[str]()
    for number, (sampled, steps) in enumerate(declared):
        prompts = put(store, f"environments/e{number}", None, "environments.addition")
        shards = [rollouts(store, prompts, iteration, f"r{number}") for iteration in range(sampled)]
        kept = [checkpoint(store, prompts, s, shards[: s // 2], f"r{number}") for s in sorted(steps) if s <= 2 * sampled]
        needs |= {prompts.spec.address: set()} | {each.spec.address: addresses(prompts) for each in shards}
        for each in kept:
            needs[each.spec.address] = addresses(prompts, *shards[: int(str(each.spec.config["step"])) // 2])
        if not kept or kept[-1].spec.config["step"] != 6:  # it has not ended
            roots |= addresses(*shards, *kept[-1:])
    for address in draw.sample(sorted(needs), draw.randint(0, 2)):
        add_pin(store, Pin(address, "ada", "figure 3", "2999-01-01"))
        roots.add(address)
    while more := {parent for address in roots for parent in needs[address]} - roots:
        roots |= more
    before, digest = bytes_below(store), planned(store, {})
    assert set(purge(store, digest, {}, NOW).taken) == needs.keys() - roots
    for address in draw.sample(trashed(store, digest), len(trashed(store, digest))):
        if store.open(address) is None:
            restore(store, digest, address)
        present = {each.spec.address for each in store.artifacts()}
        assert all(needs[each] <= present for each in present), "no artifact without what it needs"
    assert bytes_below(store) == before


def test_rollouts_of_other_bytes_are_no_part_of_a_checkpoint(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    prompts = environment(store)
    shard = rollouts(store, prompts, 0)
    other = RolloutsConfig(**fields(SPEC), iteration=1)
    twin = put(store, "runs/sums/rollouts", shard.spec.partition, shard.spec.stage, prompts, config=other)
    kept = checkpoint(store, prompts, 6, [shard])
    put(store, "runs/sums/hf_model", None, "trainer.hf_model", kept)
    assert goes(store) == addresses(twin)
