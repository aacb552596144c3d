"""Quantile balancing: the bias is the quantile that it claims to be, it evens out skewed loads, and it survives a kill."""

import signal
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from tiny_models import quick_model
from tiny_moe import tiny_moe
from tiny_run import RUN, at_step, ended, job_of, log_of, started

from trainer.batch import Batch
from trainer.model.balance import BINS, balancing_bias, counted, margins
from trainer.plots import load_map_png
from trainer.router_table import FILE as ROUTER_FILE
from trainer.router_table import SCHEMA, balance_of, router_rows, unbalanced
from trainer.spec.moe import ExpertsConfig, RouterConfig
from trainer.step import compiled_step, initial_step_state
from trainer.train import train

MIXED = replace(
    RUN,
    name="mixed",
    model=tiny_moe(vocab_size=50, hidden_dim=16, num_layers=1, num_heads=2, num_kv_heads=1, experts=ExpertsConfig(4, 8)),
    microbatch_size=2,
    num_steps=12,
    save_every_steps=6,
)


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_a_bias_moves_by_the_quantile_of_its_margins(scale: float) -> None:
    rng = np.random.default_rng(0)
    tokens, experts, per_token = 4000, 8, 2
    bias = rng.normal(size=experts) * scale
    biased = (rng.normal(size=(tokens, experts)) + rng.normal(size=experts)) * scale + bias
    measured = jax.jit(margins, static_argnums=1)(jnp.asarray(biased), per_token)
    rivals = np.sort(biased, axis=1)[:, -per_token - 1]
    np.testing.assert_allclose(measured, biased - rivals[:, None], rtol=1e-5, atol=1e-5 * scale)
    counts = jax.jit(counted)(measured)
    assert counts.shape == (experts, BINS) and (counts.sum(axis=1) == tokens).all()
    moved = bias - np.sort(np.asarray(measured), axis=0)[-tokens * per_token // experts]
    wanted = moved - (moved.max() + moved.min()) / 2
    np.testing.assert_allclose(
        balancing_bias(jnp.asarray(bias), counts, per_token), wanted, rtol=0.02, atol=0.02 * scale + 0.003
    )


def test_counts_of_parts_of_a_batch_add_up_to_those_of_the_whole() -> None:
    values = jnp.asarray(np.random.default_rng(0).normal(size=(64, 4)) * 100)
    count = jax.jit(counted)
    parts = sum(np.asarray(count(part)) for part in np.split(np.asarray(values), 4))
    np.testing.assert_array_equal(parts, count(values))


@pytest.mark.parametrize("skew", [pytest.param(1.0, marks=pytest.mark.slow), 5.0])
def test_a_skewed_router_has_even_loads_within_some_steps(skew: float) -> None:
    """Sixteen experts of which one token in four would take the same, were there no bias."""
    rng = np.random.default_rng(0)
    offsets, bias = jnp.asarray(rng.normal(size=16) * skew), jnp.zeros(16)

    @jax.jit
    def step(bias: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = offsets + noise
        ids = jax.lax.top_k(logits + bias, 2)[1]
        loads = jnp.zeros(16).at[ids.reshape(-1)].add(1)
        return balancing_bias(bias, counted(margins(logits + bias, 2)), 2), loads

    loads = []
    for _ in range(40):
        bias, load = step(bias, jnp.asarray(rng.normal(size=(4096, 16))))
        loads.append(np.asarray(load))
    assert loads[0].max() / loads[0].mean() > 2
    late = np.sum(loads[-16:], axis=0)
    assert late.max() / late.mean() < 1.1 and late.min() / late.mean() > 0.9


def test_noise_of_small_batches_does_not_carry_the_biases_away() -> None:
    """It lowered all of them together, past the last bin within some hundred such steps, and loads were no longer even."""

    def step(bias: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = 20 * jax.random.normal(key, (128, 8))
        loads = jnp.zeros(8).at[jax.lax.top_k(logits + bias, 2)[1].reshape(-1)].add(1)
        return balancing_bias(bias, counted(margins(logits + bias, 2)), 2), loads

    bias, loads = jax.jit(lambda keys: jax.lax.scan(step, jnp.zeros(8), keys))(jax.random.split(jax.random.key(0), 1500))
    late = np.asarray(loads[-500:]).sum(axis=0)
    assert np.abs(bias).max() < 30 and late.max() / late.mean() < 1.1 and late.min() / late.mean() > 0.9


def table_of(loads: list[list[int]]) -> pl.DataFrame:
    rows = [(step + 1, 0, load, 0.0, 0.0, 0, 0.0, 0.0) for step, load in enumerate(loads)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def test_the_check_judges_the_last_window_alone_and_names_what_it_found(tmp_path: Path) -> None:
    even, collapsed = [50, 50, 50, 50], [190, 5, 3, 2]
    assert unbalanced(balance_of(table_of([collapsed] * 5 + [even] * 5), 2, window_tokens=500)) == []
    (finding,) = unbalanced(balance_of(table_of([even] * 5 + [collapsed] * 5), 2, window_tokens=500))
    assert finding == (
        "layer 0, steps 6 to 10: the busiest expert has 3.80 of the mean load (at most 3), the idlest 0.04 (at least 0.1)"
    )
    load_map_png(table_of([even, collapsed]), tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_resumes_with_the_bias_and_the_table_of_its_routers(tmp_path: Path) -> None:
    job = job_of(tmp_path, MIXED)
    whole = train(job)
    table = pl.read_parquet(whole.file(ROUTER_FILE))
    assert table.shape == (12, len(SCHEMA)) and set(table["loads"].list.sum()) == {4 * 16 * 2}
    assert whole.manifest.extra["checkpoint"]["compute"]["experts"] == "tiled"
    job.store.delete(whole)
    assert train(job).data_version == whole.data_version


@pytest.mark.slow
def test_a_kill_costs_nothing_but_time(tmp_path: Path) -> None:
    killed, whole = (job_of(tmp_path / name, MIXED) for name in ("killed", "whole"))
    for fault in ("kill@8", "kill-in-save@12"):
        environment = {"MARIN_FAULTS": fault, "MARIN_ROLLING_SECONDS": "0.01"}
        assert ended(started(tmp_path / "killed", environment)) == [-signal.SIGKILL], fault
    for name in ("killed", "whole"):
        assert ended(started(tmp_path / name)) == [0], log_of(tmp_path / name)
    resumed, wanted = at_step(killed, 12), at_step(whole, 12)
    assert resumed is not None and wanted is not None and resumed.data_version == wanted.data_version


def loads_from_a_skewed_start(balance: str) -> pl.DataFrame:
    """200 steps of 1,024 tokens. All embeddings share a direction, to which the first expert's logit answers most."""
    model = replace(MIXED.model, experts=ExpertsConfig(8, 8), router=RouterConfig(2, balance=balance))  # type: ignore[arg-type]
    spec = replace(MIXED, model=model, batch_size=64, microbatch_size=None, num_steps=200, save_every_steps=None)
    made = quick_model(model)
    direction = jnp.full(16, 0.25)
    made = eqx.tree_at(lambda m: m.embedding.array, made, replace_fn=lambda e: e + direction)
    router = lambda m: m.blocks.stacked.experts.router.weight.array  # noqa: E731
    made = eqx.tree_at(router, made, replace_fn=lambda w: w.at[..., 0].add(direction))
    state, step, rows = initial_step_state(spec, made), compiled_step(spec, made), []
    rng = np.random.default_rng(0)
    for number in range(200):
        tokens = np.cumsum(rng.integers(1, 3, (64, 16)), axis=1) % 50
        state, metrics = step(state, Batch(tokens.astype(np.int32)), number)
        rows += router_rows(number + 1, metrics.router)
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def test_training_from_a_skewed_start_is_balanced_by_step_200() -> None:
    balanced = loads_from_a_skewed_start("quantile")
    assert balanced["load_max_over_mean"][0] > 3, "the start is skewed"
    (layer,) = balance_of(balanced, 2)
    assert (layer.first, layer.last) == (137, 200) and layer.max_over_mean <= 1.2 and layer.least_over_mean > 0.1
    assert unbalanced([layer]) == []


@pytest.mark.slow
def test_training_from_a_skewed_start_collapses_without_balancing() -> None:
    (layer,) = balance_of(loads_from_a_skewed_start("none"), 2)
    assert layer.max_over_mean > 3 and len(unbalanced([layer])) == 1
