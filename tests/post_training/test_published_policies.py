"""Policies that a run publishes: what a server opens is the policy, and another policy of the same version is refused."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from small_rewards import base, learner, store_at, tokenizer
from tiny_models import quick_model

from lineage.build.plan import build
from post_training.policies import Policies
from post_training.rollouts import Origin, check_staleness, policy_digest
from serving.server.following import newest_of
from serving.server.loaded_model import open_hf_folder

MODEL = base().run.model


@pytest.fixture
def policies(tmp_path: Path) -> Policies:
    artifact = build(store_at(tmp_path), tokenizer()).artifact
    (tmp_path / "policies").mkdir()
    return Policies(tmp_path / "policies", MODEL, artifact.file("tokenizer.json"), 0)


def test_a_server_opens_the_newest_policy_and_names_its_digest(policies: Policies) -> None:
    models = [quick_model(MODEL, seed) for seed in range(4)]
    published = [policies.publish(version, 2 * version, model) for version, model in enumerate(models)]
    newest = newest_of(policies.folder)
    assert newest is not None and newest.digest == published[-1].weights
    served = open_hf_folder(policies.folder / newest.folder)
    assert served.weights.digest == published[-1].weights
    assert served.end_token == 0
    for ours, theirs in zip(jax.tree.leaves(models[-1].decoder()), jax.tree.leaves(served.model), strict=True):
        assert np.array_equal(ours, theirs)
    assert policies.known() == dict(enumerate(published))
    assert [each.digest for each in published] == [policy_digest(model) for model in models]
    assert sorted(path.name for path in policies.folder.glob("policy-*/")) == ["policy-00000002", "policy-00000003"]


def test_a_resumed_run_names_its_own_policy_and_refuses_another(policies: Policies) -> None:
    first, second = (quick_model(MODEL, seed) for seed in range(2))
    published = policies.publish(0, 0, first)
    policies.publish(1, 2, second)
    shutil.rmtree(policies.folder / "policy-00000000")  # the run goes back to it, and its folder is gone
    assert policies.publish(0, 0, first) == published
    newest = newest_of(policies.folder)
    assert newest is not None and (newest.folder, newest.digest) == ("policy-00000000", published.weights)
    with pytest.raises(ValueError, match="the updates before it did not give the same bits"):
        policies.publish(1, 2, first)


@pytest.mark.parametrize(("step", "late"), [(0, "2 iterations older"), (6, "-1 iterations older")])
def test_a_table_refuses_a_completion_that_is_too_old_or_too_new(step: int, late: str) -> None:
    spec = learner(iterations=4, max_staleness=1)
    check_staleness(spec, 2, 4, [Origin("a", 4, 0), Origin("b", 2, 0)])
    with pytest.raises(ValueError, match=f"iteration 2, row 1: the policy of step {step} sampled it, which is {late}"):
        check_staleness(spec, 2, 4, [Origin("a", 4, 0), Origin("b", step, 0)])
