"""The part `resume` of `gpu.py`: `python -m trainer` killed at a step and inside a save, against one that was left alone."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loader_caches import VOCABULARY, mixture

from lineage.artifact.locate import locate
from lineage.artifact.store import Artifact, Store
from lineage.config import to_jsonable
from trainer.spec.compute import ComputeConfig
from trainer.spec.config import RunSpec
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import AdamWConfig
from trainer.spec.schedules import WarmupStableDecay

STEPS = 24
KILLS = "kill@9,kill-in-save@16"
ATTEMPTS = 4
TOKENS = 4_000_000


def run_of(*, tiny: bool) -> RunSpec:
    """A small model in the precision that the machine trains in, checkpoints every 8 steps."""
    model = LlamaConfig(VOCABULARY, 64, 128, 2, 4, 2, 64) if tiny else LlamaConfig(VOCABULARY, 512, 1408, 6, 8, 8, 1024)
    schedule = WarmupStableDecay(3e-4, warmup_steps=4, decay_frac=0.2)
    compute = ComputeConfig() if tiny else ComputeConfig("bfloat16", "cudnn", strict=True)
    geometry = {"seq_len": model.max_seq_len, "batch_size": 8, "num_steps": STEPS, "save_every_steps": 8}
    return RunSpec("resume", model, AdamWConfig(), schedule, seed=0, compute=compute, **geometry)


def trained(root: Path, run: RunSpec, faults: str) -> tuple[Artifact, int]:
    """The final checkpoint of a run below a root of its own, and how many processes it took."""
    made = mixture(str(root), TOKENS, None)
    (root / "spec.json").write_text(json.dumps({"root": str(root), "mixture": made.uri, "run": to_jsonable(run)}))
    compiled = {"JAX_COMPILATION_CACHE_DIR": str(root.parent / "compiled")}
    left = [faults, faults.partition(",")[2], *[""] * ATTEMPTS]
    for attempt in range(1, ATTEMPTS + 1):
        environment = {**os.environ, **compiled, "MARIN_FAULTS": left[attempt - 1]}
        log = root / f"{attempt}.log"
        with log.open("w") as stream:
            done = subprocess.run(
                [sys.executable, "-m", "trainer", str(root / "spec.json")], env=environment, stdout=stream, stderr=stream
            )
        if done.returncode == 0:
            return locate([Store(str(root))], f"runs/{run.name}/checkpoint[step-{STEPS:08d}]"), attempt
        if done.returncode != -9:
            raise SystemExit(f"attempt {attempt} ended with status {done.returncode}:\n{log.read_text()[-3000:]}")
    raise SystemExit(f"{ATTEMPTS} attempts did not finish")


def main(*, tiny: bool) -> None:
    run, began = run_of(tiny=tiny), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        alone, _ = trained(Path(name) / "alone", run, "")
        struck, attempts = trained(Path(name) / "struck", run, KILLS)
        equal = alone.data_version == struck.data_version
        print(f"{run.model.num_parameters:,} parameters, {STEPS} steps, {KILLS}: {attempts} processes instead of one")
        verdict = "the same bytes" if equal else "DIFFERENT"
        print(f"checkpoint {alone.data_version} alone, {struck.data_version} after the kills: {verdict}")
        if not equal or attempts != 3:
            raise SystemExit("the run that was killed did not end as the one that was not")
    print(json.dumps({"same_bytes": equal, "attempts": attempts, "wall": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main(tiny="--tiny" in sys.argv)
