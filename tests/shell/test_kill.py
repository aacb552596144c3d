"""`kill -9` once in every stage of a ferry: the finished day equals an undisturbed one."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small import FinishedFerry, repository
from small_runs import DAY

from lineage.artifact.store import Store
from lineage.build.nodes import resolve
from recipes import ferry as recipe

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("build_small_ferry.py")
TRAINING = "trainer.checkpoint"
HANGS = "fault injected at step 20"
SHARDED = ("datakit.normalize", "datakit.minhash", "datakit.contamination", "datakit.token_cache")


def start_build(root: Path, *arguments: str, faults: str = "") -> subprocess.Popen[str]:
    """Start the ferry in its own process group, so that workers and jobs can be killed with it, and collect their output."""
    environment = {**os.environ, "PYTHONPATH": str(repository()), "MARIN_FAULTS": faults}
    command = [sys.executable, str(SCRIPT), str(root), *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    )


def build_until_killed(root: Path, stage: str, seconds: float) -> list[str]:
    """A life that ends in a stage, and what it said.

    Training hangs at its 20th step and is killed there, a stage with workers dies when its first shard is finished: however
    slow the machine is, that is the middle. Any other is killed some seconds after it has started, if it is still there.
    """
    lines = []
    with start_build(
        root, stage, *(["kill"] if stage in SHARDED else []), faults="hang@20" if stage == TRAINING else ""
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if stage == TRAINING and HANGS in line:
                os.killpg(process.pid, signal.SIGKILL)
            elif stage not in (TRAINING, *SHARDED) and f"started ({stage} " in line:
                time.sleep(seconds)
                os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    may_be_over = stage not in (TRAINING, *SHARDED) and code == 0
    assert may_be_over or code == -signal.SIGKILL, f"{stage} ended with {code}:\n{''.join(lines)}"
    assert any(f"started ({stage} " in line for line in lines), f"{stage} never started:\n{''.join(lines)}"
    return lines


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, finished_ferry: FinishedFerry) -> tuple[Store, list[list[str]]]:
    """A day built to its end through one kill in every stage, and what each life of it said."""
    root = tmp_path_factory.mktemp("killed")
    chance = random.Random(7)
    nodes = recipe.nodes(recipe.rostered_run(finished_ferry.ferry, finished_ferry.lab.ferry_store, DAY))
    seconds = {node.stage.name: resolve(finished_ferry.lab.ferry_store, node).manifest.resources.wall_seconds for node in nodes}
    assert len(seconds) >= 14
    lives = [build_until_killed(root, stage, took * chance.uniform(0.1, 0.5)) for stage, took in seconds.items()]
    with start_build(root, nodes[-1].stage.name) as last:
        assert last.stdout is not None
        lives.append(list(last.stdout))
    assert last.returncode == 0, "".join(lives[-1])
    return Store(f"{root}/ttl-7d"), lives


def test_every_byte_is_that_of_an_undisturbed_day(killed, finished_ferry: FinishedFerry) -> None:
    store, _ = killed
    for node in recipe.nodes(recipe.rostered_run(finished_ferry.ferry, store, DAY)):
        if node.key[-1] == "report":  # it shows seconds
            continue
        made, undisturbed = resolve(store, node), resolve(finished_ferry.lab.ferry_store, node)
        assert made.data_version == undisturbed.data_version, node.name
        assert made.manifest.statistics == undisturbed.manifest.statistics, node.name


def test_nothing_committed_is_made_again(killed) -> None:
    _, lives = killed
    done = [line.split(": done")[0] for life in lives for line in life if ": done in" in line]
    assert len(done) == len(set(done))


def interrupted(life: list[str]) -> list[str]:
    """The lines of the artifacts that this life started and did not end."""
    done = {line.split(": done")[0] for line in life if ": done in" in line}
    return [line for line in life if ": started (" in line and line.split(": started")[0] not in done]


def test_training_and_stages_with_workers_were_killed_in_the_middle(killed) -> None:
    """What was killed after it was done shows nothing."""
    _, lives = killed
    hit = [line for life in lives[:-1] for line in interrupted(life)]
    for stage in (TRAINING, *SHARDED):
        assert any(f"({stage} " in line for line in hit), (stage, hit)
