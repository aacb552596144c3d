"""The asynchronous path with real processes: a worker killed at work, a server restarted with old weights, broker and trainer
killed. Nothing is lost, nothing is trained on twice, and no completion is older than the run allows.
"""

import json
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import requests
from processes import ended, free_port, start, wait_for
from small_rewards import learner, node, store_at

from lineage.artifact.store import Artifact
from lineage.build.nodes import resolve
from lineage.build.plan import build, build_all
from lineage.jobs.job import LaunchRecord, LaunchRequest, read_job
from post_training.rollout_requests import RolloutRequests
from post_training.spec import RewardRunSpec
from post_training.stage import ROLLOUTS_FILE
from post_training.train import train_on_rewards
from serving.broker.client import ItemRequest
from trainer.running import Running

pytestmark = pytest.mark.usefixtures("quick_compilation")

ITERATIONS, BOUND, GROUPS, GROUP = 6, 1, 8, 4


def spec() -> RewardRunSpec:
    """Six iterations of 8 prompts x 4 completions, which may be one iteration old."""
    return learner(iterations=ITERATIONS, max_staleness=BOUND)


class TrainerKilledError(Exception):
    """The trainer ends in the middle of an iteration."""


@dataclass
class World:
    """A broker and two servers that follow the policies of a run, and what happens to them while it trains."""

    root: Path
    port: int = field(default_factory=free_port)
    broker: subprocess.Popen = field(init=False)
    servers: list[subprocess.Popen] = field(default_factory=list)
    stale: subprocess.Popen | None = None
    killed: subprocess.Popen | None = None
    attempts: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def policies(self) -> Path:
        (found,) = (self.root / ".work" / "policies" / "rewards").iterdir()
        return found

    def start_broker(self) -> None:
        limits = "--lease-seconds", "1", "--max-attempts", "99"
        self.broker = start("serving.broker", "--store", str(self.root / "broker.sqlite"), "--port", str(self.port), *limits)
        wait_for(f"{self.url}/health", self.broker)

    def start_server(self, policies: Path) -> subprocess.Popen:
        served = str(policies), "--follow", "--name", "rewards", "--port", str(free_port()), "--broker", self.url
        return start("serving.server", *served, "--rows", "8")

    def happens(self, phase: str, iteration: int) -> None:
        """What the trainer's thread meets at the start of a phase."""
        match phase, iteration, self.attempts:
            case "rollout", 0, 1:
                self.servers = [self.start_server(self.policies) for _ in range(2)]
            case "reward", 0, 1:
                old = self.root / "old"  # what a server has that was away while the trainer went on
                old.mkdir()
                shutil.copytree(self.policies / "policy-00000000", old / "policy-00000000")
                shutil.copyfile(self.policies / "newest.json", old / "newest.json")
            case "rollout", 1, 1:
                self.wait_until_answered(1)
                self.signal(signal.SIGSTOP)
            case "reward", 1, 1:
                self.killed = self.stopped_holder()
                self.killed.kill()
                self.killed.wait()
                self.signal(signal.SIGCONT)
            case "reward", 2, 1:
                raise TrainerKilledError
            case "ask", 4, 2:
                self.stale = self.start_server(self.root / "old")
                self.wait_until_seen(self.stale)
                self.signal(signal.SIGSTOP)
                self.servers.append(self.stale)
            case "reward", 3, 2:
                self.wait_until_answered(4)
                self.signal(signal.SIGCONT)
            case "update", 4, 2:
                self.broker.kill()
                self.broker.wait()
                self.start_broker()

    def signal(self, number: signal.Signals) -> None:
        for server in self.servers:
            if server.poll() is None:
                server.send_signal(number)

    def stopped_holder(self) -> subprocess.Popen:
        """Return a server that is stopped while it holds a request. If none is, let them go on until one has a lease."""
        while True:
            for server in self.servers:
                if self.asked("state = 'leased' AND worker LIKE ?", f"%-{server.pid}"):
                    return server
            self.signal(signal.SIGCONT)
            time.sleep(0.001)
            self.signal(signal.SIGSTOP)

    def wait_until_answered(self, iteration: int) -> None:
        """Wait until every group of an iteration has its first answer. Groups reach the broker one by one."""
        while len(self.asked("state = 'done' AND key LIKE ?", f"%/{iteration}/_")) < GROUPS:
            time.sleep(0.01)

    def wait_until_seen(self, server: subprocess.Popen) -> None:
        while not any(name.endswith(f"-{server.pid}") for name in self.workers()):
            assert server.poll() is None, "the server ended before it asked for work"
            time.sleep(0.05)

    def asked(self, condition: str, *parameters: str) -> list[tuple]:
        """Return (name, status, answer, tries) of the requests for rollouts on record that meet a condition."""
        where = f"path = '/v1/completions' AND {condition}"
        query = f"SELECT key, status, answer, attempts FROM requests WHERE {where}"
        with closing(sqlite3.connect(self.root / "broker.sqlite", 600)) as db:
            return db.execute(query, parameters).fetchall()

    def workers(self) -> list[str]:
        return list(requests.get(f"{self.url}/broker/status", timeout=60).json()["workers_seconds_ago"])

    def trained(self) -> Artifact:
        """Train to the end, with a second attempt after the trainer was killed."""
        store = store_at(self.root)
        build_all(store, node(spec()).parents(), launcher=self.launch)
        with pytest.raises(TrainerKilledError):
            build(store, node(spec()), launcher=self.launch_asynchronous)
        build(store, node(spec()), launcher=self.launch_asynchronous)
        return resolve(store, node(spec()))

    def launch(self, launch: LaunchRequest) -> LaunchRecord:
        train_on_rewards(read_job(launch.job_path))
        return LaunchRecord("this process", "", ())

    def launch_asynchronous(self, launch: LaunchRequest) -> LaunchRecord:
        self.attempts += 1
        train_on_rewards(read_job(launch.job_path), Running(rollouts=self.url), alive=self.happens)
        return LaunchRecord("this process", "", ())


def before_each_ask(patch: pytest.MonkeyPatch, world: World) -> None:
    """Call the world before the requests of an iteration are sent for the first time in an attempt."""
    send, announced = RolloutRequests.send, set()

    def sending(asked: RolloutRequests, iteration: int, wanted: Sequence[ItemRequest]) -> None:
        if (iteration, world.attempts) not in announced:
            announced.add((iteration, world.attempts))
            world.happens("ask", iteration)
        send(asked, iteration, wanted)

    patch.setattr(RolloutRequests, "send", sending)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, quick_compilation: None) -> Iterator[tuple[World, Artifact]]:
    """The world after the run, and its last checkpoint."""
    patch = pytest.MonkeyPatch()
    patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # as this process compiles
    world = World(tmp_path_factory.mktemp("asynchronous"))
    before_each_ask(patch, world)
    world.start_broker()
    try:
        yield world, world.trained()
    finally:
        patch.undo()
        with ended([*world.servers, world.broker]):
            world.signal(signal.SIGCONT)


def tables(checkpoint: Artifact) -> list[pl.DataFrame]:
    shards = sorted(checkpoint.store.artifacts("runs", "rewards", "rollouts"), key=lambda each: str(each.spec.partition))
    assert list(checkpoint.manifest.extra["checkpoint"]["rollouts"].values()) == [each.data_version for each in shards]
    return [pl.read_parquet(each.file(ROLLOUTS_FILE)) for each in shards]


@pytest.mark.slow
def test_no_completion_is_lost_and_none_is_trained_on_twice(world: tuple[World, Artifact]) -> None:
    """Every row of every table is the answer that the broker recorded under the last name of its group."""
    run, checkpoint = world
    read = tables(checkpoint)
    assert [len(table) for table in read] == [GROUPS * GROUP] * ITERATIONS
    on_record = run.asked("state = 'done'")
    assert {status for _, status, _, _ in on_record} == {200}
    assert sum(tries for *_, tries in on_record) > len(on_record), "the killed server held no request"
    last: dict[tuple[int, int], dict[int, dict]] = defaultdict(dict)
    for name, _, answer, _ in on_record:
        iteration, group = name.split("/")[-2:]
        place, _, attempt = group.partition("+")
        last[int(iteration), int(place)][int(attempt or 0)] = json.loads(answer)
    assert sorted(last) == [(iteration, group) for iteration in range(ITERATIONS) for group in range(GROUPS)]
    for (iteration, group), attempts in last.items():
        rows = read[iteration].filter(pl.col("group") == group)
        found = [list(tokens[start:]) for tokens, start in rows.select("tokens", "prompt_length").iter_rows()]
        accepted = attempts[max(attempts)]
        assert found == [choice["token_ids"] for choice in sorted(accepted["choices"], key=lambda each: each["index"])]


@pytest.mark.slow
def test_no_completion_is_older_than_the_bound_and_late_answers_are_counted(world: tuple[World, Artifact]) -> None:
    run, checkpoint = world
    updates, ages = spec().updates, Counter()
    for iteration, table in enumerate(tables(checkpoint)):
        ages.update((iteration - table["policy_step"].to_numpy() / updates).tolist())
    assert set(ages) == {0.0, 1.0}
    shards = sorted(checkpoint.store.artifacts("runs", "rewards", "rollouts"), key=lambda each: str(each.spec.partition))
    stale = [each.manifest.statistics.get("drops", {}).get("stale", 0) for each in shards]
    assert stale[4] >= GROUPS * GROUP, "the server with old weights answered the whole iteration first"
    names = [name for name, *_ in run.asked("state = 'done'")]
    assert sum(stale) == GROUP * sum("+" in name.rpartition("/")[2] for name in names), "each drop was asked for again"


@pytest.mark.slow
def test_workers_have_the_log_probabilities_of_the_trainer(world: tuple[World, Artifact]) -> None:
    """Of completions of the policy that was trained; those of the older policy differ, which the importance weight corrects."""
    gaps: dict[bool, list[float]] = {True: [], False: []}
    for iteration, table in enumerate(tables(world[1])):
        for row in table.iter_rows(named=True):
            gap = np.abs(np.array(row["log_probs"]) - np.array(row["before"])).max()
            gaps[row["policy_step"] == iteration * spec().updates].append(float(gap))
    assert max(gaps[True]) <= 1e-4
    assert max(gaps[False]) > 1e-2
