"""Training steps of a mixture of experts beside the dense model of equal FLOPs a token, and beside `transformers`', on CPU.

    PYTHONPATH=. .venv/bin/python benchmarks/moe_speed.py --shape d128 --rounds 3 --steps 12 --torch TORCH/bin/python

`dense` and `moe` are the lab's models. `qwen` is the mixture in the form of Qwen3-MoE: a softmax
router and norms of each head. `transformers_eager` and `transformers_grouped_mm` train `Qwen3MoeForCausalLM` from the weights
of `qwen`, exported by `trainer.hf`, on the same batches, so the losses must agree. Their part after `transformers_` is
`experts_implementation`; attention is `sdpa`, the optimizer is torch's fused AdamW, and all run float32.

TORCH is an environment of its own (`benchmarks/training_speed.py`) with `transformers==5.23.0` and `safetensors`. Sides take
turns, one process each a round, in an order that turns around. All have the allocator of our launchers
(`lineage.jobs.child_processes.HUGE_PAGES`). A step's time is the median after the first, which compiles. A ratio is the median
of the rounds' ratios, with the smallest and the largest.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
from safetensors.numpy import save_file
from training_speed import LEARNING_RATE, STEPS_COMPARED, in_turn, report_round

from lineage.jobs.child_processes import HUGE_PAGES
from recipes.smoke import smoke_spec
from trainer.arrays import copied_to_host
from trainer.hf.convert import hf_config, to_hf
from trainer.model.build import init_model
from trainer.spec.config import RunSpec
from trainer.spec.llama import LlamaConfig
from trainer.spec.models import ModelConfig
from trainer.spec.moe import ExpertsConfig, MoeConfig, RouterConfig
from trainer.spec.schedules import WarmupStableDecay

HERE = Path(__file__).parent
SIDES = ("dense", "moe", "qwen", "transformers_eager", "transformers_grouped_mm")
RATIOS = (("moe", "dense"), ("qwen", "transformers_eager"), ("qwen", "transformers_grouped_mm"))
"""Pairs whose tokens a second are divided."""


@dataclass(frozen=True)
class Shape:
    """A dense model, the mixture of its FLOPs, and the batch of both."""

    dense: LlamaConfig
    moe: MoeConfig
    batch: int


def mixture(dense: LlamaConfig, count: int, per_token: int) -> MoeConfig:
    """The mixture whose chosen experts are together as wide as the dense MLP."""
    same = ("hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads", "max_seq_len", "tie_embeddings")
    experts = ExpertsConfig(count, dense.intermediate_dim // per_token)
    shared = {name: getattr(dense, name) for name in same}
    return MoeConfig(dense.vocab_size, **shared, qk_norm="none", experts=experts, router=RouterConfig(per_token))


def shapes() -> dict[str, Shape]:
    """Shapes by name: a narrow one, B of `training_speed.py` with eight experts and with 32 narrow ones, and a tiny one."""
    narrow = LlamaConfig(8192, 128, 352, 4, 4, 2, 256)
    wide, tiny = LlamaConfig(8192, 256, 768, 6, 8, 4, 512), LlamaConfig(512, 64, 128, 2, 4, 2, 64)
    return {
        "d128": Shape(narrow, mixture(narrow, 8, 2), 16),
        "d256": Shape(wide, mixture(wide, 8, 2), 8),
        "fine": Shape(wide, mixture(wide, 32, 4), 8),
        "tiny": Shape(tiny, mixture(tiny, 8, 2), 4),
    }


def model_of(shape: Shape, side: str) -> ModelConfig:
    """The model of one of our sides."""
    if side == "dense":
        return shape.dense
    if side == "moe":
        return shape.moe
    router = RouterConfig(shape.moe.router.per_token, score="softmax", renormalize=True, balance="none")
    return replace(shape.moe, qk_norm="head", router=router)


def run_spec(model: ModelConfig, batch: int, steps: int) -> RunSpec:
    """AdamW (.9, .95, 1e-8, decay .1 on matrices), clip 1, a constant rate."""
    schedule = WarmupStableDecay(LEARNING_RATE, warmup_steps=0, decay_frac=0.0)
    sizes = {"seq_len": model.max_seq_len, "batch_size": batch, "num_steps": steps, "save_every_steps": steps}
    return replace(smoke_spec(model.vocab_size), name="speed", model=model, schedule=schedule, **sizes)


def write_inputs(folder: Path, shape: Shape, steps: int) -> None:
    """`tokens.npy` [steps, batch, sequence], and in `qwen/` the initial model of `qwen` as transformers reads it."""
    random, length = np.random.default_rng(0), shape.dense.max_seq_len
    # a Zipf-like stream with repeats: a loss that falls, as text's does
    stream = np.minimum(random.zipf(1.3, (steps, shape.batch, length)), shape.dense.vocab_size) - 1
    np.save(folder / "tokens.npy", stream.astype(np.int32))
    config, export = model_of(shape, "qwen"), folder / "qwen"
    export.mkdir()
    arrays = copied_to_host(init_model(config, key=jax.random.PRNGKey(0))).arrays
    save_file(to_hf(arrays, config), export / "model.safetensors", metadata={"format": "pt"})
    (export / "config.json").write_text(json.dumps(hf_config(config, (0,), 0)))


def run_side(side: str, torch: str | None, folder: Path, shape: str) -> dict:
    """What one side says in a fresh process: losses, seconds and CPU seconds a step, peak memory, versions."""
    program, way, *_ = (*side.split("_", 1), "")
    theirs = program == "transformers"
    file = "moe_speed_transformers.py" if theirs else "moe_speed_ours.py"
    assert not theirs or torch is not None
    command = [torch if theirs else sys.executable, str(HERE / file), str(folder), way if theirs else side, shape]
    environment = {**os.environ, **HUGE_PAGES}
    done = subprocess.run([str(part) for part in command], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    if not all(map(math.isfinite, result["losses"])):
        raise SystemExit(f"{side}: losses must be finite, they are {result['losses']}")
    return result


def main() -> None:
    known = shapes()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=known, default="tiny")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="of each side in each round, the compiling one included")
    parser.add_argument("--torch", help="the interpreter of an environment with torch and transformers")
    parser.add_argument("--sides", default=",".join(SIDES), help="comma-separated")
    options = parser.parse_args()
    sides = [side for side in options.sides.split(",") if options.torch or not side.startswith("transformers")]
    shape = known[options.shape]
    tokens, length = shape.batch * shape.dense.max_seq_len, shape.dense.max_seq_len
    dense_flops, moe_flops = (each.training_flops_per_token(length) for each in (shape.dense, shape.moe))
    print(f"shape {options.shape}: dense {shape.dense.num_parameters:,} parameters, mixture {shape.moe.num_parameters:,}, "
          f"{tokens:,} tokens a step, {dense_flops / 1e6:.1f} and {moe_flops / 1e6:.1f} MFLOP a token; "
          f"load before {os.getloadavg()[0]:.1f}")  # fmt: skip
    results_of: dict[str, list[dict]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, shape, options.steps)
        for number, side in in_turn(sides, options.rounds):
            results_of[side].append(run_side(side, options.torch, folder, options.shape))
            report_round(number, side, results_of[side][-1], tokens)
    report(results_of, tokens)


def report(results_of: dict[str, list[dict]], tokens: int) -> None:
    """Tokens a second of each side over all steps, the ratios over rounds, and the largest difference of a loss."""
    print()
    for side, results in results_of.items():
        steps = [second for result in results for second in result["seconds"]]
        cpu = statistics.median(second for result in results for second in result["cpu_seconds"])
        low, middle, high = statistics.quantiles(steps, n=4)
        print(f"{side:24} {middle:.3f} s a step (quartiles {low:.3f} to {high:.3f}; {cpu:.3f} CPU s), "
              f"{tokens / middle:,.0f} tokens/s, peak {max(r['peak_mib'] for r in results):,.0f} MiB, "
              f"loss {results[0]['losses'][0]:.4f} to {results[0]['losses'][-1]:.4f}, {results[0]['versions']}")  # fmt: skip
    for ours, other in RATIOS:
        if ours in results_of and other in results_of:
            pairs = list(zip(results_of[ours], results_of[other], strict=True))
            wall, cpu = (ratios(pairs, name) for name in ("seconds", "cpu_seconds"))
            print(f"{ours} / {other}: {wall} in tokens/s, {cpu} by CPU seconds")
    for side in (side for side in results_of if side.startswith("transformers") and "qwen" in results_of):
        both = list(zip(results_of["qwen"][0]["losses"], results_of[side][0]["losses"], strict=True))[:STEPS_COMPARED]
        print(f"largest difference of a loss, qwen and {side}: {max(abs(a - b) for a, b in both):.1e}")


def ratios(pairs: list[tuple[dict, dict]], name: str) -> str:
    """How many times as fast the first of each pair is: median (least to most) of the rounds."""
    each = [statistics.median(other[name]) / statistics.median(ours[name]) for ours, other in pairs]
    return f"{statistics.median(each):.2f}x ({min(each):.2f} to {max(each):.2f})"


if __name__ == "__main__":
    main()
