"""Downloads from real loopback servers: resume, hash checks, retries, timeouts."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from http_site import Site, serving

from datakit.sources import download as download_module
from datakit.sources.download import CHUNK_BYTES, RegistryUnreachableError, download
from datakit.sources.pypi import ensure_downloaded, pip_certificates
from datakit.sources.source import WheelPin

ROOT = Path(__file__).resolve().parents[2]
CONTENT = bytes(range(256)) * 8192  # 2 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def test_a_cut_connection_is_resumed_at_the_missing_byte(tmp_path: Path) -> None:
    site = Site({"/f": CONTENT}, cut_first_at=1_000_000)
    with serving(site) as base:
        download(f"{base}/f", tmp_path / "f", sha256=SHA256, what="f")
    assert (tmp_path / "f").read_bytes() == CONTENT
    first, second = site.ranges
    assert first is None and second is not None
    resumed_at = int(second.removeprefix("bytes=").removesuffix("-"))
    assert 1_000_000 - CHUNK_BYTES < resumed_at <= 1_000_000


@pytest.mark.slow
def test_a_server_that_stalls_is_asked_for_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the connection and sends nothing; before that it does not answer at all."""
    monkeypatch.setattr(download_module, "TIMEOUT_SECONDS", 5.0)
    site = Site({"/f": CONTENT}, stall_first_at=1_000_000, silent=1)
    with serving(site) as base:
        download(f"{base}/f", tmp_path / "f", sha256=SHA256, what="f")
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert site.ranges.count(None) == 1, "the rest, not all of it again"
    assert site.visits >= 3


@pytest.mark.slow
def test_a_server_that_drips_is_asked_for_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then is not silence: at a hundredth of a second each, the file would take six hours."""
    monkeypatch.setattr(download_module, "PACE_SECONDS", 5.0)
    monkeypatch.setattr(download_module, "SLOWEST_BYTES_PER_SECOND", 10_000)
    site = Site({"/f": CONTENT}, drip_first_at=len(CONTENT) - 100_000)
    with serving(site) as base:
        download(f"{base}/f", tmp_path / "f", sha256=SHA256, what="f")
    assert (tmp_path / "f").read_bytes() == CONTENT
    first, *_, last = site.ranges
    assert first is None and last is not None
    assert int(last.removeprefix("bytes=").removesuffix("-")) > len(CONTENT) - 100_000, "what dripped is kept"


def test_a_server_that_never_sends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_module, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(download_module, "ATTEMPTS", 2)
    with serving(Site({"/f": CONTENT}, silent=2)) as base, pytest.raises(RegistryUnreachableError, match="after 2 attempts"):
        download(f"{base}/f", tmp_path / "f", sha256=SHA256, what="f")


def test_bytes_of_another_range_are_not_appended(tmp_path: Path) -> None:
    (tmp_path / "f.partial").write_bytes(CONTENT[:1000])
    site = Site({"/f": CONTENT}, wrong_ranges=1)
    with serving(site) as base:
        download(f"{base}/f", tmp_path / "f", sha256=SHA256, what="f")
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert site.ranges == ["bytes=1000-", None]


def test_two_that_want_one_file_fetch_it_once(tmp_path: Path) -> None:
    site = Site({"/f": CONTENT}, chunk_seconds=0.005)
    with serving(site) as base, ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(download, f"{base}/f", tmp_path / "f", sha256=SHA256, what="f") for _ in range(2)]
        for job in jobs:
            job.result()
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert site.visits == 1


def test_a_wrong_hash_names_both_and_leaves_nothing(tmp_path: Path) -> None:
    with serving(Site({"/f": CONTENT})) as base, pytest.raises(ValueError, match=f"sha256 {SHA256}, its pin says {'0' * 64}"):
        download(f"{base}/f", tmp_path / "f", sha256="0" * 64, what="f")
    assert not list(tmp_path.iterdir())


def test_busy_servers_are_asked_again_and_redirects_followed(tmp_path: Path) -> None:
    site = Site({"/f": CONTENT}, failures=[503, 429], redirects={"/old": "/f"})
    with serving(site) as base:
        download(f"{base}/old", tmp_path / "f", sha256=SHA256, what="f")
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_a_busy_server_says_how_long_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(download_module.time, "sleep", waits.append)
    with serving(Site({"/f": CONTENT}, failures=[503, 429], retry_after="7")) as base:
        download(f"{base}/f", tmp_path / "f", sha256=SHA256, what="f")
    assert waits == [7.0, 7.0]


def test_a_refusal_is_an_error_at_once(tmp_path: Path) -> None:
    site = Site()
    with serving(site) as base, pytest.raises(ValueError, match="refuses 404"):
        download(f"{base}/f", tmp_path / "f", sha256=SHA256, what="f")
    assert site.visits == 1


def test_silence_is_distinguished_from_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_module, "ATTEMPTS", 2)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/f"
        with pytest.raises(RegistryUnreachableError):
            download(url, tmp_path / "f", sha256=SHA256, what="f")


def test_a_killed_download_goes_on_where_it_was(tmp_path: Path) -> None:
    site = Site({"/f": CONTENT}, chunk_seconds=0.05)
    target = tmp_path / "f"
    with serving(site) as base:
        code = (
            "from pathlib import Path; from datakit.sources.download import download; "
            f"download('{base}/f', Path({str(target)!r}), sha256='{SHA256}', what='f')"
        )
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL) as child:
            partial = target.with_name("f.partial")
            while not (partial.exists() and partial.stat().st_size >= 1 << 18):
                assert child.poll() is None
                time.sleep(0.01)
            child.send_signal(signal.SIGKILL)
        have = partial.stat().st_size
        assert not target.exists()
        site.chunk_seconds = 0.0
        download(f"{base}/f", target, sha256=SHA256, what="f")
    assert target.read_bytes() == CONTENT
    assert site.ranges[-1] == f"bytes={have}-"


def wheel(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tinytext/data.txt", "hello")
        archive.writestr("tinytext-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tinytext\nVersion: 1.0\n")
        archive.writestr("tinytext-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tinytext-1.0.dist-info/RECORD", "")
    return path.read_bytes()


def use_index(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for variable, value in {"PIP_INDEX_URL": url, "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(variable, value)
    for variable in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(variable, raising=False)


def test_an_index_that_only_fails_is_unreachable_and_one_without_the_package_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = WheelPin("tinytext", "1.0", "0" * 64)
    with serving(Site(failures=[503] * 20)) as base:
        use_index(monkeypatch, f"{base}/simple")
        with pytest.raises(RegistryUnreachableError, match="503"):
            ensure_downloaded(pin, tmp_path)
    with serving(Site()) as base:
        use_index(monkeypatch, f"{base}/simple")
        with pytest.raises(ValueError, match=r"(?s)cannot resolve tinytext==1\.0.*No matching distribution"):
            ensure_downloaded(pin, tmp_path)


def test_a_pin_is_fetched_from_the_index_that_pip_is_set_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "tinytext-1.0-py3-none-any.whl"
    content = wheel(tmp_path / name)
    pin = WheelPin("tinytext", "1.0", hashlib.sha256(content).hexdigest())
    page = f'<!doctype html><a href="/files/{name}">{name}</a>'.encode()
    site = Site({"/simple/tinytext/": page, f"/files/{name}": content})
    with serving(site) as base:
        use_index(monkeypatch, f"{base}/simple")
        path = ensure_downloaded(pin, tmp_path / "downloads")
        visits = site.visits
        assert ensure_downloaded(pin, tmp_path / "downloads") == path
        assert site.visits == visits, "a cached wheel needs no network"
        with pytest.raises(ValueError, match="its pin says"):
            ensure_downloaded(WheelPin("tinytext", "1.0", "1" * 64), tmp_path / "downloads")
        with pytest.raises(ValueError, match=r"cannot resolve tinytext==9\.9"):
            ensure_downloaded(WheelPin("tinytext", "9.9", "2" * 64), tmp_path / "downloads")
    assert path.read_bytes() == content
    with pytest.raises(RegistryUnreachableError):  # the server is gone now
        ensure_downloaded(WheelPin("tinytext", "1.0", "3" * 64), tmp_path / "downloads")


def test_a_file_without_a_hash_is_resumed_while_its_etag_is_the_same(tmp_path: Path) -> None:
    site = Site({"/f": CONTENT}, cut_first_at=1_000_000, etag='"one"')
    with serving(site) as base:
        download(f"{base}/f", tmp_path / "f", sha256=None, what="f")
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert [ranged is not None for ranged in site.ranges] == [False, True]


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_a_file_without_a_hash_or_etag_starts_from_byte_0(etag: str | None, tmp_path: Path) -> None:
    """Without them nothing shows whether the rest belongs to the same file, or which file an older partial is of."""
    (tmp_path / "f.partial").write_bytes(b"?" * 1000)
    site = Site({"/f": CONTENT}, cut_first_at=1_000_000, etag=etag)
    with serving(site) as base:
        download(f"{base}/f", tmp_path / "f", sha256=None, what="f")
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert site.ranges == [None, None]


def test_a_file_of_unknown_length_and_hash_is_refused(tmp_path: Path) -> None:
    site = Site({"/f": CONTENT}, tells_length=False)
    with serving(site) as base:
        with pytest.raises(ValueError, match="a file that was cut would pass; give its sha256"):
            download(f"{base}/f", tmp_path / "f", sha256=None, what="f")
        download(f"{base}/f", tmp_path / "f", sha256=SHA256, what="f")
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_without_a_word_from_pip_the_machines_certificates_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle, else a folder that is not empty, else what requests brings."""
    for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    bundle, folder = tmp_path / "bundle.pem", tmp_path / "certs"
    folder.mkdir()
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    assert pip_certificates() is None
    (folder / "one.pem").touch()
    assert pip_certificates() == str(folder)
    bundle.touch()
    assert pip_certificates() == str(bundle)
    monkeypatch.setenv("PIP_CERT", "pip.pem")
    assert pip_certificates() == "pip.pem"
