"""Child processes for tests: started from the repository's root, ended when the block ends."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

ROOT = Path(__file__).resolve().parents[2]


def start(module: str, *arguments: str, log: Path | None = None) -> subprocess.Popen:
    """`python -m module`; what it says goes to a file, or nowhere."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "evals")])}
    command = [sys.executable, "-m", module, *arguments]
    if log is None:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    with log.open("a") as file:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=file)


@contextmanager
def ended(processes: list[subprocess.Popen]) -> Iterator[None]:
    """Whatever is left of them at the end is killed, and all are waited for."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def wait_for(url: str, process: subprocess.Popen) -> None:
    """Until a process answers there. Fails when it has ended: its port may have been taken by another."""
    while True:
        assert process.poll() is None, f"{process.args} ended with {process.returncode} before it answered at {url}"
        try:
            return requests.get(url, timeout=5).raise_for_status()
        except requests.RequestException:
            time.sleep(0.05)
