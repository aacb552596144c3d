"""Run specs as JSON: stable output, every choice survives, errors name the field."""

import json
import re
from dataclasses import replace
from typing import TypeAliasType, get_args

import equinox as eqx
import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.config import from_jsonable, to_jsonable
from lineage.order.batches import BatchPhase
from recipes.smoke import smoke_spec
from trainer.initial_state import initial_state
from trainer.spec.config import RunSpec
from trainer.spec.optimizers import (
    AdamCConfig,
    AdamHConfig,
    AdamWConfig,
    CautiousConfig,
    ClipUpdateNormConfig,
    ElementwiseConfig,
    EmaConfig,
    LionConfig,
    MuonConfig,
    NAdamWConfig,
    OptimizerConfig,
    SkipBadStepsConfig,
)
from trainer.spec.roles import ROLES
from trainer.spec.schedules import CycleSchedule, WarmupStableDecay

SMOKE_JSON = (
    '{"name": "smoke", "model": {"vocab_size": 8192, "hidden_dim": 128, "intermediate_dim": 352, "num_layers": 4, '
    '"num_heads": 4, "num_kv_heads": 2, "max_seq_len": 256, "rope_theta": 10000.0, "norm_eps": 1e-05, "tie_embeddings": true, '
    '"initializer_range": 0.02}, "optimizer": {"beta1": 0.9, "beta2": 0.95, "eps": 1e-08, "weight_decay": 0.1, '
    '"max_grad_norm": 1.0}, "schedule": {"peak_learning_rate": 0.004, "warmup_steps": 40, "decay_frac": 0.4, '
    '"min_lr_ratio": 0.1}, "batch_size": 8, "seq_len": 256, "num_steps": 480, "seed": 1, "save_every_steps": 160, '
    '"z_loss_weight": 0.0}'
)
"""As it was before there was a choice of rules (2026-11-21). Another text here is another address for every checkpoint."""

shares, positive = st.floats(0, 0.999), st.floats(1e-9, 100)
clips, decayed = st.none() | positive, st.lists(st.sampled_from(ROLES), unique=True).map(tuple)
moments = {"beta1": shares, "beta2": shares, "eps": positive, "max_grad_norm": clips}
decay = {"weight_decay": st.floats(0, 10), "decay_groups": decayed}
elementwise = st.one_of(
    *(st.builds(kind, **moments, **decay) for kind in (AdamWConfig, NAdamWConfig, AdamCConfig)),
    st.builds(LionConfig, beta1=shares, beta2=shares, max_grad_norm=clips, **decay),
)
optimizers = st.one_of(
    elementwise,
    st.builds(CautiousConfig, elementwise),
    st.builds(AdamHConfig, **moments, adam_lr_ratio=positive),
    st.builds(MuonConfig, **moments, **decay, momentum=shares, nesterov=st.booleans(), num_iterations=st.integers(1, 9),
              scale=st.sampled_from(["aspect", "match_adamw"]), adam_lr_ratio=positive),
)  # fmt: skip
schedules = st.one_of(
    st.builds(WarmupStableDecay, positive, st.integers(0, 480), st.floats(0, 1), st.floats(0, 1)),
    st.builds(CycleSchedule, positive, st.integers(0, 10), st.sampled_from(["constant", "linear", "cosine", "inverse_sqrt"]),
              st.none() | st.integers(0, 10), st.integers(1, 10) | st.sampled_from([(480,), (100, 200, 1000)]),
              st.integers(0, 10)),
)  # fmt: skip
guards = st.fixed_dictionaries(
    {
        "batch_size": st.sampled_from([8, (BatchPhase(0, 8), BatchPhase(7, 16), BatchPhase(9, 4))]),
        "microbatch_size": st.sampled_from([None, 1, 2, 4]),
        "clip_update_norm": st.none() | st.builds(ClipUpdateNormConfig, st.integers(2, 500), positive),
        "skip_bad_steps": st.none() | st.builds(SkipBadStepsConfig, st.integers(2, 500), positive),
        "ema": st.none() | st.builds(EmaConfig, shares),
    }
)


def test_todays_spec_is_written_byte_for_byte_as_before() -> None:
    assert json.dumps(to_jsonable(smoke_spec(8192))) == SMOKE_JSON
    assert from_jsonable(RunSpec, json.loads(SMOKE_JSON)) == smoke_spec(8192)


def test_todays_optimizer_state_has_the_names_it_had() -> None:
    small = replace(smoke_spec(16).model, hidden_dim=8, intermediate_dim=8, num_layers=1)  # sizes do not matter
    state = initial_state(replace(smoke_spec(8192), model=small))
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state.optimizer)]
    parameters = eqx.filter(state.model, eqx.is_inexact_array)
    weights = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(parameters)]
    assert names == ["[1].count", *(f"[1].{moment}{weight}" for moment in ("mu", "nu") for weight in weights)]
    assert state.skip is None and state.ema is None


@given(optimizers, schedules, guards)
def test_every_spec_survives_json(optimizer, schedule, guards: dict) -> None:
    spec = replace(smoke_spec(8192), optimizer=optimizer, schedule=schedule, **guards)
    text = json.dumps(to_jsonable(spec))
    again = from_jsonable(RunSpec, json.loads(text))
    assert again == spec
    assert type(again.optimizer) is type(optimizer) and type(again.schedule) is type(schedule)
    assert json.dumps(to_jsonable(again)) == text


def test_rules_with_the_same_numbers_are_not_the_same_run() -> None:
    same = [to_jsonable(replace(smoke_spec(8192), optimizer=kind())) for kind in (AdamWConfig, NAdamWConfig, AdamCConfig)]
    assert len({json.dumps(spec) for spec in same}) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 12, "microbatch_size": 8},
         "run.microbatch_size is 8; it must be a positive divisor of batch_size 12, or None"),
        ({"microbatch_size": 0}, "run.microbatch_size is 0; it must be a positive divisor of batch_size 8, or None"),
        ({"batch_size": (BatchPhase(0, 8), BatchPhase(5, 0))}, "batch_size is 0 from step 5; it must be positive"),
        ({"batch_size": (BatchPhase(0, 8), BatchPhase(5, 6)), "microbatch_size": 4},
         "run.microbatch_size is 4; it must be a positive divisor of batch_size 6, or None"),
    ],
)  # fmt: skip
def test_a_bad_spec_names_field_value_and_what_is_allowed(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        replace(smoke_spec(8192), **change)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (AdamWConfig, {"beta1": 1.0}, "optimizer.beta1 is 1.0; it must be in [0, 1)"),
        (NAdamWConfig, {"eps": 0.0}, "optimizer.eps is 0.0; it must be positive"),
        (AdamCConfig, {"weight_decay": -0.1}, "optimizer.weight_decay is -0.1; it must be at least 0"),
        (AdamHConfig, {"adam_lr_ratio": 0.0}, "optimizer.adam_lr_ratio is 0.0; it must be positive"),
        (MuonConfig, {"momentum": float("nan")}, "optimizer.momentum is nan; it must be in [0, 1)"),
        (MuonConfig, {"num_iterations": 0}, "optimizer.num_iterations is 0; it must be positive"),
        (LionConfig, {"max_grad_norm": 0.0}, "optimizer.max_grad_norm is 0.0; it must be positive, or None for no clipping"),
        (LionConfig, {"decay_groups": ("bias",)},
         "optimizer.decay_groups is ('bias',); it must be of matrix, head, embedding, norm, expert, router, gate"),
        (ClipUpdateNormConfig, {"window": 1}, "clip_update_norm.window is 1; it must be at least 2"),
        (SkipBadStepsConfig, {"num_std": 0.0}, "skip_bad_steps.num_std is 0.0; it must be positive"),
        (EmaConfig, {"beta": 1.0}, "ema.beta is 1.0; it must be in [0, 1)"),
    ],
)  # fmt: skip
def test_a_bad_rule_names_field_value_and_what_is_allowed(kind, change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        kind(**change)


def kinds_of(union: TypeAliasType) -> str:
    """The members of a tagged union as errors list them."""
    members = [m for part in get_args(union.__value__) for m in (get_args(getattr(part, "__value__", None)) or (part,))]
    tags = {member.__name__: getattr(member, "kind", None) for member in members}
    return ", ".join(f"{repr(tag) if tag else 'no kind'} ({name})" for name, tag in tags.items())


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ({"kind": "adam"},
         f"config.optimizer.kind is 'adam'; allowed: {kinds_of(OptimizerConfig)}"),
        ({"kind": "cautious", "rule": {"kind": "muon"}},
         f"config.optimizer.rule.kind is 'muon'; allowed: {kinds_of(ElementwiseConfig)}"),
        ({"kind": "lion", "eps": 1.0},
         "config.optimizer has no field 'eps'; LionConfig allows: beta1, beta2, decay_groups, kind, max_grad_norm, "
         "weight_decay"),
        ({"kind": "muon", "scale": "big"}, "config.optimizer.scale is 'big'; allowed: 'aspect', 'match_adamw'"),
    ],
)  # fmt: skip
def test_a_wrong_rule_in_a_job_file_is_named(optimizer: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        from_jsonable(RunSpec, {**json.loads(SMOKE_JSON), "optimizer": optimizer})
