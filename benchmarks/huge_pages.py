"""What huge pages gain on CPU: the ferry's training step, in a separate process with `lineage.jobs.job.HUGE_PAGES` and
without.

    PYTHONPATH=. .venv/bin/python benchmarks/huge_pages.py --pairs 3

Both sides take the same steps from the same start, in alternating order. A step's time is the median, its compilation left
out; the parameters at the end are compared bit for bit, and a difference is an error.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np

from lineage.jobs.child_processes import HUGE_PAGES
from recipes.smoke import smoke_spec
from trainer.batch import Batch
from trainer.model.build import init_model
from trainer.step import compiled_step, initial_step_state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--child", action="store_true", help="be one side of a pair")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(train(options.steps)))
        return
    ratios, digests = [], set()
    for pair in range(options.pairs):
        order = (True, False) if pair % 2 == 0 else (False, True)
        sides = {huge: side(huge, options.steps) for huge in order}
        digests |= {each["parameters"] for each in sides.values()}
        small, huge = sides[False]["step_seconds"] * 1e3, sides[True]["step_seconds"] * 1e3
        ratios.append(small / huge)
        print(f"pair {pair}: 4 KiB pages {small:.0f} ms, huge pages {huge:.0f} ms a step, ratio {ratios[-1]:.3f}", flush=True)
    print(f"huge pages: {statistics.median(ratios):.3f}x ({min(ratios):.3f} to {max(ratios):.3f}) over {len(ratios)} pairs")
    if len(digests) > 1:
        raise SystemExit(f"the sides' parameters differ after {options.steps} steps: {sorted(digests)}")
    print(f"parameters after {options.steps} steps are the same bits on both sides: {digests.pop()}")


def side(huge: bool, steps: int) -> dict:
    """What `train` says in a fresh process."""
    environment = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
    command = [sys.executable, __file__, "--child", "--steps", str(steps)]
    done = subprocess.run(
        command, env={**environment, **(HUGE_PAGES if huge else {})}, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)


def train(steps: int) -> dict:
    """Median seconds of a step after the first, and the digest of the parameters after `steps` of them."""
    spec = replace(smoke_spec(8192), num_steps=max(steps, smoke_spec(8192).schedule.warmup_steps))
    model = init_model(spec.model, key=jax.random.PRNGKey(spec.seed))
    state, step_fn = initial_step_state(spec, model), compiled_step(spec, model)
    random, seconds = np.random.default_rng(0), []
    for step in range(steps):
        tokens = random.integers(0, spec.model.vocab_size, (spec.batches.size(step), spec.seq_len)).astype(np.int32)
        started = time.perf_counter()
        state, metrics = step_fn(state, Batch(tokens), step)
        jax.block_until_ready((state, metrics))
        seconds.append(time.perf_counter() - started)
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(eqx.filter(state.parameters, eqx.is_array)):
        digest.update(np.asarray(leaf).tobytes())
    return {"step_seconds": statistics.median(seconds[1:]), "parameters": digest.hexdigest()[:16]}


if __name__ == "__main__":
    main()
