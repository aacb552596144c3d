"""Attention back-ends against the formula in float64: values, gradients, and what the mask guarantees."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_run import ROOT

from trainer.model.attention import attention, splash_attention
from trainer.model.attention_blocked import blocked_attention
from trainer.spec.compute import Compute, ComputeConfig, Work, resolve

CPU = resolve(ComputeConfig(), "cpu", Work(seq_len=16, head_dim=4))
SEGMENTS = np.array([[0] * 5 + [1] * 4 + [2] * 14, [3] * 23], np.int32)


def inputs(
    length: int = 23, batch: int = 2, kv_heads: int = 2, group: int = 3, size: int = 4, seed: int = 0
) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    shapes = [(batch, length, kv_heads, group, size), *[(batch, length, kv_heads, size)] * 2]
    return [random.normal(size=shape, scale=2.0).astype(np.float32) for shape in shapes]


def slow(q: np.ndarray, k: np.ndarray, v: np.ndarray, segments: np.ndarray | None, window: int | None) -> np.ndarray:
    """Row by row, over the keys that the row sees."""
    out = np.zeros(q.shape, np.float64)
    batch, length, kv_heads, group, size = q.shape
    for b, s, h, g in np.ndindex(batch, length, kv_heads, group):
        reach = length if window is None else window
        seen = [t for t in range(s + 1) if s - t < reach and (segments is None or segments[b, t] == segments[b, s])]
        scores = k[b, seen, h].astype(np.float64) @ q[b, s, h, g] / np.sqrt(size)
        weights = np.exp(scores - scores.max())
        out[b, s, h, g] = weights / weights.sum() @ v[b, seen, h]
    return out


def blocked(block: int, one_by_one: bool) -> Compute:
    return replace(CPU, block=block, one_by_one=one_by_one)


BACKENDS = {
    "reference": replace(CPU, attention="reference"),
    "xla": replace(CPU, attention="xla"),
    "blocks of 8, one by one": blocked(8, True),
    "blocks of 5, all at once": blocked(5, False),
    "one block": blocked(128, True),
}


@pytest.mark.parametrize("compute", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize(
    ("segments", "window"),
    [
        pytest.param(None, None, id="whole"),
        pytest.param(SEGMENTS, 7, id="segments-7"),
        pytest.param(None, 7, id="whole-7", marks=pytest.mark.slow),
        pytest.param(SEGMENTS, None, id="segments", marks=pytest.mark.slow),
    ],
)
def test_values_are_those_of_the_formula(compute: Compute, segments: np.ndarray | None, window: int | None) -> None:
    q, k, v = inputs()
    actual = jax.jit(lambda q, k, v: attention(q, k, v, segments, window, compute))(q, k, v)
    np.testing.assert_allclose(actual, slow(q, k, v, segments, window), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("length", "block", "window", "segmented", "one_by_one"),
    [(17, 8, None, False, True), (17, 5, 4, True, False), (8, 8, 1, False, False), (9, 16, None, True, True)],
)
def test_gradients_of_blocks_are_those_of_all_scores_at_once(
    length: int, block: int, window: int | None, segmented: bool, one_by_one: bool
) -> None:
    """The reference is differentiated by JAX, and equal to the formula by the test above."""
    q, k, v = inputs(length)
    segments = np.sort(np.random.default_rng(1).integers(0, 3, (2, length)), axis=1).astype(np.int32) if segmented else None
    toward = np.random.default_rng(2).normal(size=q.shape).astype(np.float32)

    def gradients(compute: Compute) -> tuple[jax.Array, ...]:
        objective = lambda *qkv: (attention(*qkv, segments, window, compute) * toward).sum()  # noqa: E731
        return jax.jit(jax.grad(objective, argnums=(0, 1, 2)))(q, k, v)

    for actual, wanted in zip(gradients(blocked(block, one_by_one)), gradients(BACKENDS["reference"]), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)


def test_scores_of_a_whole_sequence_never_exist() -> None:
    """The compiled gradient has rows of a block by keys, and nothing with a row and a column a position."""
    length, block = 256, 32
    q, k, v = (jnp.asarray(each) for each in inputs(length, 1, 1, 1))
    lowered = jax.jit(jax.grad(lambda q: attention(q, k, v, None, None, blocked(block, True)).sum())).lower(q).as_text()
    assert f"{length}x{length}x" not in lowered
    assert f"{block}x{length}x" in lowered


@pytest.mark.parametrize("window", [pytest.param(None, marks=pytest.mark.slow), 40])
def test_the_tpu_kernel_interpreted(window: int | None) -> None:
    """Values only: its gradients are JAX's own kernel too. Blocks of 128 are the least that it takes."""
    q, k, v = inputs(128, 1, 2, 1, 128)
    segments = np.repeat(np.arange(2), 64)[None].astype(np.int32)
    actual = splash_attention(jnp.asarray(q), jnp.asarray(k), jnp.asarray(v), jnp.asarray(segments), window, interpret=True)
    np.testing.assert_allclose(actual, slow(q, k, v, segments, window), rtol=1e-4, atol=1e-4)


CUDNN, CUDNN_BACK, SPLASH = "__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward", "tpu_custom_call"
KERNELS = [("tpu", "splash", [SPLASH] * 3), ("cuda", "cudnn", [CUDNN, CUDNN_BACK])]
KERNELS_OF_MODELS = [
    ("tpu", "splash", "named", [SPLASH] * 3),
    ("tpu", "splash", "offload", [SPLASH] * 4),
    ("cuda", "cudnn", "named", [CUDNN, CUDNN_BACK]),
    ("cuda", "cudnn", "offload", [CUDNN, CUDNN, CUDNN_BACK]),
]


@pytest.fixture(scope="module")
def over_four_devices() -> dict[str, list[str]]:
    """What one process says over four devices to each command of the tests below, in lines."""
    asked = ["splash", *(f"lowered {platform} {backend}" for platform, backend, _ in KERNELS)]
    asked += [f"model {platform} {backend} {remat}" for platform, backend, remat, _ in KERNELS_OF_MODELS]
    script = str(Path(__file__).with_name("attention_on_a_mesh.py"))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run([sys.executable, script, *asked], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    parts = [part.splitlines() for part in ran.stdout.split("# ")[1:]]
    return {command: lines for command, *lines in parts}


def test_the_tpu_kernel_over_a_mesh_reads_and_learns_as_the_formula_does(over_four_devices: dict[str, list[str]]) -> None:
    """Two rows of the batch by two of the heads, with segments and a window, interpreted; the script compares."""
    assert sum("differ by" in line for line in over_four_devices["splash"]) == 4


@pytest.mark.parametrize(("platform", "backend", "calls"), KERNELS)
def test_a_kernel_is_compiled_for_a_mesh_with_the_rows_and_heads_of_one_device(
    over_four_devices: dict[str, list[str]], platform: str, backend: str, calls: list[str]
) -> None:
    """It is compiled as far as possible without such a machine: jax itself refuses a TPU kernel over several devices.

    Of 4 rows and 2 x 2 heads, a device of data=2, tensor=2 has 2 rows and 1 x 2 heads: no shape begins with a 4.
    """
    lines = over_four_devices[f"lowered {platform} {backend}"]
    assert [line.split()[0] for line in lines] == calls
    assert all(re.findall(r"tensor<(\d+)x", line)[0] == "2" for line in lines), lines


@pytest.mark.parametrize(("platform", "backend", "remat", "calls"), KERNELS_OF_MODELS)
def test_kernels_that_named_keeps_are_not_run_again_and_what_offload_moves_is_moved(
    over_four_devices: dict[str, list[str]], platform: str, backend: str, remat: str, calls: list[str]
) -> None:
    """Of a layer's gradient as it is compiled over a mesh: a kernel forward, one or two backward, and forward again or not."""
    lines = over_four_devices[f"model {platform} {backend} {remat}"]
    assert [line.split()[0] for line in lines if not line.startswith("moved")] == calls
    moves = ["moved to pinned_host", "moved to device"]  # a layer's input, and back
    assert [line for line in lines if line.startswith("moved")] == (moves if remat == "offload" else [])


def test_bfloat16_keeps_its_softmax_wide() -> None:
    q, k, v = (jnp.asarray(each, jnp.bfloat16) for each in inputs())
    wanted = slow(*(np.asarray(each, np.float32) for each in (q, k, v)), None, None)
    for compute in BACKENDS.values():
        actual = jax.jit(lambda q, k, v, compute=compute: attention(q, k, v, None, None, compute))(q, k, v)
        assert actual.dtype == jnp.bfloat16
        np.testing.assert_allclose(np.asarray(actual, np.float32), wanted, atol=0.06)


def test_grouping_of_the_batch_does_not_change_a_bit() -> None:
    q, k, v = inputs(16, batch=4, group=1)
    arrays = (q.transpose(0, 2, 3, 1, 4), k.swapaxes(1, 2), v.swapaxes(1, 2), None, None, 8)
    one, two = (jax.jit(lambda at_once=at_once: blocked_attention(*arrays, at_once))() for at_once in (1, 2))
    np.testing.assert_array_equal(one, two)
