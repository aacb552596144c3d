"""Compiled programs go from machine to machine below the root, and only those that a key of the policy has signed."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_run
from gcs_server import GcsServer
from tiny_run import ROOT, job_in_bucket

from lineage.artifact.store import Store
from lineage.signing.keys import LocalKey
from lineage.signing.policy import NamedKey, Policy, default_policy
from lineage.signing.sign import SIGNATURES, sign_record
from lineage.storage.root import Storage
from trainer.shared_programs import FOLDER, SharedPrograms, sound_programs, why_not_shared

ADA, EVE = LocalKey(b"a" * 32), LocalKey(b"e" * 32)
POLICY = Policy("a test", (NamedKey("ada", ADA.public, frozenset({"make"})), NamedKey("eve", EVE.public, frozenset({"judge"}))))
STEP, SCAN = "jit_step-0a1b-cache", "jit_scan-77-cache"


@pytest.fixture
def ada(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process signs with Ada's key."""
    path = tmp_path / "ada.pem"
    path.write_bytes(ADA.pem)
    path.chmod(0o600)
    monkeypatch.setenv("MARIN_SIGNING_KEY", str(path))
    return path


def machine(tmp_path: Path, name: str) -> SharedPrograms:
    (tmp_path / name).mkdir(exist_ok=True)
    return SharedPrograms(Storage(str(tmp_path / "root")), POLICY, tmp_path / name, f"{FOLDER}/1/cpu/m")


def published(tmp_path: Path) -> SharedPrograms:
    """A machine that compiled two programs in a job, and had another before it."""
    first = machine(tmp_path, "first")
    (first.folder / "jit_old-1-cache").write_bytes(b"of another model")
    first.fetch()
    (first.folder / STEP).write_bytes(b"a step")
    (first.folder / SCAN).write_bytes(b"a scan")
    first.publish()
    return first


def files_of(shared: SharedPrograms) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in shared.folder.iterdir()}


def record_of(shared: SharedPrograms) -> str:
    (name,) = [name for name in shared.storage.records(shared.address) if name.endswith(".json")]
    return f"{shared.address}/{name}"


@pytest.mark.usefixtures("ada")
def test_another_machine_gets_what_a_job_compiled_and_publishes_nothing(tmp_path: Path) -> None:
    published(tmp_path).publish()
    second = machine(tmp_path, "second")
    second.fetch()
    assert files_of(second) == {STEP: b"a step", SCAN: b"a scan"}
    before = second.storage.sizes("")
    second.publish()
    assert second.storage.sizes("") == before


@pytest.mark.parametrize("planted", [b"evil", b"a stap"], ids=["another size", "the same size"])
@pytest.mark.usefixtures("ada")
def test_a_program_that_was_changed_or_is_gone_is_compiled_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, planted: bytes
) -> None:
    first = published(tmp_path)
    stated = json.loads(first.storage.read_text(record_of(first)) or "")["programs"]
    (tmp_path / "root" / first.address / stated[STEP]["sha256"]).write_bytes(planted)
    (tmp_path / "root" / first.address / stated[SCAN]["sha256"]).unlink()
    second = machine(tmp_path, "second")
    second.fetch()
    assert files_of(second) == {}
    assert STEP in caplog.text and SCAN in caplog.text
    (second.folder / STEP).write_bytes(b"a step")
    second.publish()
    third = machine(tmp_path, "third")
    third.fetch()
    assert files_of(third) == {STEP: b"a step"}


@pytest.mark.parametrize("signer", [None, EVE, LocalKey(b"x" * 32)], ids=["nobody", "who may not make", "a stranger"])
@pytest.mark.usefixtures("ada")
def test_who_may_only_write_the_bucket_runs_no_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, signer: LocalKey | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy allows unsigned data; programs must be signed all the same."""
    first = published(tmp_path)
    text = (first.storage.read_text(record_of(first)) or "").replace(STEP, "jit_planted-9-cache")
    first.storage.delete(record_of(first))
    where = f"{first.address}/planted.json"
    if signer is not None:
        sign_record(first.storage, where, text, "make", signer)
    first.storage.create(where, text)
    second = machine(tmp_path, "second")
    second.fetch()
    assert files_of(second) == {} and "has no signature of a key that may make" in caplog.text


@pytest.mark.usefixtures("ada")
def test_a_record_of_another_folder_does_not_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its signature names its place: programs of one kind of device do not become those of another."""
    first = published(tmp_path)
    folder = tmp_path / "root" / first.address
    (folder.parent / "other").mkdir()
    for path in [each for each in folder.rglob("*") if each.is_file()]:
        target = folder.parent / "other" / path.relative_to(folder)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    second = replace(machine(tmp_path, "second"), address=f"{FOLDER}/1/cpu/other")
    second.fetch()
    assert files_of(second) == {} and "are not used" in caplog.text


@pytest.mark.parametrize("name", ["../jit_a-1-cache", "/jit_a-1-cache", "jit_a-1-atime", "", "a/b-cache", "é-cache"])
def test_names_that_are_none_of_jax_are_refused(name: str) -> None:
    facts = {"sha256": "0" * 64, "bytes": 1}
    assert sound_programs({"schema": 1, "programs": {STEP: facts}}) == {STEP: facts}
    with pytest.raises(ValueError, match="a name of JAX"):
        sound_programs({"schema": 1, "programs": {name: facts}})
    for wrong in ({"sha256": "../x", "bytes": 1}, {"sha256": "0" * 64, "bytes": -1}, {"sha256": "0" * 64}, 3):
        with pytest.raises(ValueError, match="a sha256 and bytes"):
            sound_programs({"schema": 1, "programs": {STEP: wrong}})


@pytest.mark.usefixtures("ada")
def test_a_folder_that_has_too_much_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = published(tmp_path)
    monkeypatch.setattr("trainer.shared_programs.MOST_BYTES", 8)
    second = machine(tmp_path, "second")
    second.fetch()
    assert len(files_of(second)) == 1, "both would be more than is fetched"
    (second.folder / "jit_new-2-cache").write_bytes(b"new")
    second.publish()
    third = machine(tmp_path, "third")
    third.fetch()
    assert files_of(third) == {"jit_new-2-cache": b"new"}
    assert len([name for name in first.storage.sizes(first.address) if name.endswith(".json")]) == 2, "a record, its signature"


def test_a_key_that_nobody_else_accepts_shares_nothing(ada: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not_shared(POLICY) is None
    assert why_not_shared(replace(POLICY, keys=POLICY.keys[1:])) == "the key of this process may not make artifacts by a test"
    monkeypatch.setenv("MARIN_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("MARIN_SIGNING_KEY")
    assert "signs with a key of its own" in str(why_not_shared(default_policy()))
    monkeypatch.setenv("MARIN_SIGNING_KEY", "off")
    assert "MARIN_SIGNING_KEY is off" in str(why_not_shared(POLICY))


@pytest.mark.slow
def test_the_second_machine_compiles_no_step(gcs: GcsServer, tmp_path: Path, ada: Path) -> None:
    """Two processes with two trials each and scratch folders of their own; rates differ, so all four have one program."""
    (tmp_path / "lab.yaml").write_text(f"keys:\n  ada: {{public: {ADA.public.text}, may: [make]}}\n")
    environment = {"PATH": "/usr/bin:/bin", "STORAGE_EMULATOR_HOST": gcs.url, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    environment |= {"MARIN_SIGNING_KEY": str(ada), "MARIN_POLICY": str(tmp_path / "lab.yaml")}
    logs = []
    for number in range(2):
        files = []
        for rate in (1e-3, 2e-3):
            folder = tmp_path / f"{number}-{rate:g}"
            folder.mkdir()
            schedule = replace(tiny_run.SHORT.schedule, peak_learning_rate=rate * (1 + number / 2))
            store = Store(gcs.bucket("programs"), scratch_folder=str(tmp_path / f"scratch-{number}"))
            job_in_bucket(folder, replace(tiny_run.SHORT, name=folder.name, schedule=schedule), store)
            files.append(str(folder / "job.json"))
        command = [sys.executable, "-m", "trainer", *files]
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        logs.append(ran.stderr)
    assert "trainer: 0 compiled programs" in logs[0] and f"published at gs://programs/{FOLDER}/" in logs[0]
    fetched = [line for line in logs[1].splitlines() if "fetched from" in line]
    assert len(fetched) == 2 and "trainer: 0 compiled" not in fetched[0] and "trainer: 0 compiled" in fetched[1], logs[1]
    records = [json.loads(store.storage.read_text(name) or "") for name in gcs.names("programs") if is_record(name)]
    steps = [name for record in records for name in record["programs"] if "step" in name]
    assert len(steps) == 1, "a program that compiles in about .3 s may be published by any machine, the step by the first alone"


def is_record(name: str) -> bool:
    return name.startswith(FOLDER) and name.endswith(".json") and SIGNATURES not in name
