"""Attention kernels over a mesh of four virtual CPU devices, in a process of its own: test_attention starts it.

`splash`: values and gradients of the interpreted kernel against the formula. `lowered PLATFORM BACKEND`, and of a whole model
`model PLATFORM BACKEND REMAT`: the kernels of a gradient's program for a platform that is not here, with the shapes of their
results, and the memories that arrays are moved to. Each argument is such a command; a line `# COMMAND` precedes its answer.
"""

import os
import re
import sys
from collections.abc import Callable

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax._src.cudnn import fused_attention_stablehlo
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from trainer.model.attention import attention, reference_attention, splash_attention
from trainer.model.build import model_shapes
from trainer.objectives import next_token_loss
from trainer.spec.compute import Compute, ComputeConfig, Work, resolve
from trainer.spec.llama import LlamaConfig
from trainer.spec.mesh import BATCH_AXES, Layout, MeshShape

BATCH, LENGTH, KV_HEADS, GROUP, SIZE = 4, 128, 2, 2, 64


def shapes(layout: Layout, dtype: str) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Queries, keys, values, segment ids, laid as activations are: rows over `data`, heads over `tensor`."""

    def laid(shape: tuple[int, ...], dtype: str, *over: object) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(layout.mesh, PartitionSpec(BATCH_AXES, *over)))

    keys = laid((BATCH, LENGTH, KV_HEADS, SIZE), dtype, None, "tensor")
    return laid((BATCH, LENGTH, KV_HEADS, GROUP, SIZE), dtype, None, "tensor"), keys, keys, laid((BATCH, LENGTH), "int32")


def splash(layout: Layout, window: int | None) -> None:
    random = np.random.default_rng(0)
    laid = shapes(layout, "float32")
    segments = np.sort(random.integers(0, 3, (BATCH, LENGTH)), axis=1).astype(np.int32)
    host = [*(random.normal(size=each.shape).astype(np.float32) for each in laid[:3]), segments]
    toward = random.normal(size=laid[0].shape).astype(np.float32)

    def values_and_gradients(backend: Callable[..., Array], arrays: list) -> list[Array]:
        def objective(q: Array, k: Array, v: Array, s: Array) -> tuple[Array, Array]:
            out = backend(q, k, v, s)
            return (out * toward).sum(), out

        (_, out), gradients = jax.jit(jax.value_and_grad(objective, argnums=(0, 1, 2), has_aux=True))(*arrays)
        return [out, *gradients]

    with layout.pinned():
        placed = [jax.device_put(array, each.sharding) for array, each in zip(host, laid, strict=True)]
        sharded = values_and_gradients(lambda q, k, v, s: splash_attention(q, k, v, s, window, interpret=True), placed)
        assert sharded[0].sharding.shard_shape(sharded[0].shape) == (2, LENGTH, 1, GROUP, SIZE), sharded[0].sharding
    wanted = values_and_gradients(lambda q, k, v, s: reference_attention(q, k, v, s, window), host)
    for name, one, other in zip(("values", "q", "k", "v"), sharded, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4, err_msg=name)
        print(f"{name} differ by {np.abs(np.asarray(one) - np.asarray(other)).max():.1e}")


def resolved(platform: str, backend: str, remat: str) -> Compute:
    config = ComputeConfig(dtype="bfloat16", remat=remat)  # type: ignore[arg-type]
    compute = resolve(config, {"cuda": "gpu"}.get(platform, platform), Work(LENGTH, SIZE))
    assert compute.attention == backend, compute
    return compute


def lowered(layout: Layout, platform: str, backend: str) -> str:
    compute = resolved(platform, backend, "none")
    queries, keys, values, segments = shapes(layout, "bfloat16")

    def gradients(q: Array, k: Array, v: Array, s: Array) -> tuple[Array, ...]:
        ids = s if backend == "splash" else None
        return jax.grad(lambda *qkv: attention(*qkv, ids, None, compute).astype(jnp.float32).sum(), argnums=(0, 1, 2))(q, k, v)

    with layout.pinned():
        return jax.jit(gradients).trace(queries, keys, values, segments).lower(lowering_platforms=(platform,)).as_text()


def model(layout: Layout, platform: str, backend: str, remat: str) -> str:
    """The gradient of a Llama's loss, whose layers are one compiled layer."""
    compute = resolved(platform, backend, remat)
    config = LlamaConfig(64, KV_HEADS * GROUP * SIZE, 64, 2, KV_HEADS * GROUP, KV_HEADS, LENGTH)
    dynamic, static = eqx.partition(
        model_shapes(config),
        lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct),
    )
    placed = jax.tree.map(
        lambda shape, where: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=where), dynamic, layout.shardings(dynamic)
    )
    tokens = shapes(layout, "bfloat16")[3]

    def gradients(parameters: PyTree, tokens: Array) -> PyTree:
        return jax.grad(lambda p: next_token_loss(eqx.combine(p, static), tokens, 0.0, compute=compute)[0])(parameters)

    with layout.pinned():
        return jax.jit(gradients).trace(placed, tokens).lower(lowering_platforms=(platform,)).as_text()


def answer(over: Layout, command: str, *words: str) -> None:
    if command == "splash":
        splash(over, 40)
        return
    text = lowered(over, *words) if command == "lowered" else model(over, *words)
    for call in re.findall(r"stablehlo.custom_call @(tpu_custom_call|__cudnn\S+)\(.*-> (.*)", text):
        print(*call)
    for memory in re.findall(r"@annotate_device_placement\(.*_xla_buffer_placement = \"(\w+)\"", text):
        print("moved to", memory)


if __name__ == "__main__":
    # jax reads this from the machine that it lowers on, not from the one that it lowers for
    fused_attention_stablehlo.check_cudnn_version = lambda: 91_300
    for asked in sys.argv[1:]:
        print("#", asked)
        answer(Layout.of(MeshShape.parse("data=2,tensor=2")), *asked.split())
