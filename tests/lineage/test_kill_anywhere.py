"""`kill -9` at any file operation of a sharded stage, its commit included, redoes at most one shard."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("kill_anywhere.py")
POINTS = 20


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> list[Mapping[str, Any]]:
    root = SCRIPT.parents[2]
    command = [sys.executable, str(SCRIPT), str(tmp_path_factory.mktemp("lives")), "7", str(POINTS)]
    environment = {**os.environ, "PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_the_kills_came_everywhere(lives: list[Mapping[str, Any]]) -> None:
    killed = [life for life in lives if life["killed"] == signal.SIGKILL]
    assert len(lives) == POINTS and len(killed) >= POINTS // 2
    assert any(len(life["before"]) < 12 for life in killed), "in the shards"
    assert any(len(life["before"]) == 12 and not life["committed"] for life in killed), "between the shards and the manifest"


def test_at_most_one_shard_is_done_again(lives: list[Mapping[str, Any]]) -> None:
    for life in lives:
        times = Counter(life["ran"])
        assert set(times) == set("abcdefABCDEF")
        again = {name: count for name, count in times.items() if count > 1}
        assert not again or again == {life["before"][-1]: 2}, life


def test_the_next_attempt_ends_with_the_same_bytes_and_leaves_no_other_data(lives: list[Mapping[str, Any]]) -> None:
    for life in lives:
        assert life["resumed"] == 0 and life["equal"] and life["data_folders"] == 1, life
