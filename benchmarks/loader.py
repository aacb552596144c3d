"""The data loader alone: tokens a CPU second from cached shards, beside a plain memory map and Levanter's datasets.

    PYTHONPATH=. .venv/bin/python benchmarks/loader.py [--tokens 400] [--levanter PYTHON]

Eight components of random tokens, log-normal documents as of web pages, four shards each, in `--root`. Every side hands out
int32 batches of the same shapes, as many of them. `ours` is what the trainer runs (`trainer.loader.Loader` over a data order):
cut sequences, the same with segments and weights, packed ones with both, and those under a block shuffle. `memmap` copies
random rows out of one flat file and mixes nothing, which is the most that numpy gives. Levanter (in a separate environment)
is a MixtureDataset of shuffled TokenSeqDatasets without its device placement. CPU time of the whole process, all threads, so
that prefetching cannot flatter; sides take turns; median and spread of `--rounds`. The bar is 20 M tokens a CPU second. Then
the stall: steps as long as the CPU trainer's, and how long they waited for their batches.
"""

import argparse
import json
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from loader_caches import COMPONENTS, VOCABULARY, mixture

from lineage.order.order import DataOrder
from lineage.order.packing import Packing
from lineage.order.permutation import BlockShuffle, Shuffle
from trainer.loader import Loader, batches_of, steps_at_once
from trainer.spec.config import RunSpec
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import AdamWConfig
from trainer.spec.schedules import WarmupStableDecay

SHAPES = ((256, 16), (512, 8), (1024, 128), (4096, 64))
"""(sequence length, batch): the CPU trainer's two, llama_50m's, and a share of the 32B run's."""
STALL_SHAPE, STALL_STEPS, STALL_STEP_SECONDS = (512, 8), 100, 0.1


def spec_of(seq_len: int, batch: int, *, cross: bool) -> RunSpec:
    """A run with that geometry; its model is never made."""
    model = LlamaConfig(VOCABULARY, 64, 64, 1, 1, 1, max_seq_len=seq_len)
    schedule = WarmupStableDecay(1e-3, 1, 0.5)
    geometry = {"batch_size": batch, "seq_len": seq_len, "num_steps": 1 << 30, "save_every_steps": 1 << 30}
    return RunSpec("loader", model, AdamWConfig(), schedule, seed=0, cross_document_attention=cross, **geometry)


def ours(
    root: str, num_tokens: int, shape: tuple[int, int], read: int, shuffle: Shuffle = "splitmix", *, cross: bool, packed: bool
) -> float:
    """Tokens a CPU second of our loader; `read` tokens are handed out."""
    order = DataOrder.open(mixture(root, num_tokens, Packing(shape[0]) if packed else None, shuffle), shape[0])
    spec = spec_of(*shape, cross=cross)
    loader = Loader(partial(batches_of, order, spec), steps_at_once(spec))
    steps = max(2, read // (shape[0] * shape[1]))
    started, total = time.process_time(), 0
    for _, batch in loader.batches(0, steps):
        total += int(batch.tokens[0, 0]) & 1  # somebody looks at it
    return steps * shape[0] * shape[1] / (time.process_time() - started)


def memmap(root: str, num_tokens: int, shape: tuple[int, int], read: int) -> float:
    """The same copies without an order: random rows of one flat file."""
    flat = Path(root) / f"flat-{num_tokens}.tokens"
    if not flat.exists():
        flat.parent.mkdir(parents=True, exist_ok=True)
        np.random.default_rng(0).integers(0, VOCABULARY, num_tokens, dtype=np.uint16).tofile(flat)
    tokens = np.asarray(np.memmap(flat, np.uint16, mode="r"))
    rows = (
        np.random.default_rng(1).integers(0, num_tokens // shape[0], (max(2, read // (shape[0] * shape[1])), shape[1])).tolist()
    )
    started = time.process_time()
    for batch in rows:
        out = np.empty((shape[1], shape[0]), np.int32)
        for row, sequence in enumerate(batch):
            out[row] = tokens[sequence * shape[0] : (sequence + 1) * shape[0]]
    return len(rows) * shape[0] * shape[1] / (time.process_time() - started)


def levanter(python: str, root: str, num_tokens: int, shape: tuple[int, int], read: int) -> float:
    """The peer in its own environment."""
    script = Path(__file__).with_name("loader_peer.py")
    arguments = [
        root,
        str(num_tokens // COMPONENTS),
        str(COMPONENTS),
        *map(str, shape),
        str(max(2, read // (shape[0] * shape[1]))),
    ]
    done = subprocess.run([python, str(script), *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])["tokens_per_cpu_second"]


def stall(root: str, num_tokens: int) -> str:
    """Share of the time that steps as long as the CPU trainer's wait for their batch, while two cores are free."""
    seq_len, batch = STALL_SHAPE
    order = DataOrder.open(mixture(root, num_tokens, Packing(seq_len)), seq_len)
    spec = spec_of(seq_len, batch, cross=False)
    loader = Loader(partial(batches_of, order, spec), steps_at_once(spec))
    started = time.perf_counter()
    for _ in loader.batches(0, STALL_STEPS):
        time.sleep(STALL_STEP_SECONDS)
    whole = time.perf_counter() - started
    waited = loader.stalled
    setting = f"{STALL_STEPS} steps of {STALL_STEP_SECONDS} s, packed with segments"
    return f"{setting}: waited {waited:.4f} s, {waited / whole:.3%} of the time (bar 2 %)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default="/tmp/marin-loader-benchmark", help="folder for the caches; remove it afterwards")
    parser.add_argument("--tokens", type=int, default=400, help="of all components, in millions")
    parser.add_argument("--read", type=int, default=50, help="tokens that each side hands out, in millions")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--levanter", help="Python of an environment with marin-levanter")
    options = parser.parse_args()
    num_tokens, read = options.tokens * 1_000_000, options.read * 1_000_000
    for shape in SHAPES:
        sides: dict[str, Callable[[], float]] = {
            "memmap": lambda shape=shape: memmap(options.root, num_tokens, shape, read),
            "ours": lambda shape=shape: ours(options.root, num_tokens, shape, read, cross=True, packed=False),
            "ours, segments": lambda shape=shape: ours(options.root, num_tokens, shape, read, cross=False, packed=False),
            "ours, packed": lambda shape=shape: ours(options.root, num_tokens, shape, read, cross=False, packed=True),
            "ours, blocks": lambda shape=shape: ours(
                options.root, num_tokens, shape, read, BlockShuffle(), cross=False, packed=True
            ),
        }
        if options.levanter:
            sides["levanter"] = lambda shape=shape: levanter(options.levanter, options.root, num_tokens, shape, read)
        report(shape, {name: [] for name in sides}, sides, options.rounds)
    print(stall(options.root, num_tokens))
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB, mapped pages included")


def report(
    shape: tuple[int, int], speeds_of: dict[str, list[float]], sides: Mapping[str, Callable[[], float]], rounds: int
) -> None:
    """Run the sides in turn, a first time to warm up, and print a line each."""
    for number in range(rounds + 1):
        for name, side in sides.items():
            speed = side()
            if number:
                speeds_of[name].append(speed / 1e6)
    bound = statistics.median(speeds_of["memmap"])
    for name, speeds in speeds_of.items():
        middle, spread = statistics.median(speeds), f"{min(speeds):.1f} to {max(speeds):.1f}"
        print(
            f"seq {shape[0]:>5} batch {shape[1]:>4}  {name:<15} {middle:8.1f} M tokens/CPU s ({spread}), "
            f"{middle / bound:.2f} of memmap",
            flush=True,
        )


if __name__ == "__main__":
    main()
