"""Pages of artifacts beside the UI: a link in metadata leads to the page's bytes, and the server shows nothing else."""

import http.client
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
import pytest
from control_plane import free_port
from launches import until
from small import repository

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.stage import Stage
from lineage.writing.writer import Writer
from marin_assets.page_server import VARIABLE, server
from marin_assets.pages import page_link

STARTER = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-m", "marin_assets.page_server", str(os.getpid())])
sys.stdin.read()
"""


@dataclass(frozen=True)
class Nothing:
    """There is nothing to choose."""


def write_page(out: Writer, config: Nothing) -> None:
    (out.folder / "report.html").write_text("<h1>a report</h1>")
    (out.folder / "table.txt").write_text("a table")


NODE = Node(("reports", "smoke"), "step|heldout", Stage("tests.page", "1", write_page), Nothing(), {})


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return build(Store(str(tmp_path / "artifacts")), NODE).artifact


@pytest.fixture
def port(artifact: Artifact) -> Iterator[int]:
    with server([artifact.store], 0) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        yield pages.server_address[1]
        pages.shutdown()


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", path, headers={"Host": f"{host}:{port}"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def link_of(artifact: Artifact, name: str = "report.html") -> str:
    link = page_link(artifact, name)
    assert isinstance(link, dg.UrlMetadataValue)
    return link.url


def test_a_link_leads_to_the_page(artifact: Artifact, port: int) -> None:
    assert get(port, urlsplit(link_of(artifact)).path) == (200, b"<h1>a report</h1>")


def test_nothing_else_is_shown(artifact: Artifact, port: int, tmp_path: Path) -> None:
    (tmp_path / "secret.html").write_text("no page of an artifact")
    (artifact.folder() / "unlisted.html").write_text("no file of the manifest")
    page = urlsplit(link_of(artifact)).path
    other = page.removesuffix("report.html")
    for path in (
        "/",
        "/artifacts/report.html",
        "/artifacts/../secret.html",
        "/artifacts/%2e%2e/secret.html",
        "/elsewhere" + page.removeprefix("/artifacts"),
        f"{other}unlisted.html",
        f"{other}table.txt",
        f"{other}manifest.json",
        f"/artifacts/{artifact.spec.address}/{artifact.manifest.data_folder}/report.html",
    ):
        assert get(port, path)[0] == 404, path


def test_a_foreign_host_name_is_refused(artifact: Artifact, port: int) -> None:
    """A web page may point its own name at 127.0.0.1 and read what answers."""
    assert get(port, urlsplit(link_of(artifact)).path, host="evil.example")[0] == 403


def test_a_page_whose_manifest_was_edited_is_not_shown(artifact: Artifact, port: int) -> None:
    manifest = Path(artifact.uri.removeprefix("file://")) / "manifest.json"
    manifest.write_text(manifest.read_text().replace("tests.page", "tests.other"))
    assert get(port, urlsplit(link_of(artifact)).path)[0] == 404


def test_pages_of_a_bucket_have_a_path_until_an_address_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    made = build(Store("memory://pages/artifacts"), NODE).artifact
    monkeypatch.delenv(VARIABLE, raising=False)
    assert isinstance(page_link(made, "report.html"), dg.PathMetadataValue)
    monkeypatch.setenv(VARIABLE, "https://pages.example/lab/")
    assert link_of(made).startswith("https://pages.example/lab/artifacts/reports/smoke/")


def test_the_server_ends_with_the_process_that_started_it(artifact: Artifact, tmp_path: Path) -> None:
    port = free_port()
    settings = {"MARIN_ROOT": str(tmp_path), VARIABLE: f"http://127.0.0.1:{port}", "PYTHONPATH": str(repository())}
    with subprocess.Popen([sys.executable, "-c", STARTER], env=os.environ | settings, stdin=subprocess.PIPE) as parent:
        path = urlsplit(link_of(artifact)).path
        until(lambda: answered(port, path) == 200, "the page to be served")
        parent.communicate(b"")
    until(lambda: answered(port, path) is None, "the server to end")


def answered(port: int, path: str) -> int | None:
    try:
        return get(port, path)[0]
    except OSError:
        return None
