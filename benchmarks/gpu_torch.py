"""PyTorch on the GPU beside `gpu.py`: the same models and batches, compiled, bfloat16 products, fused AdamW.

    PYTHONPATH=. python benchmarks/gpu_torch.py [--only llama_50m,dense_1b] [--ways liger,whole,chunked] [--out FOLDER]

PyTorch's model is `training_speed_torch.PlainLlama`, which gives our losses on the CPU. Weights are float32 and products
bfloat16 (autocast), as ours. Three ways to compute the loss, because logits of 128,256 columns decide the time:

- liger: Liger's fused product and cross entropy (`liger-kernel`), what most of PyTorch's users take.
- whole: all logits at once, compiled with the model.
- chunked: logits of 8,192 rows at a time, computed again for the gradient.

A way is a process with a time limit. One that runs out of memory says so. The fastest is the peer.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as functional
from training_speed_torch import PlainLlama

from benchmarks.gpu_parts import TINY, TRAININGS

ROWS = 8192
WAYS = ("liger", "whole", "chunked")


class Llama(PlainLlama):
    """The model with one of three losses; the vocabulary's matrix is the embedding's where the two are tied."""

    def __init__(self, weights: dict[str, np.ndarray], shape: dict, way: str) -> None:
        super().__init__(weights, shape, torch.bfloat16)
        self.way = way
        self.out = self.embedding if shape["tie_embeddings"] else torch.nn.Parameter(self.embedding.detach().clone())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        rows, targets = self.hidden(tokens)[:, :-1].flatten(0, 1).to(torch.bfloat16), tokens[:, 1:].flatten()
        if self.way == "liger":
            return liger(rows, self.out, targets)
        if self.way == "whole":
            return nats(rows, self.out, targets) / len(targets)
        pieces = zip(rows.split(ROWS), targets.split(ROWS), strict=True)
        again = torch.utils.checkpoint.checkpoint
        return sum(again(nats, piece, self.out, of, use_reentrant=False) for piece, of in pieces) / len(targets)


@torch.compiler.disable
def liger(rows: torch.Tensor, out: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean over rows by Liger's kernels, `ROWS` of logits at a time, which its own budget would make 128 for narrow models."""
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    budget = max(1, round(out.shape[0] * ROWS / (len(rows) * out.shape[1])))
    call = partial(LigerFusedLinearCrossEntropyFunction.apply, rows, out, targets)
    defaults = None, None, -100, 0.0, 0.0, "mean", None, False, None, False, False, False, None, None
    return call(*defaults, budget)[0]


def nats(rows: torch.Tensor, out: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Sum over rows, from float32 logits."""
    return functional.cross_entropy(functional.linear(rows, out).float(), targets, reduction="sum")


def random_weights(shape: dict) -> dict[str, np.ndarray]:
    random, d, layers = np.random.default_rng(0), shape["hidden_dim"], shape["num_layers"]
    size, wide = d // shape["num_heads"], shape["intermediate_dim"]
    shapes = {"embedding": (shape["vocab_size"], d), "q": (layers, d, shape["num_heads"], size)}
    shapes |= dict.fromkeys(("k", "v"), (layers, d, shape["num_kv_heads"], size))
    shapes |= {"o": (layers, d, d), "gate": (layers, d, wide), "up": (layers, d, wide), "down": (layers, wide, d)}
    return {name: random.standard_normal(dims, np.float32) * 0.02 for name, dims in shapes.items()}


def steps_of(name: str, way: str, *, tiny: bool, steps: int = 20) -> dict:
    """The median step, as `gpu_parts.steps_of` measures ours: the loss is read two steps late."""
    training, device = TRAININGS[name], "cpu" if tiny else "cuda"
    config, batch = (TINY, 4) if tiny else (training.model, training.batch)
    fields = ("vocab_size", "hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads", "max_seq_len")
    shape = {field: getattr(config, field) for field in (*fields, "norm_eps", "rope_theta", "tie_embeddings")}
    torch.set_float32_matmul_precision("high")
    model = Llama(random_weights(shape), shape, way).to(device)
    compiled = model if tiny else torch.compile(model)
    rule = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step(tokens: torch.Tensor) -> torch.Tensor:
        rule.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            loss = compiled(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rule.step()
        return loss.detach()

    random = torch.Generator().manual_seed(0)
    size = (batch, shape["max_seq_len"])
    batches = [torch.randint(0, shape["vocab_size"], size, generator=random).to(device) for _ in range(4)]
    began = time.perf_counter()
    losses, seconds, waiting = [float(step(batches[0]))], [], []
    compile_seconds, began = time.perf_counter() - began, time.perf_counter()
    for number in range(1, steps):
        waiting.append(step(batches[number % 4]))
        if len(waiting) > 2:
            losses.append(float(waiting.pop(0)))
            seconds.append(time.perf_counter() - began)
            began = time.perf_counter()
    middle = statistics.median(seconds)
    peak = 0 if tiny else torch.cuda.max_memory_allocated()
    return {
        "tokens_per_second": batch * shape["max_seq_len"] / middle, "step_seconds": middle, "slowest": max(seconds),
        "compile_seconds": compile_seconds, "peak_bytes": peak, "losses": losses, "torch": torch.__version__,
    }  # fmt: skip


def measured(name: str, way: str, limit: float, *, tiny: bool) -> dict:
    """One way in its process."""
    command = [sys.executable, __file__, "--child", name, way, *(["--tiny"] if tiny else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {limit:.0f} s"}
    if done.returncode:
        return {"failed": "out of memory" if "OutOfMemoryError" in done.stderr else done.stderr[-1500:]}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="llama_50m,dense_1b")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--limit", type=float, default=240.0, help="seconds of each way")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("MODEL", "WAY"), help="measure one way here and print JSON")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(steps_of(*options.child, tiny=options.tiny)))
        return
    results = {}
    for name in options.only.split(","):
        for way in options.ways.split(","):
            row = results[f"{name}, {way}"] = measured(name, way, options.limit, tiny=options.tiny)
            (options.out / "gpu_torch.json").write_text(json.dumps(results, indent=1) + "\n")
            if "failed" in row:
                print(f"{name}, {way}: {row['failed']}", flush=True)
                continue
            print(
                f"{name}, {way}: {row['tokens_per_second']:,.0f} tokens/s, {1e3 * row['step_seconds']:.1f} ms a step "
                f"({1e3 * row['slowest']:.1f} the slowest), compiled in {row['compile_seconds']:.0f} s, peak "
                f"{row['peak_bytes'] / 2**30:.1f} GiB, loss {row['losses'][0]:.3f} to {row['losses'][-1]:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
