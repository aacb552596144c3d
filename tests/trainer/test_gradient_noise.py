"""The noise of a step's gradient: equal to slow sums, unbiased for a known covariance, kept by a resume, no cost where off."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, PyTree
from tiny import tiny_spec
from tiny_run import ROOT, SHORT, at_step, job_of, metrics_of

from lineage.jobs.job import job_folder
from lineage.order.batches import BatchPhase
from trainer.gradient_noise import PartSquares, RecentNoise, noise_terms
from trainer.objectives import Sums
from trainer.spec.config import RunSpec
from trainer.spec.stage import NOISE_COLUMNS
from trainer.step import accumulated_gradients
from trainer.trackers import attempts_of
from trainer.train import train

TRUE, DEVIATIONS = np.array([0.5, -0.2, 0.1, 0.3]), np.array([1.0, 2.0, 0.5, 1.5])
"""The gradient of every token has this mean and these standard deviations."""
MASK = np.array([[1, 1, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0], [0, 1, 0, 0]], bool)
"""Five microbatches of four tokens; what counts is unequal, and in one nothing does."""


def linear(parameters: Array, part: tuple[Array, Array]) -> tuple[Array, Sums]:
    """The mean over counted tokens of parameters . x, so that a token's gradient is x; 0 / 0 for an empty part."""
    x, keep = part
    loss = jnp.sum(jnp.where(keep, x @ parameters, 0.0)) / keep.sum()
    return loss, Sums(loss, keep.sum().astype(jnp.float32))


@jax.jit
def terms(x: Array, keep: Array) -> Array:
    """Both terms of a step whose tokens have the gradients `x` [parts, tokens, dimensions]."""
    gradient, sums, squares = accumulated_gradients(linear, jnp.zeros(x.shape[-1]), (x, keep), squares=True)
    assert squares is not None
    return noise_terms(squares, sums.weight, jnp.linalg.norm(gradient), keep.size)


def slow_terms(x: np.ndarray, keep: np.ndarray) -> tuple[float, float]:
    """By deviations of each part's mean from the whole mean, one number at a time."""
    means = [(int(k.sum()), x_part[k].mean(axis=0)) for x_part, k in zip(x, keep, strict=True) if k.any()]
    whole = x[keep].mean(axis=0)
    between = sum(count * sum((m - w) ** 2 for m, w in zip(mean, whole, strict=True)) for count, mean in means)
    counted = between / (len(means) - 1)
    return float(sum(w * w for w in whole) - counted / keep.sum()), float(counted * keep.size / keep.sum())


def drawn(random: np.random.Generator, steps: int) -> np.ndarray:
    return (TRUE + DEVIATIONS * random.normal(size=(steps, *MASK.shape, 4))).astype(np.float32)


def test_the_terms_are_those_of_slow_sums_however_ragged_the_masks() -> None:
    random = np.random.default_rng(0)
    for x in drawn(random, 20):
        keep = random.random(MASK.shape) < 0.6
        keep[:2, 0] = True
        np.testing.assert_allclose(terms(x, keep), slow_terms(x.astype(np.float64), keep), rtol=1e-4, atol=1e-5)


def test_both_estimates_are_unbiased_for_a_known_covariance() -> None:
    steps = 4000
    found = np.asarray(jax.vmap(partial(terms, keep=MASK))(drawn(np.random.default_rng(1), steps)), np.float64)
    truth = np.array([(TRUE**2).sum(), (DEVIATIONS**2).sum() * MASK.size / MASK.sum()])
    error = found.std(axis=0, ddof=1) / steps**0.5
    assert (error < 0.03 * np.array([1, 10])).all(), "the test has the power to see a bias"
    assert (np.abs(found.mean(axis=0) - truth) < 3 * error).all()


@pytest.mark.parametrize("counted", [0, 1])
def test_a_step_in_which_fewer_than_two_microbatches_count_says_nothing(counted: int) -> None:
    keep = MASK & (np.arange(5) < counted)[:, None]
    assert np.isnan(terms(drawn(np.random.default_rng(2), 1)[0], keep)).all()
    assert np.isfinite(noise_terms(PartSquares(jnp.float32(3), jnp.float32(2)), jnp.float32(8), jnp.float32(0.5), 8)).all()


def before[B](objective: Callable[[PyTree, B], tuple[Array, Sums]], parameters: PyTree, parts: B) -> tuple[PyTree, Sums]:
    """`accumulated_gradients` as it was before it could count squares (2026-11-26)."""
    value_and_gradient = jax.value_and_grad(objective, has_aux=True)
    first = jax.tree.map(lambda part: part[0], parts)

    def add(total: tuple[PyTree, Sums], part: B) -> tuple[tuple[PyTree, Sums], None]:
        (_, (loss, weight, routing, extras)), gradients = value_and_gradient(parameters, part)
        gradient_sum, sums = total

        def weighted(sum_so_far: Array, mean: Array) -> Array:
            return sum_so_far + jnp.where(weight > 0, weight * mean, 0.0)

        added = Sums(
            weighted(sums.loss, loss),
            sums.weight + weight,
            jax.tree.map(jnp.add, sums.routing, routing),
            jax.tree.map(weighted, sums.extras, extras),
        )
        return (jax.tree.map(weighted, gradient_sum, gradients), added), None

    shapes = jax.eval_shape(objective, parameters, first)[1]
    nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    (gradient_sum, sums), _ = jax.lax.scan(add, (jax.tree.map(jnp.zeros_like, parameters), nothing), parts)
    count = jnp.where(sums.weight > 0, sums.weight, 1.0)
    gradients, loss, extras = jax.tree.map(lambda total: total / count, (gradient_sum, sums.loss, sums.extras))
    return gradients, sums._replace(loss=loss, extras=extras)


def test_where_it_is_off_the_program_is_the_one_without_it() -> None:
    parameters, parts = jnp.zeros(4), (jnp.asarray(drawn(np.random.default_rng(3), 1)[0]), jnp.asarray(MASK))

    def program(of: Callable) -> str:
        return jax.jit(lambda parameters, parts: of(linear, parameters, parts)).lower(parameters, parts).as_text()

    assert program(accumulated_gradients) == program(before)
    assert program(partial(accumulated_gradients, squares=True)) != program(before)


def noisy(**changes: object) -> RunSpec:
    return tiny_spec(**{"microbatch_size": 2, "gradient_noise": True} | changes)


@pytest.mark.parametrize(
    ("changes", "size"),
    [({"microbatch_size": None}, 4), ({"microbatch_size": 4}, 4), ({"batch_size": (BatchPhase(0, 4), BatchPhase(7, 2))}, 2)],
)
def test_a_step_of_one_microbatch_is_refused_by_name(changes: dict[str, object], size: int) -> None:
    assert noisy().gradient_noise
    with pytest.raises(ValueError, match=rf"run\.gradient_noise is True; .* a step of {size} sequences is one microbatch"):
        noisy(**changes)


def test_averages_leave_out_steps_without_terms_and_say_no_scale_below_zero() -> None:
    recent = RecentNoise()
    assert recent.values() == {}
    for step in ((1.0, 8.0), (float("nan"), 1e9), (None, None), (3.0, 4.0)):
        recent.add(step)
    assert recent.values() == {"noise/gradient_square": 2.0, "noise/trace": 6.0, "noise/scale_tokens": 3.0}
    recent.add((-9.0, 6.0))
    assert np.isnan(recent.values()["noise/scale_tokens"])


def test_a_resumed_run_has_the_terms_and_the_averages_of_one_that_was_not_stopped(tmp_path: Path) -> None:
    job = job_of(tmp_path, replace(SHORT, name="noisy", microbatch_size=2, gradient_noise=True, save_every_steps=6))
    whole = train(job)
    table = metrics_of(whole)
    assert np.isfinite(table.select(NOISE_COLUMNS).to_numpy()).all() and (table["noise_trace"] > 0).all()
    last = at_step(job, 12)
    assert last is not None
    job.store.delete(last)
    again = train(job)
    assert again.data_version == whole.data_version and metrics_of(again).equals(table)
    lines = [line for line in attempts_of(job_folder(job) / "metrics.jsonl") if "step" in line]
    names = sorted(name for name in lines[0] if name.startswith("noise/"))
    assert len(names) == 3 and [line["step"] for line in lines] == [*range(1, 13), *range(7, 13)]
    first, resumed = ([[line[name] for name in names] for line in part] for part in (lines[6:12], lines[12:]))
    assert resumed == first
    assert lines[11]["noise/trace"] == pytest.approx(table["noise_trace"].mean())


ON_MESHES = """
import sys
from pathlib import Path
from lineage.jobs.job import read_job
from trainer.running import Running
from trainer.spec.mesh import MeshShape
from trainer.train import train
for argument in sys.argv[1:]:
    job, mesh = argument.split("@")
    train(read_job(Path(job)), Running(mesh=MeshShape.parse(mesh)))
"""


@pytest.mark.slow
def test_a_mesh_of_four_devices_estimates_what_one_device_does(tmp_path: Path) -> None:
    """The gradient of a microbatch is split over the devices: its norm is that of the whole, not of a device's part."""
    run = replace(SHORT, name="noisy", batch_size=8, microbatch_size=4, gradient_noise=True, num_steps=6)
    meshes = ("data=4", "data=2,tensor=2")
    jobs = {mesh: job_of(tmp_path / mesh, run) for mesh in ("one", *meshes)}
    wanted = metrics_of(train(jobs["one"]))
    ran = subprocess.run(
        [sys.executable, "-c", ON_MESHES, *(f"{tmp_path / mesh / 'job.json'}@{mesh}" for mesh in meshes)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
                          "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    trace = wanted["noise_trace"].to_numpy()
    assert (trace > 0).all()
    for mesh in meshes:
        made = at_step(jobs[mesh], run.num_steps)
        assert made is not None, mesh
        found = metrics_of(made)
        np.testing.assert_allclose(found["noise_trace"], trace, rtol=1e-4, err_msg=mesh)
        tokens = run.batches.phases[0].batch_size * run.seq_len
        off = np.abs(found["gradient_square"].to_numpy() - wanted["gradient_square"].to_numpy())
        assert (off < 1e-4 * (wanted["gradient_square"].abs().to_numpy() + trace / tokens)).all(), mesh
