"""Seconds of an iteration of TRL's GRPOTrainer on the start that `rollout_speed_ours.py` wrote.

    python benchmarks/post_training/rollout_speed_trl.py FOLDER/start [ITERATIONS] [THREADS]

It runs in an environment of its own with trl, torch and datasets. Sizes are those of ours: 64 prompts x 16 completions of at
most five tokens, four updates of 256, a KL term of .02, float32, no vLLM (it needs a GPU). Prints every iteration and the
medians after the first, wall and CPU. Give one thread on a busy machine: threads of torch that wait for each other spin.
"""

import json
import random
import sys
import time

import datasets
import numpy as np
import torch
import transformers
import trl

PROMPTS, GROUP, UPDATE, ANSWER = 64, 16, 256, 5
UPDATES = PROMPTS * GROUP // UPDATE


def right(completions: list[str], answer: list[str], **rest: object) -> list[float]:
    return [float(each == wanted) for each, wanted in zip(completions, answer, strict=True)]


class Marks(transformers.TrainerCallback):
    """The time at the end of each update."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []

    def on_step_end(self, *given: object, **rest: object) -> None:
        self.times.append((time.perf_counter(), time.process_time()))
        if len(self.times) % UPDATES == 0 and len(self.times) > UPDATES:
            print(np.round(np.subtract(self.times[-1], self.times[-1 - UPDATES]), 3).tolist(), flush=True)


def main(folder: str, iterations: int, threads: int) -> None:
    torch.set_num_threads(threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    sums = [(a, b) for a in range(100) for b in range(100)]
    random.Random(0).shuffle(sums)
    end = tokenizer.eos_token  # a prompt starts a document, as in ours
    rows = [{"prompt": f"{end}{a:02d}+{b:02d}=", "answer": f"{a + b:03d}"} for a, b in sums]
    config = trl.GRPOConfig(
        output_dir="/tmp/trl_speed", use_cpu=True, bf16=False, fp16=False, report_to=[], save_strategy="no",
        per_device_train_batch_size=UPDATE, steps_per_generation=UPDATES, num_generations=GROUP, num_iterations=1,
        max_completion_length=ANSWER, temperature=1.0, beta=0.02, learning_rate=2e-3, weight_decay=0.0,
        max_steps=iterations * UPDATES, logging_steps=UPDATES, disable_tqdm=True, gradient_checkpointing=False,
        dataloader_num_workers=0, seed=0,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    marks = Marks()
    data = datasets.Dataset.from_list(rows)
    trainer = trl.GRPOTrainer(model, right, config, data, processing_class=tokenizer, callbacks=[marks])
    trainer.train()
    rewards = [line["reward"] for line in trainer.state.log_history if "reward" in line]
    lengths = [line["completions/mean_length"] for line in trainer.state.log_history if "completions/mean_length" in line]
    wall, cpu = np.diff(np.array(marks.times[UPDATES - 1 :: UPDATES]), axis=0).T
    shown = {"trl_wall_s": float(np.median(wall)), "trl_cpu_s": float(np.median(cpu)), "reward": rewards[0]}
    print(json.dumps({name: round(value, 4) for name, value in {**shown, "length": lengths[0]}.items()}))


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[2:]]
    main(sys.argv[1], *given, *(15, 2)[len(given) :])
