"""Run a program in the sandbox with small limits, and look for processes that it left behind."""

import os
import uuid
from pathlib import Path

from evals.sandbox.run import Limits, Run, run_program

SMALL = Limits(wall_seconds=60.0, cpu_seconds=1, memory_mib=128, processes=8)
"""CPU time decides for programs that do not sleep, however long the machine pauses."""
MARKER = f"marin-sandbox-{uuid.uuid4().hex}"
"""In the command line of processes that a test leaves behind on purpose."""
END = "\ndef answer():\n  return 42\n"
"""Behind a program: what the tests ask for is there only if it came to its end."""
SYSCALL = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"


def run(source: str, limits: Limits = SMALL) -> Run:
    return run_program(source + END, "assert answer() == 42", limits)


def left_behind() -> list[str]:
    """Processes of this machine whose command line has the marker."""
    names = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.name != str(os.getpid()):
            try:
                words = (process / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            names += [process.name] if MARKER.encode() in words else []
    return names
