"""Persistent workers: they keep state between shard maps, are replaced when unfit, and never outlive their owner."""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.shards.execution import Execution
from lineage.shards.run import ShardFolder, ShardLimits, run_shards
from lineage.shards.worker_pool import WorkerPool
from lineage.shards.workers import Call, WorkerDied
from lineage.writing.write import writing

SPEC = ArtifactSpec(key=("numbers",), partition=None, stage="test.numbers", stage_version="1", config={}, inputs=())
KNOWN: list[str] = []
"""Values that this process was given, to be returned later."""


def pid() -> int:
    return os.getpid()


def learn(word: str) -> None:
    KNOWN.append(word)


def known() -> list[str]:
    return KNOWN


def variable(name: str) -> str | None:
    return os.environ.get(name)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(what: str) -> None:
    raise ValueError(f"not {what}")


def double(number: int) -> int:
    return 2 * number


def faults_of_rounds(rounds: int, num_arrays: int, num_bytes: int) -> int:
    """Pages that the system gave while arrays were filled and given back, round by round, after a first round."""
    before = 0
    for number in range(rounds + 1):
        if number == 1:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        held = [np.ones(num_bytes, np.uint8) for _ in range(num_arrays)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def meet(folder: str, number: int, of: int) -> int:
    """Both calls of two workers are running at once, or neither ends."""
    Path(folder, str(number)).touch()
    while len(list(Path(folder).iterdir())) < of:
        time.sleep(0.01)
    return os.getpid()


def touch(folder: Path, name: str) -> Mapping[str, object]:
    (folder / name).touch()
    return {"pid": os.getpid()}


def fail_once(folder: Path, marker: Path) -> Mapping[str, object]:
    """No memory in the first attempt."""
    if not marker.exists():
        marker.write_text(str(os.getpid()))
        raise MemoryError("too large")
    return {"pid": os.getpid()}


def children() -> set[int]:
    """Processes that this one has started and not waited for. Not by `/proc/PID/task/*/children`, which may leave some out
    while others end (proc(5))."""
    pids = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            pids |= {int(stat.parent.name)} if parent == os.getpid() else set()
    return pids


def one(pool: WorkerPool, call: Call, memory_bytes: int | None = None) -> object:
    """What one call answers."""
    return dict(pool.run({"call": call}, 1, memory_bytes))["call"]


def test_a_later_map_has_the_workers_of_an_earlier_one(tmp_path: Path) -> None:
    pids = []
    with WorkerPool() as pool:
        for folder in (tmp_path / "a", tmp_path / "b"):
            folder.mkdir()
            pids.append(set(dict(pool.run({str(i): (meet, (str(folder), i, 2)) for i in range(2)}, 2, None)).values()))
    assert len(pids[0]) == 2 and pids[0] == pids[1]


def test_all_maps_of_one_artifact_have_the_same_workers_and_none_is_left(tmp_path: Path) -> None:
    others = children()
    with writing(Store(str(tmp_path)), SPEC, execution=Execution(2)) as out:
        pids = [
            {shard["pid"] for shard in out.map_shards(touch, {f"{i}-{n}": (f"{i}-{n}",) for n in range(6)}).values()}
            for i in range(3)
        ]
        workers = children() - others
    assert set.union(*pids) <= workers
    assert not workers & children()


def test_neighbours_of_a_map_in_runs_fall_to_one_worker(tmp_path: Path) -> None:
    names = [f"{number:02d}" for number in range(64)]
    with writing(Store(str(tmp_path)), SPEC, execution=Execution(2)) as out:
        done = out.map_shards(touch, {name: (name,) for name in names}, in_runs=True)
    assert sorted(done) == names
    parted = sum(done[one]["pid"] != done[next_one]["pid"] for one, next_one in pairwise(names))
    assert parted <= 12, "a worker without calls takes half of the other's: at most log2(64) times each"


def test_artifacts_made_with_one_pool_share_its_workers(tmp_path: Path) -> None:
    others = children()
    with WorkerPool() as pool:
        store, pids = Store(str(tmp_path)), []
        for name in ("a", "b"):
            spec = ArtifactSpec(key=(name,), partition=None, stage="test.numbers", stage_version="1", config={}, inputs=())
            with writing(store, spec, execution=Execution(2, pool=pool)) as out:
                done = out.map_shards(touch, {f"{n}": (f"{n}",) for n in range(6)})
                pids.append({shard["pid"] for shard in done.values()})
        workers = children() - others
        assert set.union(*pids) <= workers and len(workers) == 2
    assert not workers & children()


def test_what_a_worker_got_in_advance_is_known_to_its_first_call() -> None:
    with WorkerPool() as pool:
        pool.warm(1, None, (learn, ("word",)))
        assert one(pool, (known, ())) == ["word"]
    assert KNOWN == []


def test_a_worker_that_could_not_prepare_says_so_and_still_takes_calls(caplog: pytest.LogCaptureFixture) -> None:
    with WorkerPool() as pool:
        pool.warm(1, None, (refuse, ("today",)))
        assert one(pool, (double, (4,))) == 8
    assert "could not prepare for its calls: ValueError: not today" in caplog.text


def test_a_worker_that_died_while_it_was_idle_costs_no_call() -> None:
    with WorkerPool() as pool:
        dead = one(pool, (pid, ()))
        assert isinstance(dead, int)
        os.kill(dead, signal.SIGKILL)
        os.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)
        other = one(pool, (pid, ()))
        assert isinstance(other, int) and other != dead


def test_a_worker_that_dies_at_a_call_is_replaced() -> None:
    with WorkerPool() as pool:
        death = one(pool, (die, ()))
        assert isinstance(death, WorkerDied) and death.exit_code == -signal.SIGKILL
        assert one(pool, (double, (4,))) == 8


def test_another_limit_or_environment_has_another_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    others = children()
    with WorkerPool() as pool:
        first = one(pool, (pid, ()))
        limited = one(pool, (pid, ()), 1 << 30)
        monkeypatch.setenv("MARIN_TEST_CREW", "new")
        assert one(pool, (variable, ("MARIN_TEST_CREW",)), 1 << 30) == "new"
        assert len({first, limited, one(pool, (pid, ()), 1 << 30)}) == 3
        assert len(children() - others) == 1, "those that are unfit have been ended"


def test_a_map_that_nobody_goes_on_with_leaves_no_worker_at_its_calls(tmp_path: Path) -> None:
    others = children()
    with WorkerPool() as pool:
        running = pool.run({"quick": (double, (1,)), "endless": (meet, (str(tmp_path), 0, 2))}, 2, None)
        assert next(running) == ("quick", 2)
        running.close()  # type: ignore[attr-defined]  (an iterator that is a generator)
        assert len(children() - others) == 1, "the idle worker is left"


def test_a_shard_that_failed_for_memory_is_tried_again_by_a_worker_that_holds_none(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with WorkerPool() as pool:
        folder, limits = ShardFolder(tmp_path / "work"), ShardLimits(memory_bytes=1 << 30)
        ran = run_shards(folder, fail_once, {"a": (marker,)}, workers=2, pool=pool, title="t", limits=limits)
    assert not ran.failures
    assert ran.finished["a"]["pid"] != int(marker.read_text())


@pytest.mark.parametrize("workers", [1, 2])
def test_small_calls_answer_in_order_here_and_there(workers: int, tmp_path: Path) -> None:
    with writing(Store(str(tmp_path)), SPEC, execution=Execution(workers)) as out:
        assert out.map_calls(double, [(n,) for n in range(5)]) == [0, 2, 4, 6, 8]
        assert out.map_calls(double, []) == []
        with pytest.raises((ValueError, RuntimeError), match="not today"):
            out.map_calls(refuse, [("today",), ("tomorrow",)])


def test_calls_run_while_the_process_that_asked_goes_on(tmp_path: Path) -> None:
    met = tmp_path / "met"
    met.mkdir()
    calls = [(str(met), number, 3) for number in range(2)]
    with writing(Store(str(tmp_path / "store")), SPEC, execution=Execution(2)) as out, out.calling(meet, calls) as answers:
        (met / "2").touch()  # both calls wait for it
        assert len(set(answers())) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_calls_beside_answer_in_order_or_raise_where_they_are_asked(workers: int, tmp_path: Path) -> None:
    with writing(Store(str(tmp_path)), SPEC, execution=Execution(workers)) as out:
        with out.calling(double, [(n,) for n in range(5)]) as answers:
            assert answers() == [0, 2, 4, 6, 8]
        with out.calling(refuse, [("today",), ("tomorrow",)]) as answers, pytest.raises(Exception, match="not today"):
            answers()


def test_a_small_call_whose_worker_dies_is_reported() -> None:
    with WorkerPool() as pool, pytest.raises(RuntimeError, match="die, call 0 of 2: its worker was killed by SIGKILL"):
        pool.map(die, [(), ()], 1, None)


def test_a_worker_keeps_the_memory_that_it_gives_back_for_its_next_arrays() -> None:
    rounds, num_arrays, num_bytes = 20, 8, 1 << 20
    pages = rounds * num_arrays * num_bytes // resource.getpagesize()
    with WorkerPool() as pool:
        (faults,) = pool.map(faults_of_rounds, [(rounds, num_arrays, num_bytes)], 1, None)
    assert isinstance(faults, int) and faults < pages // 10
