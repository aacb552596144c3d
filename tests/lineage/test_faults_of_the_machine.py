"""Full disks, wrong clocks, a killed parent: nothing half committed, nothing done twice."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from poison import poisoned
from test_incomplete import Words, runs_of, words_node

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Store
from lineage.build.plan import build
from lineage.shards.failures import DiskFullError, IncompleteError, kind_of
from lineage.shards.run import PARTIAL_SUFFIX

ROOT = Path(__file__).resolve().parents[2]
PAGE = 4096


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system refuses to let a file grow beyond a size: what a full disk answers, by another number."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_shard_without_room_stops_the_stage_and_says_how_much_there_is(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    config = Words(("a", "b", "long" * 40, "zz"))  # 100 bytes a letter
    with (
        largest_file(12_000),
        pytest.raises(DiskFullError, match=r"no room for shard long.* had written 12,000 bytes.* are free"),
    ):
        build(store, words_node(config))
    assert runs_of(store) == ["a", "b", "long" * 40], "no other shard was started"
    assert not list(tmp_path.rglob(MANIFEST_NAME)) and not list(tmp_path.rglob(f"*{PARTIAL_SUFFIX}"))
    artifact = build(store, words_node(config)).artifact
    artifact.verify()
    assert runs_of(store) == ["a", "b", "long" * 40, "long" * 40, "zz"]


def test_a_merge_or_commit_without_room_keeps_every_shard(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    config = Words(tuple(f"w{i:02d}" for i in range(40)))
    with largest_file(10_000), pytest.raises(DiskFullError, match="no room for"):
        build(store, words_node(config))  # the joined words take 12,000
    assert not list(tmp_path.rglob(MANIFEST_NAME))
    build(store, words_node(config)).artifact.verify()
    assert len(runs_of(store)) == 40


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of its own in memory, of so many bytes. Skips where this user may not mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small file system to fill")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path, pages_left: int) -> Path:
    """A file that leaves so many pages of a disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream, suppress(OSError):  # the disk is full: that is what is wanted
        while stream.write(bytes(PAGE)):
            pass
    os.truncate(filler, filler.stat().st_size - pages_left * PAGE)
    return filler


def test_wherever_a_real_disk_is_full_nothing_is_half_committed_and_no_finished_shard_is_done_again(tmp_path: Path) -> None:
    """With room for one page more each time, until the stage fits."""
    config, stopped = Words(("a" * 90, "b" * 90, "c" * 90)), 0
    with small_disk(tmp_path / "disk", 64 * PAGE) as disk:
        for pages in range(64):
            store = Store(str(disk / str(pages)))
            filler = fill(disk, pages)
            try:
                build(store, words_node(config))
                break
            except OSError as error:
                assert kind_of(error) == "disk", f"with {pages} pages left: {error!r}"
                stopped += 1
            assert not list(disk.rglob(MANIFEST_NAME)), f"with {pages} pages left"
            filler.unlink()
            build(store, words_node(config)).artifact.verify()
            runs = runs_of(store)
            assert set(runs) == set(config.words)
            assert len(runs) <= len(config.words) + 1, "the shard that had no room, and no other"
            shutil.rmtree(store.root)
    assert stopped > len(config.words)


def test_an_error_that_stands_among_its_own_causes_is_reported_like_any_other() -> None:
    """A real full disk left such a ring. The function that classifies failures then never returned."""
    refused, raised = OSError(errno.ENOSPC, "No space left on device"), RuntimeError("no room")
    raised.__cause__, refused.__context__ = refused, raised
    assert kind_of(raised) == kind_of(refused) == "disk"


def test_errors_of_libraries_that_keep_the_systems_words_are_full_disks_too() -> None:
    assert kind_of(RuntimeError("No space left on device (os error 28)")) == "disk"
    wrapped = RuntimeError("cannot write part")
    wrapped.__cause__ = OSError(122, "Disk quota exceeded")
    assert kind_of(wrapped) == "disk"
    assert kind_of(ValueError("the text says: No space left on device")) == "permanent"


@pytest.mark.parametrize("hours", [-100_000, 100_000])
def test_finished_shards_are_known_whatever_the_clocks_say(hours: int, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with pytest.raises(IncompleteError):
        build(store, poisoned(words_node(), {"c": "value"}))
    moment = time.time() + hours * 3600
    for path in tmp_path.rglob("*"):
        os.utime(path, (moment, moment))
    build(store, words_node()).artifact.verify()
    assert runs_of(store) == ["a", "b", "c", "d", "c"]


def test_workers_do_not_outlive_a_killed_stage(tmp_path: Path) -> None:
    """A worker that went on would write where the next attempt works."""
    code = (
        "import sys, os, time, pathlib; from lineage.shards.worker_pool import WorkerPool\n"
        "from test_faults_of_the_machine import sleep_long\n"
        "list(WorkerPool().run({str(i): (sleep_long, (sys.argv[1], i)) for i in range(2)}, 2, None))\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}"}
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=environment, cwd=ROOT) as parent:
        while len(pids := [int(path.name) for path in tmp_path.iterdir()]) < 2:
            assert parent.poll() is None
            time.sleep(0.05)
        parent.send_signal(signal.SIGKILL)
    for _ in range(600):
        if not any(_alive(pid) for pid in pids):
            return
        time.sleep(0.1)
    raise AssertionError(f"workers {pids} are still there a minute after their parent was killed")


def sleep_long(folder: str, number: int) -> int:
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)
    return number


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
