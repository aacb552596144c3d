"""The parts of `gpu.py` about whole models: the device's numbers against the CPU's, grouped products, serving."""

import json
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from benchmarks.gpu_parts import TINY, TINY_MOE, best
from serving.server.engine import Engine, EngineSettings
from trainer.batch import Batch
from trainer.initial_state import initial_state
from trainer.model.build import init_model
from trainer.model.expert_products import ExpertWeights, experts_output
from trainer.model.parts import parted
from trainer.spec.compute import ComputeConfig, ExpertEngine, cannot_multiply
from trainer.spec.config import RunSpec
from trainer.spec.llama import LlamaConfig
from trainer.spec.models import ModelConfig
from trainer.spec.optimizers import AdamWConfig
from trainer.spec.schedules import WarmupStableDecay
from trainer.step import StepState, compiled_step

APART = 1e-3
"""Largest difference of float32 losses between device and CPU over five steps, relative."""
GROUPED = 0.6
"""Share of the dense product's rate that the grouped product is to reach."""


def main(part: str, *, tiny: bool) -> None:
    parts = {"numbers": numbers, "experts": experts, "serving": serving}
    print(json.dumps(parts[part](tiny)))


def numbers(tiny: bool) -> dict:
    """Five steps of a dense and a mixed model in float32, on the device and on the CPU. Raises: SystemExit if losses differ."""
    differences = {}
    wide = {} if tiny else {"hidden_dim": 256, "intermediate_dim": 512, "max_seq_len": 128}
    for name, model in (("dense", replace(TINY, **wide)), ("moe", replace(TINY_MOE, **wide))):
        here = losses_of(model)
        with jax.default_device(jax.devices("cpu")[0]):
            there = losses_of(model)
        apart = max(abs(a - b) / abs(b) for a, b in zip(here, there, strict=True))
        differences[name] = {"device": here, "cpu": there, "apart": apart}
        print(f"{name:8} losses {here[0]:.5f} to {here[-1]:.5f}, apart from the CPU's by {apart:.1e} (limit {APART:.0e})")
        if apart > APART:
            raise SystemExit(f"{name}: the device's losses {here} are not the CPU's {there}")
    return differences


def losses_of(model: ModelConfig, steps: int = 5) -> list[float]:
    """Losses of a few steps by the plainest ways to compute, which every device has."""
    plain = ComputeConfig(attention="reference", experts="reference", strict=True)
    geometry = {"seq_len": model.max_seq_len, "batch_size": 4, "num_steps": steps, "seed": 0}
    spec = RunSpec("gpu", model, AdamWConfig(), WarmupStableDecay(1e-3, 0, 0.0), compute=plain, **geometry)
    fresh = initial_state(spec)
    parameters, router, _ = parted(fresh.model)
    state = StepState(parameters, fresh.optimizer, router=router if jax.tree.leaves(router) else None)
    step_fn, random, losses = compiled_step(spec, fresh.model), np.random.default_rng(0), []
    for step in range(steps):
        tokens = random.integers(0, model.vocab_size, (4, model.max_seq_len)).astype(np.int32)
        state, read = step_fn(state, Batch(tokens), step)
        losses.append(float(read.loss))
    return losses


def experts(tiny: bool) -> dict:
    """Every grouped product of the platform against all experts by masks, and its rate against a dense product of equal FLOPs.

    Raises: SystemExit for gradients that differ.
    """
    rows, dim, width, count, per_token = (256, 32, 64, 8, 2) if tiny else (16_384, 1024, 2048, 8, 2)
    platform, chip = jax.default_backend(), getattr(jax.devices()[0], "compute_capability", None)
    keys = jax.random.split(jax.random.PRNGKey(0), 6)
    dtype = jnp.float32 if tiny else jnp.bfloat16
    x = jax.random.normal(keys[0], (rows, dim), dtype)
    shapes = ((count, dim, width), (count, dim, width), (count, width, dim))
    weights = ExpertWeights(*(jax.random.normal(k, s, dtype) * 0.03 for k, s in zip(keys[1:4], shapes, strict=True)))
    skewed = jax.random.uniform(keys[4], (rows, count)) + 0.1 * jnp.arange(count)  # groups of unequal sizes
    ids = jnp.argsort(skewed, axis=1)[:, :per_token]
    shares = jnp.full((rows, per_token), 0.5, jnp.float32)

    def value(engine: ExpertEngine, of_rows: Array, of_weights: ExpertWeights) -> Array:
        out = experts_output(of_rows, ids[: len(of_rows)], shares[: len(of_rows)], of_weights, engine, "swiglu")
        return jnp.sum(out.astype(jnp.float32) ** 2)

    gate, up, down = (jnp.concatenate([w[0]] * per_token, axis) for w, axis in zip(weights, (1, 1, 0), strict=True))

    def dense(a: Array, w: ExpertWeights) -> Array:
        return jnp.sum(((jax.nn.silu(a @ w.gate) * (a @ w.up)) @ w.down).astype(jnp.float32) ** 2)

    few, plain = x[:256], jax.jit(jax.grad(dense, (0, 1)))
    exact = jax.jit(jax.grad(lambda a, w: value("reference", a, w), (0, 1)))(few, weights)
    dense_seconds = best(lambda: plain(x, ExpertWeights(gate, up, down)))
    results: dict = {"dense_ms": 1e3 * dense_seconds}
    for engine in ("tiled", "ragged", "hopper"):
        name = "bfloat16" if dtype == jnp.bfloat16 else "float32"
        if why := cannot_multiply(engine, platform, chip, name, (dim, width)) or (
            engine == "tiled" and not tiny and "for CPUs"
        ):
            print(f"{engine:8} not here: {why}")
            continue
        grouped = jax.jit(jax.grad(lambda a, w, engine=engine: value(engine, a, w), (0, 1)))
        apart = furthest(grouped(few, weights), exact)
        if apart > (1e-4 if tiny else 5e-2):
            raise SystemExit(f"grouped product {engine}: gradients differ from the plain form by {apart:.1e}")
        seconds = best(lambda grouped=grouped: grouped(x, weights))
        results[engine] = {"apart": apart, "ms": 1e3 * seconds, "share": dense_seconds / seconds}
        print(
            f"{engine:8} apart {apart:.1e}; {1e3 * seconds:.2f} ms, {dense_seconds / seconds:.2f} of the dense product's rate"
        )
    reached = max(each["share"] for each in results.values() if isinstance(each, dict))
    print(f"experts: share {reached:.2f}, bar {GROUPED}: {'reached' if reached >= GROUPED else 'MISSED'}")
    return results


def furthest(ours: tuple, exact: tuple) -> float:
    """Largest difference of any array, as a share of its largest element."""
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(exact), strict=True)
    return max(float(jnp.abs(a - b).max() / jnp.abs(b).max()) for a, b in pairs)


def serving(tiny: bool) -> dict:
    """Tokens a second of the server's engine: a prompt in blocks, then 16 rows one token at a time."""
    model = TINY if tiny else LlamaConfig(32_000, 512, 1408, 8, 8, 8, 1024)
    rows, steps = (4, 4) if tiny else (16, 128)
    decoder = init_model(model, key=jax.random.PRNGKey(0)).decoder()
    engine = Engine(decoder, model, EngineSettings(rows=rows, block_tokens=16 if tiny else 64, prefix_bytes=0))
    lane = engine.lane_for(model.max_seq_len)
    block, random = engine.settings.block_tokens, np.random.default_rng(0)
    prompt = random.integers(0, model.vocab_size, block).tolist()
    prefill = best(lambda: engine.prefill(lane, 0, prompt, 0, None)[0], 5)
    tokens = np.zeros(rows, np.int32)
    decode = best(lambda: jnp.asarray(engine.decode(lane, tokens, np.full(rows, block, np.int32))), steps)
    rates = {"rows": rows, "prefill_tokens_per_second": block / prefill, "decode_tokens_per_second": rows / decode}
    print(f"prefill {block / prefill:,.0f} tokens/s, decode of {rows} rows {rows / decode:,.0f} tokens/s")
    return rates


if __name__ == "__main__":
    main(sys.argv[1], tiny="--tiny" in sys.argv[2:])
