"""Seconds of an iteration of GRPO (rollout, reward, update and the artifact of the rollouts), and the same start for TRL.

    python benchmarks/post_training/rollout_speed_ours.py FOLDER [ITERATIONS]

Two-digit addition of `recipes/rewards.py`: 64 prompts x 16 completions, four updates of 256, a model of .1 M parameters. The
start and its folder in Hugging Face's form (`FOLDER/start`) are made once. `rollout_speed_trl.py FOLDER/start` is the other
side. Prints medians over the iterations after the first three, wall and CPU.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from lineage.artifact.store import Store
from lineage.build.nodes import resolve
from lineage.build.plan import build, build_all
from lineage.jobs.job import LaunchRecord, LaunchRequest, read_job
from post_training.policies import Policies
from post_training.train import train_on_rewards
from recipes import rewards
from recipes.reward_runs import last_checkpoint
from trainer.checkpoint import read_model
from trainer.inference import TOKENIZER_FILE
from trainer.model.build import model_shapes
from trainer.spec.schedules import WarmupStableDecay

WARM = 3


def main(folder: Path, iterations: int) -> None:
    store, start = Store(str(folder / "store")), rewards.base()
    marks: list[tuple[float, float]] = []

    def here(launch: LaunchRequest) -> LaunchRecord:
        train_on_rewards(read_job(launch.job_path), alive=note)
        return LaunchRecord("this process", "", ())

    def note(phase: str, iteration: int) -> None:
        if phase == "rollout":
            marks.append((time.perf_counter(), time.process_time()))

    build_all(store, [last_checkpoint(start)], launcher=here)
    export(store, folder / "start")
    marks.clear()
    whole = rewards.learner("grpo")
    steps = iterations * whole.spec.updates
    schedule = WarmupStableDecay(peak_learning_rate=2e-3, warmup_steps=10, decay_frac=0.5)
    name = f"speed_{time.time_ns()}"  # a new run each time: an old one would only be read
    run = replace(whole.spec.run, name=name, num_steps=steps, save_every_steps=None, schedule=schedule)
    build(store, last_checkpoint(replace(whole, spec=replace(whole.spec, run=run))), launcher=here)
    wall, cpu = np.diff(np.array(marks[WARM:]), axis=0).T
    print(json.dumps({"ours_wall_s": round(float(np.median(wall)), 4), "ours_cpu_s": round(float(np.median(cpu)), 4)}))


def export(store: Store, folder: Path) -> None:
    """Write the start in Hugging Face's form, with a tokenizer config."""
    start = rewards.base()
    model = read_model(resolve(store, last_checkpoint(start)), model_shapes(start.spec.run.model))
    tokenizer = resolve(store, rewards.byte_tokenizer()).file(TOKENIZER_FILE)
    if folder.exists():
        return
    policies = Policies(folder.parent / "policies", start.spec.run.model, tokenizer, 0)
    policies.folder.mkdir(exist_ok=True)
    policies.publish(0, 0, model)
    (policies.folder / "policy-00000000").rename(folder)
    end = "<|endoftext|>"
    stated = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "bos_token": end, "pad_token": end}
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 15)
