"""The hub loader against a loopback hub: exact bytes of the pinned commit, or a clear refusal."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hub_server import COMMIT, Hub, serving_hub
from huggingface_hub import constants
from inputs import fetched

from datakit.sources import download
from datakit.sources.download import RegistryUnreachableError
from datakit.sources.hub import common_folder
from datakit.sources.source import HubFiles, Revision, Unverified
from lineage.artifact.store import Artifact
from lineage.shards.execution import Execution
from lineage.shards.failures import IncompleteError
from lineage.shards.run import ShardLimits

ROOT = Path(__file__).resolve().parents[2]
LARGE = bytes(range(256)) * 8192  # 2 MiB
FILES = {
    "README.md": b"# card",
    "data/a.jsonl": b'{"text": "a"}\n',
    "data/deep/b.jsonl": b'{"text": "b"}\n',
    "data/big.bin": LARGE,
}
LOADER = HubFiles("lab/texts", Revision(COMMIT), ("data/*",))


@contextmanager
def hub_on_loopback(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """`huggingface_hub` read its endpoint variable when it was imported, so the test sets what it read."""
    with serving_hub(hub) as endpoint:
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
        yield hub


def small_hub(**settings: object) -> Hub:
    return replace(Hub(dict(FILES), large=frozenset({"data/big.bin"})), **settings)


def contents(artifact: Artifact) -> dict[str, bytes]:
    folder = artifact.folder() / "files"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in artifact.files()}


def test_the_files_of_the_commit_come_whole_over_pages_and_redirects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_on_loopback(small_hub(), monkeypatch):
        artifact = fetched(tmp_path, LOADER)
    assert contents(artifact) == {name: content for name, content in FILES.items() if name.startswith("data/")}
    assert artifact.manifest.extra["commit"] == COMMIT


def test_a_short_commit_is_resolved_and_recorded_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_on_loopback(small_hub(), monkeypatch):
        artifact = fetched(tmp_path, replace(LOADER, revision=Revision(COMMIT[:7])))
    assert artifact.manifest.extra["commit"] == COMMIT


def test_another_commit_than_the_pinned_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = COMMIT[:7] + "0" * 33
    with hub_on_loopback(small_hub(), monkeypatch), pytest.raises(ValueError, match=f"{pinned} was requested.*{COMMIT}"):
        fetched(tmp_path, replace(LOADER, revision=Revision(pinned)))


def test_an_unverified_revision_is_refused_before_the_hub_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_on_loopback(small_hub(), monkeypatch) as hub:
        with pytest.raises(ValueError, match=r"source s: its revision is unverified \(said to be 'v1'\): heard.*add_a_source"):
            fetched(tmp_path, replace(LOADER, revision=Unverified("v1", "heard")))
        assert not hub.requests


def test_a_branch_is_no_pin() -> None:
    with pytest.raises(ValueError, match=r"revision 'main' is not 7 to 40 hex digits; a branch or tag moves"):
        Revision("main")


def test_the_list_of_files_is_part_of_the_data_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = []
    for number, globs in enumerate([("data/*",), ("data/a.jsonl", "data/deep/*")]):
        with hub_on_loopback(small_hub(), monkeypatch):
            versions.append(fetched(tmp_path / str(number), replace(LOADER, globs=globs)).data_version)
    renamed = {("data/c.jsonl" if name == "data/a.jsonl" else name): content for name, content in FILES.items()}
    with hub_on_loopback(small_hub(files=renamed), monkeypatch):
        versions.append(fetched(tmp_path / "renamed", LOADER).data_version)
    assert len(set(versions)) == 3


@pytest.mark.parametrize("path", ["data/a.jsonl", "data/big.bin"])
def test_bytes_that_are_not_the_commits_are_refused_and_deleted(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = replace(LOADER, globs=(path,))
    with hub_on_loopback(small_hub(corrupt=frozenset({path})), monkeypatch) as hub:
        with pytest.raises(IncompleteError, match=f"{path}: .* its (revision|pin) says {hub.digest(path)}"):
            fetched(tmp_path, loader)
        hub.corrupt = frozenset()
        assert contents(fetched(tmp_path, loader)) == {path: FILES[path]}


def test_a_cut_connection_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_on_loopback(small_hub(cut_first_at=1_000_000), monkeypatch) as hub:
        artifact = fetched(tmp_path, replace(LOADER, globs=("data/big.bin",)))
        assert contents(artifact) == {"data/big.bin": LARGE}
        ranges = [ranged for ranged in hub.gets("data/big.bin") if ranged is not None]
    assert ranges and 0 < int(ranges[-1].removeprefix("bytes=").split("-")[0]) <= 1_000_000


@pytest.mark.slow
def test_a_hub_that_is_slow_and_then_stalls_is_asked_for_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 5.0)
    hub = small_hub(stall_first_at=1_000_000, chunk_seconds=0.005)
    with hub_on_loopback(hub, monkeypatch):
        artifact = fetched(tmp_path, replace(LOADER, globs=("data/big.bin",)))
    assert contents(artifact) == {"data/big.bin": LARGE}
    assert any(hub.gets("data/big.bin")), "the rest, not all of it again"


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_hub_is_asked_again(status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_on_loopback(small_hub(failures=[status]), monkeypatch):
        assert contents(fetched(tmp_path, replace(LOADER, globs=("data/a.jsonl",)))) == {"data/a.jsonl": FILES["data/a.jsonl"]}


def test_what_came_before_a_failure_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_on_loopback(small_hub(corrupt=frozenset({"data/deep/b.jsonl"})), monkeypatch) as hub:
        with pytest.raises(IncompleteError, match=r"data/deep/b\.jsonl"):
            fetched(tmp_path, LOADER)
        first = {path: len(hub.gets(path)) for path in FILES}
        hub.corrupt = frozenset()
        fetched(tmp_path, LOADER)
        again = {path for path in FILES if len(hub.gets(path)) > first[path]}
    done = {path for path, count in first.items() if count} - {"data/deep/b.jsonl"}
    assert not again & done
    assert "data/deep/b.jsonl" in again


def test_refusals_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        hub_on_loopback(small_hub(gated=True), monkeypatch),
        pytest.raises(ValueError, match="terms accepted and HF_TOKEN set"),
    ):
        fetched(tmp_path, LOADER)
    with (
        hub_on_loopback(small_hub(), monkeypatch),
        pytest.raises(ValueError, match="hub dataset lab/none: the hub refuses with"),
    ):
        fetched(tmp_path, replace(LOADER, repository="lab/none"))
    with hub_on_loopback(small_hub(), monkeypatch), pytest.raises(ValueError, match=r"no file matches the glob 'data/\*\.csv'"):
        fetched(tmp_path, replace(LOADER, globs=("data/*.csv",)))


def test_silence_is_distinguished_from_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(RegistryUnreachableError, match="does not answer"):
            fetched(tmp_path, LOADER)


def test_a_test_split_is_refused_where_it_would_be_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = FILES | {"data/gsm8k/test.jsonl": b"{}\n"}
    with hub_on_loopback(small_hub(files=files), monkeypatch):
        with pytest.raises(ValueError, match=r"1 of its files look like a test or validation split \(data/gsm8k/test\.jsonl\)"):
            fetched(tmp_path, LOADER)
        left_out = fetched(tmp_path, replace(LOADER, exclude=("*/test.jsonl",)))
        named = fetched(tmp_path, replace(LOADER, globs=("data/gsm8k/test.jsonl",)))
        evaluated = fetched(tmp_path, LOADER, trainable=False)
    assert "data/gsm8k/test.jsonl" not in contents(left_out)
    assert list(contents(named)) == ["data/gsm8k/test.jsonl"]
    assert "data/gsm8k/test.jsonl" in contents(evaluated)


def test_the_endpoint_variable_is_honoured(tmp_path: Path) -> None:
    """In a process of its own: `huggingface_hub` reads HF_ENDPOINT when it is imported."""
    code = (
        "from datakit.sources.hub import hub_listing; from datakit.sources.source import *;"
        f"c = Revision('{COMMIT}'); listed = hub_listing(HubFiles('lab/texts', c, ('data/*',)), c, trainable=True);"
        "print(*(file.path for file in listed))"
    )
    with serving_hub(small_hub()) as endpoint:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path)}
        result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["data/a.jsonl", "data/big.bin", "data/deep/b.jsonl"]


@pytest.mark.parametrize(
    ("globs", "folder"),
    [
        (("sample/10BT/*.parquet",), "sample/10BT"),
        (("data/a/*", "data/b/x.json"), "data"),
        (("*.jsonl",), ""),
        (("data*",), ""),
        (("data/[ab]/c",), "data"),
    ],
)
def test_only_the_folder_that_the_globs_share_is_listed(globs: tuple[str, ...], folder: str) -> None:
    assert common_folder(globs) == folder


def test_a_killed_stage_goes_on_in_the_middle_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub goes away for good after a part of the file; the next attempt asks for the rest alone."""
    loader = replace(LOADER, globs=("data/big.bin",))
    with hub_on_loopback(small_hub(cut_first_at=1_000_000), monkeypatch) as hub:
        monkeypatch.setattr(download, "ATTEMPTS", 1)
        with pytest.raises(IncompleteError, match="RegistryUnreachableError"):
            fetched(tmp_path, loader, Execution(limits=ShardLimits(attempts=1)))
        assert contents(fetched(tmp_path, loader)) == {"data/big.bin": LARGE}
        ranges = [ranged for ranged in hub.gets("data/big.bin") if ranged is not None]
    assert ranges and 500_000 < int(ranges[-1].removeprefix("bytes=").split("-")[0]) <= 1_000_000
    assert not list((tmp_path / ".work/downloads/remote").iterdir())
