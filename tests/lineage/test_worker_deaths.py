"""Causes of a worker's death: unobserved, during an answer, out of memory by the kernel's record."""

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from poison import poisoned
from test_incomplete import NAMES, words_node

from lineage.artifact.store import Store
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.shards.failures import IncompleteError
from lineage.shards.oom_kills import oom_kills, oom_record
from lineage.shards.run import ShardLimits
from lineage.shards.worker_pool import WorkerPool
from lineage.shards.workers import Worker, WorkerDied

ROOT = Path(__file__).parents[2]
HOG = "held = [bytes(range(256)) * (1 << 14) for _ in range(1 << 10)]"
"""4 GiB, touched in steps of 4 MiB."""


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_in_mid_answer() -> None:
    """The head of an answer of 1,000 bytes and the first of them. A worker's first argument is its end of the pipe."""
    os.write(int(sys.argv[1]), struct.pack("!i", 1000) + b"an answer")
    killed()


def killed_beside_an_oom(group: str) -> None:
    """Let an unrelated process in another control group die of memory; then another process kills us."""
    enter = f"import os, pathlib; pathlib.Path({group!r}, 'cgroup.procs').write_text(str(os.getpid())); "
    assert subprocess.run([sys.executable, "-c", enter + HOG]).returncode == -signal.SIGKILL
    killed()


def test_who_died_before_anybody_looked_still_has_a_peak() -> None:
    worker = Worker(None)
    worker.start("x", (killed, ()))
    worker.process.wait()
    death = next(answer for _ in range(2) if isinstance(answer := worker.answer(), WorkerDied))
    worker.end()
    assert death.exit_code == -signal.SIGKILL
    assert death.peak_rss_bytes > 1 << 20, "a Python process has more"


def test_a_death_in_the_middle_of_an_answer_ends_its_call_only() -> None:
    with WorkerPool() as pool:
        answers = dict(pool.run({"x": (killed_in_mid_answer, ()), "y": (os.path.join, ("a", "b"))}, 1, None))
    assert isinstance(answers["x"], WorkerDied) and answers["x"].exit_code == -signal.SIGKILL
    assert answers["y"] == "a/b"


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ("0::/pods/one", "sys/pods/one/memory.events"),
        ("0::/seen/by/the/host", "sys/memory.events"),
        ("4:cpu,memory:/pods/one", "sys/memory/pods/one/memory.oom_control"),
        ("4:memory:/seen/by/the/host", "sys/memory/memory.oom_control"),
        ("4:cpu:/pods/one", "proc/vmstat"),
    ],
)
def test_the_narrowest_record_of_kills_is_read(line: str, record: str, tmp_path: Path) -> None:
    """Of cgroup v2, of v1, of a container that sees its group at the root of the mount, and of no memory controller."""
    for number, path in enumerate(("proc/vmstat", "proc/7/cgroup", "sys/none/here", record)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(line if path.endswith("cgroup") else f"low 3\noom 9\noom_kill {number}\n")
    record_path = oom_record(7, tmp_path / "proc", tmp_path / "sys")
    assert (record_path, oom_kills(record_path)) == (tmp_path / record, 3)


@pytest.fixture
def box() -> Iterator[Path]:
    """A control group of 512 MiB. Only root makes one, and only where the memory controller is mounted for writing."""
    parent = Path("/sys/fs/cgroup/memory" if Path("/sys/fs/cgroup/memory").is_dir() else "/sys/fs/cgroup")
    group = parent / f"marin-test-{os.getpid()}"
    try:
        group.mkdir()
        limit = group / ("memory.limit_in_bytes" if parent.name == "memory" else "memory.max")
        limit.write_text(str(512 << 20))
    except OSError as error:
        pytest.skip(f"no control group with a limit can be made here ({error}), and only the kernel kills for memory")
    yield group
    group.rmdir()


def test_a_kill_for_memory_in_another_group_is_not_ours(box: Path) -> None:
    with WorkerPool() as pool:
        ((_, death),) = pool.run({"x": (killed_beside_an_oom, (str(box),))}, 1, None)
    assert isinstance(death, WorkerDied) and death.exit_code == -signal.SIGKILL
    assert not death.by_memory


def test_what_the_kernel_kills_for_memory_is_reported_as_memory(tmp_path: Path, box: Path) -> None:
    """No limit of ours: the largest process of the stage's group is killed with SIGKILL, and the group's count says why."""
    code = "import sys; from test_worker_deaths import fail_in; fail_in(*sys.argv[1:])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, Path(__file__).parent)))}
    child = subprocess.run(
        [sys.executable, "-c", code, str(box), str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True
    )
    failure = json.loads(child.stdout)
    assert (failure["name"], failure["kind"]) == ("b", "memory")
    assert "SIGKILL" in failure["error"] and "out of memory" in failure["error"]
    assert failure["peak_rss_bytes"] > 0  # memory is looked at every 100 ms: the last look may be early
    assert sorted(build(Store(str(tmp_path)), words_node()).artifact.manifest.shards) == [*NAMES, "join"]


def fail_in(group: str, root: str) -> None:
    """In a process of its own: enter the group, then a stage of which one shard takes more than is there."""
    Path(group, "cgroup.procs").write_text(str(os.getpid()))
    execution = Execution(2, ShardLimits(attempts=1))
    with pytest.raises(IncompleteError) as caught:
        build(Store(root), poisoned(words_node(), {"b": "crowd"}), execution=execution)
    (failure,) = caught.value.failures
    shown = ("name", "kind", "error", "peak_rss_bytes")
    print(json.dumps({field: getattr(failure, field) for field in shown}))
