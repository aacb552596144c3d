"""Run the probes under one profile: `python tests/evals/sandbox_probe_run.py PROFILE` prints a JSON list of what went wrong.

The host prepares what attacks are after (files, a listener, a victim of the same user, keys, shared memory) and looks at it
again afterwards.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from pod_profile import become
from sandbox_probes import FORGED_HEAD, FORGED_TESTS, FORGERIES, GOLD, PROBES, TESTS, Probe

from evals.sandbox.run import Limits, Run, run_program

LIMITS = Limits(wall_seconds=6.0, cpu_seconds=1, memory_mib=128, processes=8)
ROOMY = Limits(wall_seconds=60.0, cpu_seconds=10, memory_mib=256, processes=8)
WALLS = {"root": "namespaces", "user": "namespaces", "pod": "landlock"}
BROKEN = ("NameError", "SyntaxError", "TypeError", "AttributeError", "IndexError", "KeyError", "ValueError", "struct.error")
"""Faults of a probe itself, which would read as a refusal."""


@dataclass
class Host:
    """What attacks are after."""

    folder: Path
    marker: str = field(default_factory=lambda: f"probe{uuid.uuid4().hex}")

    def __enter__(self) -> "Host":
        (self.folder / "secret").write_text("s3cret")
        (self.folder / "empty").mkdir()
        os.mkfifo(self.folder / "fifo")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.local = socket.socket(socket.AF_UNIX)
        self.local.bind(str(self.folder / "socket"))
        self.local.listen()
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0{self.marker}")
        self.abstract.listen()
        self.victim = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(900)"])
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.key = self.libc.syscall(248, b"user", self.marker.encode(), b"HOSTSECRET", 10, -3)
        self.segment = self.libc.syscall(29, 0, 4096, 0o1600)
        self.shared = Path("/dev/shm", self.marker)
        self.shared.write_text("shared")
        self.before = self.state()
        return self

    def state(self) -> object:
        files = sorted((p.name, p.stat().st_mode, p.stat().st_mtime_ns, p.stat().st_size) for p in self.folder.iterdir())
        shared = self.shared.exists() and self.shared.read_text()
        victim = (self.victim.poll(), os.getpriority(os.PRIO_PROCESS, self.victim.pid), os.sched_getscheduler(self.victim.pid))
        return files, (self.folder / "secret").read_text(), shared, victim, os.getpriority(os.PRIO_PROCESS, 0)

    def changed(self) -> list[str]:
        """What attacks have done to it."""
        changes = [] if self.state() == self.before else [f"the host was {self.before} and is {self.state()}"]
        for name, each in (("tcp", self.listener), ("unix", self.local), ("abstract", self.abstract)):
            each.setblocking(False)
            try:
                each.accept()
                changes.append(f"somebody connected to the {name} listener")
            except BlockingIOError:
                pass
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and self.marker.encode() in (process / "cmdline").read_bytes():
                    changes.append(f"process {process.name} was left behind")
            except OSError:
                continue
        if self.key >= 0 and self.libc.syscall(250, 10, -3, b"user", b"left", 0) >= 0:
            changes.append("a key was left behind")
        return changes

    def __exit__(self, *raised: object) -> None:
        self.victim.kill()
        self.victim.wait()
        self.shared.unlink(missing_ok=True)
        self.libc.syscall(31, self.segment, 0, 0)

    def filled(self, text: str) -> str:
        """The text with what we have in place of its names."""
        names = {
            "REPOSITORY": Path(__file__).parents[2], "FOLDER": self.folder, "PORT": self.listener.getsockname()[1],
            "ABSTRACT": self.marker, "VICTIM": self.victim.pid, "USER_ID": os.getuid(),
            "MARKER": self.marker, "KEY_ID": max(self.key, 1), "KEY": self.marker, "SEGMENT": self.segment,
            "SHARED": self.marker,
        }  # fmt: skip
        for name, value in names.items():
            text = text.replace(name, str(value))
        return text


def judged(profile: str, probe: Probe, run: Run) -> str | None:
    """What is wrong with how a probe ended; None for a refusal."""
    summary = f"{probe.subject}: {probe.name!r}: {run.outcome} {run.detail[-300:]!r}"
    if run.outcome == "passed":
        return None if run.walls == WALLS[profile] else f"{summary}: held by {run.walls!r}"
    if not probe.ends or "got through" in run.detail or any(fault in run.detail for fault in BROKEN):
        return summary
    return None


def run_all(profile: str, subjects: set[str], folder: Path) -> list[str]:
    """What went wrong, a line each."""
    chosen = [probe for probe in PROBES if not subjects or probe.subject in subjects]
    wrong: list[str | None] = []
    with Host(folder) as host, ThreadPoolExecutor(3) as pool:
        runs = pool.map(lambda probe: run_program(host.filled(probe.program), TESTS, LIMITS), chosen)
        wrong += [judged(profile, probe, run) for probe, run in zip(chosen, runs, strict=True)]
        if not subjects or "forged" in subjects:
            for name, source in FORGERIES.items():
                run = run_program(FORGED_HEAD + source, FORGED_TESTS, LIMITS)
                wrong += [f"forged: {name!r}: {run}"] if run.passed or "calls.py" in run.detail else []
        for name, (source, tests) in GOLD.items():
            run = run_program(source, tests, ROOMY)
            wrong += [] if run.passed else [f"gold: {name!r}: {run}"]
        time.sleep(0.2)
        wrong += host.changed()
    return [each for each in wrong if each is not None]


def main(profile: str, *subjects: str) -> None:
    become(profile)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run_all(profile, set(subjects), Path(folder))))


if __name__ == "__main__":
    main(*sys.argv[1:])
