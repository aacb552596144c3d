"""Jobs: a stage in its own process, and writers in several processes."""

import base64
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, ancestors_first, spec_of
from lineage.build.plan import build
from lineage.jobs.child_processes import HUGE_PAGES, run_subprocess
from lineage.jobs.job import Attempt, Job, LaunchRecord, LaunchRequest, read_job, run_job, write_job
from lineage.order.mixture import freeze_mixture
from lineage.shards.execution import Execution
from lineage.shards.run import ShardLimits
from lineage.shards.worker_pool import WorkerPool
from lineage.stage import Stage
from lineage.writing.writer import Writer

ROOT = Path(__file__).resolve().parents[2]
NUM_PARTS = 12  # more than ten, so that names sorted as text would be out of order

CONCATENATE = """
import sys
from pathlib import Path
from lineage.shards.execution import Execution
from lineage.jobs.job import read_job
from lineage.writing.write import writing

job = read_job(Path(sys.argv[1]))
print("this goes to the log")
if job.spec.config["text"] == "fail":
    sys.exit(3)
if job.spec.config["text"] != "nothing":
    with writing(job.store, job.spec, job.code_fingerprint, job.run_id) as out:
        parts = [part.files()[0].read_text() for part in (job.inputs["first"], *job.inputs["parts"], *job.inputs["none"])]
        (out.folder / "all.txt").write_text(" ".join(parts))
"""

WRITE_WHEN_TOLD = """
import sys
from lineage.artifact.store import Store
from lineage.artifact.spec import ArtifactSpec
from lineage.writing.write import writing

with writing(Store(sys.argv[1]), ArtifactSpec(("a",), None, "tests.race", "1", {})) as out:
    (out.folder / "x.txt").write_text(sys.argv[2] * 100_000)
    print("ready", flush=True)
    sys.stdin.readline()
print(out.artifact.data_version)
"""


@dataclass(frozen=True)
class Text:
    """What a test stage writes."""

    text: str


def write_text(out: Writer, config: Text) -> None:
    (out.folder / "part.txt").write_text(config.text)


PART = Stage("tests.part", "1", write_text)


FIRST = Node(("first",), None, PART, Text("first"))


def job_of(store: Store, text: str = "join") -> Job:
    """A job with a single input, a tuple of twelve, and an empty one."""
    parts = tuple(Node(("part",), str(i), PART, Text(f"part{i}")) for i in range(NUM_PARTS))
    node = Node(("joined",), None, Stage("tests.join", "1", job="concatenate"), Text(text), {"first": FIRST, "parts": parts})
    made = {n.name: build(store, n).artifact for n in ancestors_first([node])[:-1]}
    inputs: dict[str, Artifact | tuple[Artifact, ...]] = {"first": made["first"], "none": ()}
    inputs["parts"] = tuple(made[part.name] for part in parts)
    return Job(store, spec_of(store, node), inputs, "code", "run-7")


def launcher(folder: Path):
    """Like `run_subprocess`, with the test's own module on the path."""
    (folder / "concatenate.py").write_text(CONCATENATE)

    def launch(request: LaunchRequest) -> LaunchRecord:
        command = [sys.executable, "-m", request.module, str(request.job_path)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
        with request.log_path.open("w") as log_file:
            subprocess.run(
                command, env=environment, cwd=ROOT, stdout=log_file, stderr=subprocess.STDOUT, check=True, timeout=60
            )
        return LaunchRecord("child process", "cpu", (Attempt(1, "child process", 0.0, "done"),))

    return launch


def test_a_job_commits_what_it_was_asked_for(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    job = job_of(store)
    ran = run_job("concatenate", job, launcher(tmp_path))
    made = ran.artifact
    assert [attempt.ended for attempt in ran.launched.attempts] == ["done"]
    assert made.files()[0].read_text().split() == ["first", *(f"part{i}" for i in range(NUM_PARTS))]
    assert made.spec == job.spec
    assert (made.manifest.code_fingerprint, made.manifest.run_id) == ("code", "run-7")
    assert "this goes to the log" in (store.scratch / "jobs" / job.spec.version / "log.txt").read_text()


def test_idle_workers_hold_no_memory_while_a_job_runs(tmp_path: Path) -> None:
    """They are the run's, and a job of it may train for days."""
    with WorkerPool() as pool:
        store, execution = Store(str(tmp_path)), Execution(pool=pool)
        build(store, FIRST, execution=execution)
        (worker,) = pool.map(os.getpid, [()], 1, None)

        def looking(request: LaunchRequest) -> LaunchRecord:
            raise InterruptedError(f"worker there: {Path(f'/proc/{worker}').exists()}")

        with pytest.raises(InterruptedError, match="worker there: False"):
            join = Node(("joined",), None, Stage("tests.join", "1", job="evals"), None, {"one": FIRST})
            build(store, join, execution=execution, launcher=looking)


def test_an_execution_leaves_its_pool_behind_when_it_is_pickled() -> None:
    with WorkerPool() as pool:
        execution = Execution(3, ShardLimits(attempts=1), pool)
        again = pickle.loads(pickle.dumps(execution))
    assert again == execution and again.pool is None


def test_a_job_file_gives_the_job_back(tmp_path: Path) -> None:
    limits = ShardLimits(attempts=3, memory_bytes_of={"tests.part": 1 << 30})
    job = replace(job_of(Store(str(tmp_path / "store"))), execution=Execution(2, limits))
    write_job(job, tmp_path / "job.json")
    again = read_job(tmp_path / "job.json")
    assert again == job
    assert again.spec.version == job.spec.version


def test_a_job_that_ends_well_but_commits_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="joined: `python -m concatenate` exited 0 but committed nothing"):
        run_job("concatenate", job_of(Store(str(tmp_path / "store")), "nothing"), launcher(tmp_path))


def test_a_job_whose_input_is_gone_does_not_start(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    job = job_of(store)
    write_job(job, tmp_path / "job.json")
    gone = job.inputs["first"]
    assert isinstance(gone, Artifact)
    store.delete(gone)
    with pytest.raises(ValueError, match=f"input {gone.spec.address} .* is gone; materialize it again"):
        read_job(tmp_path / "job.json")


def test_the_plain_launcher_reports_the_end_of_the_log(tmp_path: Path) -> None:
    """Any module will do as a job: `json.tool` prints a file, or says why it cannot."""
    (tmp_path / "good.json").write_text('"fine"')
    (tmp_path / "bad.json").write_text("nonsense")
    launched = run_subprocess(LaunchRequest("json.tool", tmp_path / "good.json", tmp_path / "log.txt", "a job", "digest"))
    assert (tmp_path / "log.txt").read_text() == '"fine"\n'
    assert [attempt.ended for attempt in launched.attempts] == ["done"]
    with pytest.raises(RuntimeError, match=r"(?s)a job: .*ended with status 1; the end of .*log\.txt:\n.*Expecting value"):
        run_subprocess(LaunchRequest("json.tool", tmp_path / "bad.json", tmp_path / "log.txt", "a job", "digest"))


def test_of_three_processes_one_commits_and_all_return_its_artifact(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITE_WHEN_TOLD, str(tmp_path), letter],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for letter in "abc"
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    answers = [writer.communicate(timeout=60) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0], answers
    artifact = next(Store(str(tmp_path)).artifacts())
    assert {out.strip() for out, _ in answers} == {artifact.data_version}
    assert len(list(tmp_path.rglob(MANIFEST_NAME))) == 1
    assert len(list(tmp_path.rglob("x.txt"))) == 1, "the losers' data is gone"
    artifact.verify()


def test_data_of_a_writer_that_died_before_its_manifest_goes(tmp_path: Path) -> None:
    store, node = Store(str(tmp_path)), Node(("part",), None, PART, Text("x"))
    orphan = tmp_path / spec_of(store, node).address / "data-deadbeef"
    orphan.mkdir(parents=True)
    (orphan / "part.txt").write_text("half")
    assert store.find(spec_of(store, node)) is None
    made = build(store, node).artifact
    assert not orphan.exists()
    made.verify()


def test_a_reuse_says_when_the_code_has_changed_since(tmp_path: Path) -> None:
    store, node = Store(str(tmp_path)), Node(("part",), None, PART, Text("x"))
    build(store, node)
    same = build(store, node)
    assert (same.reused, same.drifted) == (True, False)
    changed = Stage(PART.name, PART.version, freeze_mixture)  # same meaning, other code
    drifted = build(store, Node(("part",), None, changed, Text("x")))
    assert (drifted.reused, drifted.drifted) == (True, True)
    bumped = build(store, Node(("part",), None, Stage(PART.name, "2", write_text), Text("x")))
    assert (bumped.reused, bumped.drifted) == (False, False)


@pytest.mark.parametrize("chosen", [None, "glibc.malloc.arena_max=1"])
def test_a_job_asks_for_huge_pages_unless_its_user_tuned_glibc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if chosen is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", chosen)
    run_subprocess(LaunchRequest("base64", Path("/proc/self/environ"), tmp_path / "log.txt", "a job", "digest"))
    environment = base64.b64decode((tmp_path / "log.txt").read_text()).decode().split("\0")
    assert f"GLIBC_TUNABLES={chosen or HUGE_PAGES['GLIBC_TUNABLES']}" in environment
