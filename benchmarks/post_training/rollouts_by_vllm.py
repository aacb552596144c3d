"""A short run on rewards whose completions a real vLLM samples, asked by URL; what its answers name, and what is recorded.

    python benchmarks/post_training/rollouts_by_vllm.py FOLDER VLLM HOW [ITERATIONS]

VLLM is the program of another environment. HOW: `fingerprint` and `alias` start it again for a newer policy, named by a
fingerprint or by the first served name; `unknown` keeps the first policy under vLLM's own fingerprint, and the run declares
that; `refused` does the same without a declaration. Prints a line for each iteration; an answer is beside the logs.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl
import requests

from lineage.artifact.store import Store
from lineage.build.nodes import resolve
from lineage.build.plan import build, build_all
from lineage.jobs.job import LaunchRecord, LaunchRequest, read_job
from post_training.stage import ROLLOUTS_FILE
from post_training.texts import shards_of
from post_training.train import train_on_rewards
from recipes import rewards
from recipes.records.reward_run import RewardRun
from recipes.reward_runs import last_checkpoint
from serving.samples import sample_request
from serving.server.following import Newest, newest_of
from serving.server.sampling import Sampling
from trainer.running import Running

PORT, BOUND, HEAD_SIZE, BASE_STEPS = 8123, 1, 32, 430
PROMPTS, GROUP, UPDATE = 16, 8, 64
START_SECONDS = 300.0


@dataclass
class Vllm:
    """One vLLM, started again when the run needs a newer policy."""

    program: str
    how: str
    run: str
    policies: Path
    """Folder in which the folder of the run's policies appears."""
    log: Path
    process: subprocess.Popen | None = None
    served: str = ""
    starts: list[float] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        """Serve a policy that is new enough until `closing` is set."""
        while not self.closing.wait(0.2):
            for folder in self.policies.glob("*/"):
                newest = newest_of(folder)
                if newest is not None and self._too_old(newest):
                    self.stop()
                    self._start(folder, newest)

    def _too_old(self, newest: Newest) -> bool:
        if not self.served:
            return True
        return self.how in ("fingerprint", "alias") and number(newest.folder) - number(self.served) > BOUND

    def _start(self, folder: Path, newest: Newest) -> None:
        started = time.monotonic()
        names = [f"{self.run}@{newest.digest}", self.run] if self.how == "alias" else [self.run]
        named = ["--fingerprint-mode", "custom", "--fingerprint-value", newest.digest] if self.how == "fingerprint" else []
        place = ["--host", "127.0.0.1", "--port", str(PORT)]
        small = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "16", "--max-num-seqs", "64"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.program, "serve", str(folder / newest.folder), "--served-model-name", *names, *named, *place, *small],
                stdout=log, stderr=log,
            )  # fmt: skip
        while not self.closing.is_set():
            if self.process.poll() is not None or time.monotonic() - started > START_SECONDS:
                raise RuntimeError(f"vLLM did not start with {newest.folder}; see {self.log}")
            try:
                requests.get(f"http://127.0.0.1:{PORT}/health", timeout=5).raise_for_status()
                break
            except requests.RequestException:
                time.sleep(0.5)
        if not self.served:
            one = sample_request("first", self.run, [0, 1, 2], Sampling(1.0, 1.0), count=2, max_tokens=3, seed=1)
            answer = requests.post(f"http://127.0.0.1:{PORT}{one.path}", json=one.body, timeout=60)
            self.log.with_suffix(".json").write_text(json.dumps(answer.json(), indent=1) + "\n")
        self.served = newest.folder
        self.starts.append(time.monotonic() - started)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


def number(folder: str) -> int:
    return int(folder.removeprefix("policy-"))


def learner(how: str, iterations: int) -> RewardRun:
    """GRPO from a short imitation, by a model whose heads have a size that vLLM's attention on CPUs takes."""
    start = rewards.base()
    model = replace(start.spec.run.model, head_dim=HEAD_SIZE)
    begin = replace(start.spec.run, name="vllm_base", model=model, num_steps=BASE_STEPS)
    start = replace(start, spec=replace(start.spec, run=begin))
    whole = rewards.learner("grpo")
    steps = iterations * PROMPTS * GROUP // UPDATE
    run = replace(
        whole.spec.run, name=f"vllm_{how}", model=model, batch_size=UPDATE, num_steps=steps, save_every_steps=None,
        schedule=replace(whole.spec.run.schedule, warmup_steps=1),
    )  # fmt: skip
    sampling = replace(whole.spec.sampling, prompts=PROMPTS, completions=GROUP)
    unnamed = "train" if how == "unknown" else "refuse"
    spec = replace(whole.spec, run=run, sampling=sampling, max_staleness=BOUND, unnamed_weights=unnamed)
    return replace(whole, spec=spec, start=start)


def launcher(url: str) -> Callable[[LaunchRequest], LaunchRecord]:
    def here(launch: LaunchRequest) -> LaunchRecord:
        train_on_rewards(read_job(launch.job_path), Running(rollouts=url))
        return LaunchRecord("this process", "", ())

    return here


def main(folder: Path, program: str, how: str, iterations: int) -> None:
    store, run = Store(str(folder / "store")), learner(how, iterations)
    node = last_checkpoint(run)
    build_all(store, node.parents(), launcher=launcher(""))
    server = Vllm(program, how, run.name, store.scratch / "policies" / run.name, folder / f"vllm-{how}.log")
    following = threading.Thread(target=server.follow)
    following.start()
    try:
        build(store, node, launcher=launcher(f"http://127.0.0.1:{PORT}"))
    finally:
        server.closing.set()
        following.join()
        server.stop()
        print("seconds of each start of vLLM:", [round(each, 1) for each in server.starts])
    for shard in shards_of(resolve(store, node)):
        table, facts = pl.read_parquet(shard.file(ROLLOUTS_FILE)), shard.manifest.extra["iteration"]
        gaps = [np.abs(np.array(a) - np.array(b)).max() for a, b in table.select("log_probs", "before").iter_rows()]
        policies = table["policy_step"].value_counts(sort=True).rows()
        drops = shard.manifest.statistics.get("drops", {})
        print(json.dumps({"iteration": shard.spec.config["iteration"], "rows_by_policy_step": policies, "drops": drops,
              "largest_gap": round(float(max(gaps)), 7), **{name: facts.get(name) for name in
              ("right", "most_mismatch", "staleness", "most_staleness", "unknown_policies")}}))  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 6)
