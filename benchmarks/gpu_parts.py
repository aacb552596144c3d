"""The parts of `gpu.py` that are one process each: a table as it comes, then one line of JSON."""

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from trainer.batch import Batch
from trainer.initial_state import initial_state
from trainer.meter import memory
from trainer.model.attention import attention, reference_attention
from trainer.model.parts import parted
from trainer.spec.compute import BACKENDS, Compute, ComputeConfig, Work, cannot, resolve
from trainer.spec.config import RunSpec
from trainer.spec.flops import arithmetic
from trainer.spec.llama import LlamaConfig
from trainer.spec.moe import ExpertsConfig, MoeConfig, RouterConfig
from trainer.spec.optimizers import AdamWConfig
from trainer.spec.schedules import WarmupStableDecay
from trainer.step import StepState, compiled_step


@dataclass(frozen=True)
class Training:
    """A model, its batch, the ways to compute it that are tried, and the bar."""

    model: LlamaConfig | MoeConfig
    batch: int
    ways: tuple[ComputeConfig, ...]
    bar: tuple[str, float]
    """What is to be reached: a number of the row, and how much."""


def ways(*, remat: str, attentions: tuple[str, ...], layers: tuple[str, ...]) -> tuple[ComputeConfig, ...]:
    pairs = itertools.product(attentions, layers)
    return tuple(ComputeConfig("bfloat16", attention, remat, how, strict=True) for attention, how in pairs)  # pyrefly: ignore


TRAININGS = {
    "llama_50m": Training(
        LlamaConfig(128_256, 192, 448, 4, 2, 2, 1024, tie_embeddings=False),
        128,
        ways(remat="none", attentions=("cudnn",), layers=("unrolled", "scan")),
        ("tokens_per_second", 1.2e6),
    ),
    "dense_1b": Training(
        LlamaConfig(128_256, 2048, 5632, 24, 16, 16, 2048),
        16,
        ways(remat="named", attentions=("cudnn",), layers=("scan",)),
        ("mfu_causal", 0.5),
    ),
}
TRAININGS["moe_256m"] = Training(
    MoeConfig(50_304, 768, 768, 8, 12, 4, 1024, qk_norm="none", experts=ExpertsConfig(8, 1088), router=RouterConfig(2)),
    32,
    ways(remat="none", attentions=("cudnn",), layers=("scan",)),
    ("mfu_causal", 0.2),
)
TRAININGS["float8"] = replace(
    TRAININGS["dense_1b"], ways=tuple(replace(way, float8=True) for way in TRAININGS["dense_1b"].ways)
)
"""`dense_1b` with float8 products; the share is of the bfloat16 rate, so that the two rows compare."""
TINY_MOE = MoeConfig(512, 64, 128, 2, 4, 2, 64, qk_norm="none", experts=ExpertsConfig(8, 64), router=RouterConfig(2))
TINY = LlamaConfig(512, 64, 128, 2, 4, 2, 64)


def main(part: str, *, tiny: bool) -> None:
    parts: dict[str, Callable[[bool], dict]] = {"machine": machine, "attention": attentions}
    results = parts[part](tiny) if part in parts else training(part, tiny)
    print(json.dumps(results))


def machine(tiny: bool) -> dict:
    """Rates of products and of a copy, the best of ten."""
    device, side = jax.devices()[0], 256 if tiny else 8192
    facts: dict = {"device": device.device_kind, "platform": device.platform, "jax": jax.__version__}
    for dtype in ("bfloat16", "float32"):
        square = jax.random.normal(jax.random.PRNGKey(0), (side, side), dtype)
        product = jax.jit(jnp.matmul)
        facts[f"{dtype}_tflops"] = 2 * side**3 / best(lambda product=product, square=square: product(square, square)) / 1e12
    flat = jnp.ones(side * side, jnp.float32)
    moved = jax.jit(lambda x: x + 1)
    facts["copy_gb_per_second"] = 2 * flat.nbytes / best(lambda: moved(flat)) / 1e9
    for name, value in facts.items():
        print(f"{name:20} {value if isinstance(value, str) else f'{value:,.2f}'}")
    return facts


def best(call: Callable[[], Array], times: int = 10) -> float:
    """Seconds of the fastest call after a first."""
    jax.block_until_ready(call())
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - began)
    return min(seconds)


@dataclass(frozen=True)
class Case:
    """What attention is asked for."""

    dtype: str
    segmented: bool = False
    windowed: bool = False

    def __str__(self) -> str:
        return f"{self.dtype}{', segments' if self.segmented else ''}{', window' if self.windowed else ''}"


CASES = (Case("bfloat16"), Case("float32"), Case("bfloat16", segmented=True), Case("bfloat16", windowed=True))
LIMITS = {"bfloat16": 3e-2, "float32": 2e-3}
"""Of the largest difference, as a share of the largest element; float32 products go by way of TF32 on a GPU."""


def attentions(tiny: bool) -> dict:
    """Every back-end in every case: how far from the formula in float32, how fast. Raises: SystemExit for one too far."""
    batch, length, kv_heads, group, size = (2, 64, 2, 2, 16) if tiny else (8, 2048, 4, 4, 128)
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    wide = (batch, length, kv_heads, group, size)
    q, toward = (jax.random.normal(key, wide, jnp.float32) for key in (keys[0], keys[3]))
    k, v = (jax.random.normal(key, (batch, length, kv_heads, size), jnp.float32) for key in keys[1:3])
    segments = jnp.asarray(np.arange(length) // (length // 4 + 1), jnp.int32)[None].repeat(batch, 0)
    results = {}
    for case in CASES:
        work = Work(length, size, case.segmented, length // 4 if case.windowed else None)
        results |= compared(
            case, work, [each.astype(case.dtype) for each in (q, k, v)], segments if case.segmented else None, toward
        )
    return results


def compared(case: Case, work: Work, arrays: list[Array], ids: Array | None, toward: Array) -> dict:
    """Back-ends that can do a case, beside the formula."""
    wide = [each.astype(jnp.float32) for each in arrays]
    exact = values_and_gradients(lambda *a: reference_attention(*a, ids, work.window), wide, toward)
    results, platform = {}, jax.default_backend()
    for backend in BACKENDS:
        name = f"{backend}, {case}"
        if why := cannot(backend, platform, case.dtype, work):
            print(f"{name:40} not here: {why}")
            continue
        compute = resolve(ComputeConfig(case.dtype, backend, strict=True), platform, work)  # pyrefly: ignore

        def call(*a: Array, compute: Compute = compute) -> Array:
            return attention(*a, ids, work.window, compute)

        made = values_and_gradients(call, arrays, toward)
        both = zip(made, exact, strict=True)
        apart = max(float(jnp.abs(m.astype(jnp.float32) - e).max() / jnp.abs(e).max()) for m, e in both)
        gradient = jax.jit(gradients(call))
        results[name] = {
            "largest_difference": apart,
            "ms": best(lambda gradient=gradient: gradient(toward, *arrays)[0], 5) * 1e3,
        }
        limit = LIMITS[case.dtype]
        print(f"{name:40} apart {apart:.1e} (limit {limit:.0e}), gradient {results[name]['ms']:8.2f} ms", flush=True)
        if apart > limit:
            raise SystemExit(f"{name}: differs from the formula by {apart:.1e}")
    return results


def values_and_gradients(call: Callable[..., Array], arrays: list[Array], toward: Array) -> list[Array]:
    return [jax.jit(call)(*arrays), *jax.jit(gradients(call))(toward, *arrays)]


def gradients(call: Callable[..., Array]) -> Callable[..., tuple[Array, ...]]:
    """Of sum(result * toward) by queries, keys and values. `toward` is an argument, because XLA folds constants slowly."""
    return jax.grad(lambda toward, *arrays: (call(*arrays).astype(jnp.float32) * toward).sum(), argnums=(1, 2, 3))


def training(name: str, tiny: bool) -> dict:
    """Steps of every way to compute; the best is held against the bar."""
    case = TRAININGS[name]
    if tiny:
        plain = [ComputeConfig(layers=way.layers, remat=way.remat) for way in case.ways]
        narrow = [ComputeConfig("bfloat16", layers=w.layers, remat=w.remat, float8=True) for w in case.ways if w.float8]
        tried = tuple(dict.fromkeys(narrow or plain))
        small = TINY_MOE if isinstance(case.model, MoeConfig) else TINY
        case = replace(case, model=replace(small, tie_embeddings=case.model.tie_embeddings), batch=4, ways=tried)
    rows = []
    for way in case.ways:
        rows.append(steps_of(case, way))
        row = rows[-1]
        shares = "".join(f", {kind} {100 * row[kind]:.1f} %" for kind in ("mfu", "mfu_causal") if kind in row)
        tried_way = f"{way.attention}, {way.layers}, remat {way.remat}{', float8' if way.float8 else ''}"
        print(
            f"{tried_way}: {row['tokens_per_second']:,.0f} tokens/s{shares}, "
            f"{1e3 * row['step_seconds']:.1f} ms a step ({row['slowest'] * 1e3:.1f} the slowest), compiled in "
            f"{row['compile_seconds']:.0f} s, "
            f"peak {row.get('device_peak_bytes', 0) / 2**30:.1f} GiB, loss {row['losses'][0]:.3f} to {row['losses'][-1]:.3f}",
            flush=True,
        )
    kind, bar = case.bar
    reached = max(row.get(kind, 0.0) for row in rows)
    print(f"{name}: {kind} {reached:,.4g}, bar {bar:,.4g}: {'reached' if reached >= bar else 'MISSED'}")
    return {"rows": rows, "bar": bar, "reached": reached}


def steps_of(run: Training, way: ComputeConfig, steps: int = 20) -> dict:
    """The step as a run takes it, on the same few batches of random tokens; nothing waits for a step but the last."""
    model, batch = run.model, run.batch
    schedule = WarmupStableDecay(3e-4, warmup_steps=0, decay_frac=0.0)
    geometry = {"seq_len": model.max_seq_len, "batch_size": batch, "num_steps": steps, "seed": 0}
    spec = RunSpec("gpu", model, AdamWConfig(), schedule, compute=way, **geometry)
    fresh = initial_state(spec)
    step_fn = compiled_step(spec, fresh.model)
    parameters, router, _ = parted(fresh.model)
    state = StepState(parameters, fresh.optimizer, router=router if jax.tree.leaves(router) else None)
    random = np.random.default_rng(0)
    batches = [random.integers(0, model.vocab_size, (batch, model.max_seq_len)).astype(np.int32) for _ in range(4)]
    began = time.perf_counter()
    state, read = step_fn(state, Batch(batches[0]), 0)
    jax.block_until_ready(state)
    compiled, losses, seconds = time.perf_counter() - began, [float(read.loss)], []
    waiting = []
    began = time.perf_counter()
    for step in range(1, steps):
        state, read = step_fn(state, Batch(batches[step % 4]), step)
        waiting.append(read.loss)
        if len(waiting) > 2:  # as a run does: read late
            losses.append(float(waiting.pop(0)))
            seconds.append(time.perf_counter() - began)
            began = time.perf_counter()
    losses += [float(loss) for loss in waiting]
    middle = statistics.median(seconds)
    speed = batch * model.max_seq_len / middle
    told_row = {
        "way": str(way),
        "tokens_per_second": speed,
        "step_seconds": middle,
        "slowest": max(seconds),
        "compile_seconds": compiled,
    }
    if not np.isfinite(losses).all():
        raise SystemExit(f"losses {losses} are not finite")
    return {**told_row, **arithmetic(spec, "").rates(speed), **memory(), "losses": losses}


if __name__ == "__main__":
    main(sys.argv[1], tiny="--tiny" in sys.argv[2:])
