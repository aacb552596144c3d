"""Dagster as a deployment runs it: a code location that starts runs, and a daemon, each a process that may be killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from control_plane import free_port
from launches import ROOT

LOCATION = "chaos"
START_SECONDS = 180.0


class DagsterProcesses:
    """A code location over a module, and the daemon, of one instance (`environment["DAGSTER_HOME"]`)."""

    def __init__(self, module: str, environment: Mapping[str, str], folder: Path, python: str = sys.executable):
        self.module, self.environment, self.folder, self.python = module, environment, folder, python
        self.port = free_port()
        self.workspace = folder / "workspace.yaml"
        server = {"host": "127.0.0.1", "port": self.port, "location_name": LOCATION}
        self.workspace.write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "DagsterProcesses":
        server = ("api", "grpc", "-m", self.module, "-h", "127.0.0.1", "-p", str(self.port), "-n", "4")
        self._spawn("location", "dagster", *server)
        self._until_served()
        self.start_daemon()
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill_runs()
        for name in list(self.processes):
            self._kill(name)

    def start_daemon(self) -> None:
        self._spawn("daemon", "dagster._daemon", "run", "-w", str(self.workspace))

    def kill_daemon(self) -> None:
        """Kill the daemon with SIGKILL."""
        self._kill("daemon")

    def kill_runs(self) -> int:
        """Kill the processes of every run of the code location, their steps included, with SIGKILL. Returns their number."""
        pids = self.runs()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it has ended already
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def runs(self) -> list[int]:
        """Return the processes of the runs that the code location has started, and of their steps."""
        return [pid for pid, command in _descendants(self.processes["location"].pid) if "spawn_main" in command]

    def launch(self, job: str, tags: Mapping[str, str]) -> None:
        """Put a run of a job into the queue, as a person does. Raises: CalledProcessError with the output of the command."""
        options = ("-w", str(self.workspace), "--location", LOCATION, "-j", job, "--tags", json.dumps(dict(tags)))
        command = [self.python, "-m", "dagster", "job", "launch", *options]
        subprocess.run(command, cwd=ROOT, env=dict(self.environment), check=True, capture_output=True)

    def _spawn(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [self.python, "-m", *arguments], cwd=ROOT, env=dict(self.environment), stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def _kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def _until_served(self) -> None:
        """Wait until it serves. Raises: RuntimeError with the end of its log if it died; TimeoutError."""
        end = time.monotonic() + START_SECONDS
        check = [self.python, "-m", "dagster", "api", "grpc-health-check", "-p", str(self.port), "-h", "127.0.0.1"]
        while subprocess.run(check, capture_output=True, check=False).returncode:
            if self.processes["location"].poll() is not None:
                raise RuntimeError(f"the code location ended: {(self.folder / 'location.log').read_text()[-2000:]}")
            if time.monotonic() > end:
                raise TimeoutError(f"the code location does not answer after {START_SECONDS:.0f} s")
            time.sleep(1)


def _descendants(parent: int) -> Iterator[tuple[int, str]]:
    """Yield the descendants of a process, and their command lines; a parent before its children."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            above = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            command = (path / "cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        if above == parent:
            yield int(path.name), command
            yield from _descendants(int(path.name))
