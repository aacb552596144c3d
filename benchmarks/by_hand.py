"""Steps of one run on CPU, started by hand (`python -m trainer spec.json`) and by the launcher of the lab.

    PYTHONPATH=. .venv/bin/python benchmarks/by_hand.py --rounds 3 --steps 20

Both train the same run (shape A of `training_speed.py`) on the same data, each in a store of its own and a process of its own,
in an order that turns around. By hand the environment has no GLIBC_TUNABLES, as a person's shell. A step's time is the mean of
all after the first, as the checkpoint records it. The checkpoints' losses must be equal.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl
from training_speed import SHAPES, run_spec

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "trainer")]

from tiny_run import Text, job_of, metrics_of  # noqa: E402

from lineage.config import to_jsonable  # noqa: E402
from lineage.jobs.child_processes import HUGE_PAGES, run_subprocess  # noqa: E402
from lineage.jobs.job import LaunchRequest  # noqa: E402
from trainer.spec.config import RunSpec  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--shape", choices=SHAPES, default="A")
    options = parser.parse_args()
    run, rates = run_spec(SHAPES[options.shape], options.steps), []
    print(f"shape {options.shape}, {options.steps} steps, load before {os.getloadavg()[0]:.1f}")
    for number in range(options.rounds):
        order = ("hand", "launcher") if number % 2 == 0 else ("launcher", "hand")
        sides = {way: train(way, run) for way in order}
        hand, launched = sides["hand"], sides["launcher"]
        if not hand[2].equals(launched[2]):
            raise SystemExit(f"round {number}: the losses differ: {hand[2].to_list()} and {launched[2].to_list()}")
        rates.append(launched[0] / hand[0])
        print(f"round {number}: by hand {hand[0]:.3f} s a step ({hand[1]:.1f} s in all), "
              f"by the launcher {launched[0]:.3f} ({launched[1]:.1f}), ratio {rates[-1]:.3f}", flush=True)  # fmt: skip
    spread = f"{min(rates):.3f} to {max(rates):.3f}"
    print(f"by hand is {statistics.median(rates):.3f}x as fast ({spread}); losses are the same bits")


def train(way: str, run: RunSpec) -> tuple[float, float, pl.Series]:
    """(mean seconds of a step, seconds of the process, losses)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = job_of(folder, run, text=Text(run.model.vocab_size))
        started = time.perf_counter()
        if way == "launcher":
            run_subprocess(LaunchRequest("trainer", folder / "job.json", folder / "log.txt", "speed", job.spec.version))
        else:
            file = folder / "spec.json"
            file.write_text(json.dumps({"root": str(folder), "mixture": "mixture", "run": to_jsonable(run)}))
            person = {key: value for key, value in os.environ.items() if key not in HUGE_PAGES}
            command = [sys.executable, "-m", "trainer", str(file)]
            subprocess.run(command, cwd=ROOT, env=person, check=True, stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        checkpoint = job.store.find(job.spec)
        assert checkpoint is not None
        return checkpoint.manifest.extra["throughput"]["step_seconds_mean"], seconds, metrics_of(checkpoint)["loss_nats"]


if __name__ == "__main__":
    main()
