"""`kill -9` once in every stage of a ferry: the day that ends at last holds the bytes of an undisturbed one."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small import Sailed, repository
from small_lines import DAY

from lineage.plan import resolve
from lineage.store import Store
from recipes import ferry as recipe

SCRIPT = Path(__file__).with_name("sail.py")
MIDDLE = {"trainer.checkpoint": "trainer: metrics: "}  # said seconds before its first step: a kill there cannot come too late
SHARDED = ("datakit.normalize", "datakit.minhash", "datakit.contamination", "datakit.token_cache")


def sail(root: Path, last_stage: str) -> subprocess.Popen[str]:
    """Start the ferry in a process group of its own, so that workers and jobs can be killed with it, and hear all of them."""
    environment = {**os.environ, "PYTHONPATH": str(repository())}
    command = [sys.executable, str(SCRIPT), str(root), last_stage]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    )


def sail_into_a_kill(root: Path, stage: str, seconds: float) -> list[str]:
    """Kill the group some seconds after the stage has started, or where it says that it is in its middle; what it had said."""
    said = []
    middle = MIDDLE.get(stage)
    with sail(root, stage) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if middle is None and f"started ({stage} " in line:
                time.sleep(seconds)
                os.killpg(process.pid, signal.SIGKILL)
            elif middle is not None and middle in line:
                os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, f"{stage} never started:\n{''.join(said)}"
    return said


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, sailed: Sailed) -> tuple[Store, list[list[str]]]:
    """A day sailed to its end through one kill in every stage, and what each life of it said."""
    root = tmp_path_factory.mktemp("killed")
    chance = random.Random(7)
    nodes = recipe.nodes(recipe.rostered_line(sailed.ferry, sailed.lab.ferry_store, DAY))
    seconds = {node.stage.name: resolve(sailed.lab.ferry_store, node).manifest.resources.wall_seconds for node in nodes}
    assert len(seconds) >= 14
    lives = [sail_into_a_kill(root, stage, took * chance.uniform(0.1, 0.5)) for stage, took in seconds.items()]
    with sail(root, nodes[-1].stage.name) as last:
        assert last.stdout is not None
        lives.append(list(last.stdout))
    assert last.returncode == 0, "".join(lives[-1])
    return Store(f"{root}/ttl-7d"), lives


def test_every_byte_is_that_of_an_undisturbed_day(killed, sailed: Sailed) -> None:
    store, _ = killed
    for node in recipe.nodes(recipe.rostered_line(sailed.ferry, store, DAY)):
        if node.key[-1] == "report":  # it shows seconds
            continue
        made, undisturbed = resolve(store, node), resolve(sailed.lab.ferry_store, node)
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


def test_most_kills_came_in_the_middle(killed) -> None:
    """A kill that came too late shows nothing: training is always hit, and one at least of the stages with workers."""
    _, lives = killed
    hit = [line for life in lives[:-1] for line in interrupted(life)]
    assert any("(trainer.checkpoint " in line for line in hit), hit
    assert any(f"({stage} " in line for line in hit for stage in SHARDED), hit
