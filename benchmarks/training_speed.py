"""Training steps beside Levanter's and plain PyTorch's on CPU: same Llama, weights, batches, and AdamW with clipping, float32.

    PYTHONPATH=. .venv/bin/python benchmarks/training_speed.py --shape B --rounds 3 --steps 20 \
        --levanter LEV/bin/python --torch TORCH/bin/python

The peers live in environments of their own (docs/dependencies.md keeps them out of ours):
`python3.12 -m venv LEV && LEV/bin/pip install marin-levanter==0.2.227.dev40316220070 jax==0.11.2`, and
`python3.11 -m venv TORCH && TORCH/bin/pip install torch==2.13.0 numpy` (a CPU build). Sides take turns, one process each a
round, in an order that turns around; every side starts from the same weights and takes the same steps, so the losses must
agree, and the largest difference is printed. A step's time is the median after the first, which compiles. Levanter runs
without rematerialization and without its trainer's hooks and per-step sync, which is its fastest; `levanter_as_shipped` has
its default rematerialization, `levanter_unrolled` its layers one by one instead of scanned. All sides have the allocator that
our launchers set (`lineage.jobs.child_processes.HUGE_PAGES`), but `ours_plain` and `levanter_as_shipped`.
Other ways of ours to compute are further sides: `ours_reference` and `ours_xla` (attention), `ours_scanned` (layers). FLOPs are
Levanter's definition, attention over the whole square.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from lineage.jobs.child_processes import HUGE_PAGES
from recipes.smoke import smoke_spec
from trainer.spec.config import RunSpec
from trainer.spec.llama import LlamaConfig
from trainer.spec.schedules import WarmupStableDecay

HERE = Path(__file__).parent
LEARNING_RATE = 1e-3
STEPS_COMPARED = 20
"""Losses drift apart by rounding as training continues; the first ones are compared."""


@dataclass(frozen=True)
class Shape:
    """A model, and the batch that it is trained on."""

    model: LlamaConfig
    batch: int


SHAPES = {
    "A": Shape(LlamaConfig(8192, 128, 384, 4, 4, 4, 256), 16),
    "B": Shape(LlamaConfig(8192, 256, 768, 6, 8, 4, 512), 8),
    "D": Shape(LlamaConfig(32_000, 512, 1536, 8, 8, 4, 1024), 4),
    "tiny": Shape(LlamaConfig(512, 64, 128, 2, 4, 2, 64), 4),
}


def run_spec(shape: Shape, steps: int) -> RunSpec:
    """The run that all sides take: AdamW (.9, .95, 1e-8, decay .1 on matrices), clip 1, a constant rate."""
    schedule = WarmupStableDecay(LEARNING_RATE, warmup_steps=0, decay_frac=0.0)
    sizes = {"seq_len": shape.model.max_seq_len, "batch_size": shape.batch, "num_steps": steps, "save_every_steps": steps}
    return replace(smoke_spec(8192), name="speed", model=shape.model, schedule=schedule, **sizes)


def write_inputs(folder: Path, shape: Shape, steps: int) -> None:
    """`shape.json`, `tokens.npy` [steps, batch, sequence] and `weights.npz`, in our layout, for every side to read."""
    model, random = shape.model, np.random.default_rng(0)
    layers, heads, size, d = model.num_layers, model.num_kv_heads, model.head_size, model.hidden_dim
    group = model.num_heads // heads
    shapes = {
        "embedding": (model.vocab_size, d),
        "q": (layers, d, heads, group, size),
        "k": (layers, d, heads, size),
        "v": (layers, d, heads, size),
        "o": (layers, heads, group, size, d),
        "gate": (layers, d, model.intermediate_dim),
        "up": (layers, d, model.intermediate_dim),
        "down": (layers, model.intermediate_dim, d),
    }
    np.savez(folder / "weights.npz", **{name: 0.02 * random.standard_normal(s, np.float32) for name, s in shapes.items()})
    # a Zipf-like stream with repeats: a loss that falls, as text's does
    stream = np.minimum(random.zipf(1.3, (steps, shape.batch, model.max_seq_len)), model.vocab_size) - 1
    np.save(folder / "tokens.npy", stream.astype(np.int32))
    shape_facts = {
        **asdict(model),
        "learning_rate": LEARNING_RATE,
        "beta1": 0.9,
        "beta2": 0.95,
        "eps": 1e-8,
        "weight_decay": 0.1,
    }
    (folder / "shape.json").write_text(json.dumps({**shape_facts, "max_grad_norm": 1.0, "batch": shape.batch}))


PLAIN = ("ours_plain", "levanter_as_shipped")
"""Sides that run with the allocator of the environment; all others have huge pages."""


def run_side(side: str, pythons: dict[str, str], folder: Path) -> dict:
    """What one side says in a fresh process: losses, seconds and CPU seconds a step, peak memory, versions."""
    program = side.split("_")[0]
    environment = {**os.environ, **({} if side in PLAIN else HUGE_PAGES)}
    command = [pythons[program], str(HERE / f"training_speed_{program}.py"), str(folder), side]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=21, help="of each side in each round, the compiling one included")
    parser.add_argument("--levanter", help="the interpreter of an environment with marin-levanter")
    parser.add_argument("--torch", help="the interpreter of an environment with torch")
    parser.add_argument("--sides", help="comma-separated; default: ours,ours_plain,levanter,levanter_as_shipped,torch")
    options = parser.parse_args()
    pythons = {"ours": sys.executable, "levanter": options.levanter, "torch": options.torch}
    chosen = (options.sides or "ours,ours_plain,levanter,levanter_as_shipped,torch").split(",")
    sides = [side for side in chosen if pythons[side.split("_")[0]]]
    shape = SHAPES[options.shape]
    tokens_a_step = shape.batch * shape.model.max_seq_len
    flops = shape.model.training_flops_per_token(shape.model.max_seq_len)
    print(f"shape {options.shape}: {shape.model.num_parameters:,} parameters, {tokens_a_step:,} tokens a step, "
          f"{flops / 1e6:.1f} MFLOP a token; load before {os.getloadavg()[0]:.1f}")  # fmt: skip
    results_of: dict[str, list[dict]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, shape, options.steps)
        for number, side in in_turn(sides, options.rounds):
            results_of[side].append(run_side(side, pythons, folder))
            report_round(number, side, results_of[side][-1], tokens_a_step)
    report(results_of, tokens_a_step, flops)


def in_turn(sides: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Yield (round, side) for every side of every round; the order turns around after each."""
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            yield number, side


def report_round(number: int, side: str, result: dict, tokens: int) -> None:
    seconds, cpu = statistics.median(result["seconds"]), statistics.median(result["cpu_seconds"])
    print(f"round {number} {side:24} {seconds:.3f} s ({cpu:.3f} CPU s) a step, {tokens / seconds:,.0f} tokens/s, "
          f"matmul {result['matmul_gflops']:.0f} GFLOP/s, peak {result['peak_mib']:,.0f} MiB", flush=True)  # fmt: skip


def report(results_of: dict[str, list[dict]], tokens: int, flops: float) -> None:
    """Medians over all steps of all rounds, ratios by wall and by CPU seconds, the largest difference of a loss."""
    matmul = max(result["matmul_gflops"] for results in results_of.values() for result in results) * 1e9
    print(f"\nfloat32 matrix product, best of all: {matmul / 1e9:.1f} GFLOP/s on all cores")
    medians = {}
    for side, results in results_of.items():
        steps = [second for result in results for second in result["seconds"]]
        cpu = [second for result in results for second in result["cpu_seconds"]]
        medians[side] = statistics.median(steps), statistics.median(cpu)
        quarter = statistics.quantiles(steps, n=4)
        print(f"{side:20} {medians[side][0]:.3f} s a step (quartiles {quarter[0]:.3f} to {quarter[2]:.3f}; "
              f"{medians[side][1]:.3f} CPU s), {tokens / medians[side][0]:,.0f} tokens/s, "
              f"{100 * flops * tokens / medians[side][0] / matmul:.0f} % of the matrix product, "
              f"peak {max(r['peak_mib'] for r in results):,.0f} MiB, {results[0]['versions']}")  # fmt: skip
    ours = next(iter(results_of))
    for side in list(results_of)[1:]:
        wall, cpu = (medians[side][i] / medians[ours][i] for i in (0, 1))
        both = zip(results_of[ours][0]["losses"], results_of[side][0]["losses"], strict=True)
        apart = max(abs(a - b) for a, b in list(both)[:STEPS_COMPARED])
        print(f"{ours} / {side}: {wall:.2f}x by wall, {cpu:.2f}x by CPU seconds; largest difference of a loss {apart:.1e}")
    print(
        "losses of the first and last step:", {side: (r[0]["losses"][0], r[0]["losses"][-1]) for side, r in results_of.items()}
    )


if __name__ == "__main__":
    main()
