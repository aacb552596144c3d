"""The object-store server as a process that tests may kill. Its objects are files, so a new process continues with them.

    with BucketProcess(folder) as server:        # server.url stays the same
        server.kill()
        server.start()

It keeps what a real service promises: an acknowledged object exists after a SIGKILL; an unacknowledged one exists whole or not
at all. Resumable uploads in progress are lost, as Google's may be.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import requests
from control_plane import free_port
from gcs_objects import Objects, Stored
from gcs_server import gcs_server

LAB = Path(__file__).resolve().parent
START_SECONDS = 30.0


@dataclass
class DiskObjects(Objects):
    """Objects in a folder, one file each: a line of facts, then the bytes. A rename makes it visible whole. Facts are in
    memory.
    """

    folder: Path = Path()

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob("*.bucket"):
            self.buckets[path.stem] = json.loads(path.read_text())
        for path in self.folder.glob("*.object"):
            with path.open("rb") as file:
                facts = json.loads(file.readline())
            place = facts.pop("bucket"), facts.pop("name")
            self.objects[place] = Stored(b"", **facts)

    def add_bucket(self, name: str, facts: dict[str, object]) -> None:
        _write(self.folder / f"{name}.bucket", json.dumps(facts).encode())
        super().add_bucket(name, facts)

    def get(self, bucket: str, name: str, preconditions: Mapping[str, str]) -> Stored:
        with self.lock:
            facts = super().get(bucket, name, preconditions)
            with self._path(bucket, name).open("rb") as file:
                file.readline()
                return replace(facts, data=file.read())

    def keep(self, bucket: str, name: str, stored: Stored) -> None:
        facts = {key: getattr(stored, key) for key in ("generation", "metageneration", "metadata", "crc32c", "size")}
        line = json.dumps({"bucket": bucket, "name": name, **facts})
        _write(self._path(bucket, name), line.encode() + b"\n" + stored.data)
        super().keep(bucket, name, replace(stored, data=b""))

    def forget(self, bucket: str, name: str) -> None:
        self._path(bucket, name).unlink()
        super().forget(bucket, name)

    def _path(self, bucket: str, name: str) -> Path:
        return self.folder / f"{hashlib.sha256(f'{bucket}/{name}'.encode()).hexdigest()}.object"


def _write(path: Path, data: bytes) -> None:
    """Write a file without a sync: it survives this process, not this machine."""
    beside = path.with_suffix(".part")
    beside.write_bytes(data)
    beside.rename(path)


class BucketProcess:
    """A server process on its own port, and the folder of its objects."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "BucketProcess":
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def bucket(self, name: str) -> str:
        """Make a bucket and return its root URL."""
        with requests.Session() as session:
            session.trust_env = False
            session.post(f"{self.url}/storage/v1/b?project=lab", json={"name": name}, timeout=10).raise_for_status()
        return f"gs://{name}"

    def start(self) -> None:
        """Start the server. Raises: RuntimeError if it ended, TimeoutError if it does not answer."""
        command = [sys.executable, str(Path(__file__).resolve()), str(self.folder), str(self.port)]
        environment = {**os.environ, "PYTHONPATH": f"{LAB}:{LAB.parents[1]}"}
        self.process = subprocess.Popen(command, env=environment, start_new_session=True)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"the object-store server ended with {self.process.returncode}")
            if self.answers():
                return
            time.sleep(0.05)
        raise TimeoutError(f"the object-store server does not answer at {self.url} after {START_SECONDS:.0f} s")

    def answers(self) -> bool:
        with requests.Session() as session:
            session.trust_env = False
            try:
                return session.get(f"{self.url}/storage/v1/b/nobody", timeout=2).status_code == 404
            except requests.RequestException:
                return False

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def main(folder: str, port: str) -> None:
    with gcs_server(DiskObjects(folder=Path(folder)), int(port)):
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
