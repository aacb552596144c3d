"""Shard runners: three processes on one store, one killed; one shard alone by its command."""

import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from sharded_stage import LENGTHS, NAMES, Words, lengths

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import spec_of
from lineage.build.plan import build
from lineage.build.shard_runner import NOT_YET, Share, main, run_share
from lineage.build.stage_run import write_shard_job
from lineage.jobs.job import Job
from lineage.shards.failures import IncompleteError
from lineage.shards.shared import SharedShards
from lineage.storage.root import Storage
from lineage.trust.fingerprint import stage_code

ROOT = Path(__file__).resolve().parents[2]


def job_of(store: Store) -> Job:
    code = stage_code(LENGTHS.module)
    return Job(store, spec_of(store, lengths()), {}, code.fingerprint, "", packages=tuple(code.packages))


def runner(job_path: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}"}
    command = [sys.executable, "-m", "lineage.build.shard_runner", "sharded_stage", str(job_path), *arguments]
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ran(store: Store) -> list[str]:
    return Path(store.root, "log").read_text().split()


def logged(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "shared"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """What one process makes."""
    root = tmp_path_factory.mktemp("whole")
    return build(Store(str(root)), lengths()).artifact


def test_three_processes_one_of_them_killed_make_the_bytes_of_one(store: Store, whole: Artifact) -> None:
    Path(store.root).mkdir()
    Path(store.root, "die-e").touch()  # the second shard of runner 1
    job_path = write_shard_job(job_of(store))
    first = [runner(job_path, "--index", str(i), "--count", "3") for i in range(3)]
    outputs = [process.communicate(timeout=120)[0] for process in first]
    assert [process.returncode for process in first] == [0, -signal.SIGKILL, 0], outputs
    assert sorted(ran(store)) == list(NAMES)

    assert main(["sharded_stage", str(job_path), "--index", "1", "--count", "3"]) == 0, "its restart"
    assert Counter(ran(store)) == Counter([*NAMES, "e"]), "only what the killed one had not finished"
    for i in range(3):
        assert main(["sharded_stage", str(job_path), "--index", str(i), "--count", "3"]) == 0
    assert Counter(ran(store)) == Counter([*NAMES, "e", *(name.upper() for name in NAMES)]), "the second map, a share each"

    made = build(store, lengths()).artifact
    assert len(ran(store)) == 2 * len(NAMES) + 1, "the finishing step does no shard again"
    assert made.data_version == whole.data_version and made.manifest.statistics == whole.manifest.statistics
    made.verify()
    shared = SharedShards(store.storage, made.spec.version, "")
    assert not list((Path(store.root) / ".work" / "shards").glob(f"{shared.version}*")), "what was shared goes at the commit"


def test_two_runners_of_one_share_do_no_harm(store: Store, whole: Artifact) -> None:
    Path(store.root).mkdir()
    job_path = write_shard_job(job_of(store))
    both = [runner(job_path) for _ in range(2)]
    for process in both:
        output, _ = process.communicate(timeout=120)
        assert process.returncode in (0, NOT_YET), output
    for name in NAMES:
        folder = next((Path(store.root) / ".work" / "shards").glob(f"*/write-{name}"))
        assert len(list(folder.glob("data-*"))) == 1 and (folder / "shard.json").exists()
    assert build(store, lengths()).artifact.data_version == whole.data_version


def test_the_materialization_does_what_no_runner_has(store: Store, whole: Artifact) -> None:
    Path(store.root).mkdir()
    job_path = write_shard_job(job_of(store))
    assert main(["sharded_stage", str(job_path), "--index", "0", "--count", "3"]) == 0
    assert ran(store) == ["a", "d", "g"]
    assert build(store, lengths()).artifact.data_version == whole.data_version
    assert Counter(ran(store)) == Counter([*NAMES, *(name.upper() for name in NAMES)])


def test_a_runner_with_nothing_to_do_yet_says_that_it_waits(store: Store) -> None:
    Path(store.root).mkdir()
    job_path = write_shard_job(job_of(store))
    share = ["sharded_stage", str(job_path), "--index", "2", "--count", "3"]
    assert [main(share), main(share)] == [0, NOT_YET]


def test_runners_share_by_the_index_of_an_indexed_job(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(store.root).mkdir()
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "4")
    assert main(["sharded_stage", str(write_shard_job(job_of(store))), "--count", "5"]) == 0
    assert ran(store) == ["e"]


def test_a_failed_shard_is_run_alone_by_its_command_and_its_result_is_taken(store: Store, whole: Artifact) -> None:
    Path(store.root).mkdir()
    bad = Path(store.root, "bad-c")
    bad.touch()
    with pytest.raises(IncompleteError) as caught:
        build(store, lengths())
    (failure,) = caught.value.failures
    command = shlex.split(failure.command)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}"}
    alone = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert alone.returncode == 1 and ", in write_word" in alone.stderr and "ValueError: c cannot be read" in alone.stderr
    bad.unlink()
    assert main(command[3:]) == 0
    assert Counter(ran(store))["c"] == 3
    assert build(store, lengths()).artifact.data_version == whole.data_version
    assert Counter(ran(store))["c"] == 3, "materializing took what the command had made"


def test_a_shard_of_a_later_map_alone_uses_what_the_stage_has_finished(store: Store) -> None:
    Path(store.root).mkdir()
    Path(store.root, "bad-b").touch()
    with pytest.raises(IncompleteError):
        build(store, lengths())
    job_path = write_shard_job(job_of(store))
    with pytest.raises(ValueError, match=r"'measure-a' is not among the shards that can be run yet; 1 before it are not"):
        main(["sharded_stage", str(job_path), "--only", "measure-a"])
    Path(store.root, "bad-b").unlink()
    assert main(["sharded_stage", str(job_path), "--only", "write-b"]) == 0
    assert main(["sharded_stage", str(job_path), "--only", "measure-a"]) == 0
    assert ran(store)[-1] == "A"


def test_a_runner_whose_shard_fails_names_it_and_ends_with_1(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    Path(store.root).mkdir()
    Path(store.root, "bad-d").touch()
    assert main(["sharded_stage", str(write_shard_job(job_of(store))), "--index", "0", "--count", "3"]) == 1
    assert "write-d (permanent, tried once): ValueError: d cannot be read" in logged(capsys)
    assert ran(store) == ["a", "d", "g"], "the others of its share are done"


def test_other_code_is_refused(store: Store) -> None:
    job = Job(store, spec_of(store, lengths()), {}, "another fingerprint", "")
    with pytest.raises(ValueError, match="was written by code another fingerprint"):
        run_share(LENGTHS, Words(), job, Share(0, 2))


def test_the_first_of_two_copies_of_a_shard_stays(tmp_path: Path) -> None:
    shared = SharedShards(Storage(str(tmp_path / "root")), "version", "code")
    for content in ("first", "second"):
        folder = tmp_path / content
        folder.mkdir()
        (folder / "x").write_text(content)
        assert shared.publish("s", folder, {}) == (content == "first")
    assert [path.read_text() for path in (tmp_path / "root").rglob("x")] == ["first"]
    assert shared.finished() == {"s"}


@pytest.mark.parametrize(("index", "count"), [(3, 3), (-1, 2), (0, 0)])
def test_a_share_that_cannot_be_is_refused(index: int, count: int) -> None:
    with pytest.raises(ValueError, match=f"runner index is {index} of {count}"):
        Share(index, count)
