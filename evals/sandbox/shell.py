"""A shell that only reads one folder, behind the walls of the sandbox: for models that look at a repository.

Each line starts in the folder, so a line is a pure function of the folder. What the commands are and what is refused:
`evals/sandbox/shell_interpreter.py`.
"""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from evals.sandbox.run import REFUSED, SETUP_SECONDS, SHOWN_CHARACTERS, Limits, NoSandboxError

CHILD = Path(__file__).with_name("shell_child.py")
MOST_LINE = 4_096
SHELL_LIMITS = Limits(wall_seconds=10.0, cpu_seconds=5, memory_mib=256, disk_mib=1)


@dataclass(frozen=True)
class Answer:
    """What a line printed, with its errors at the end, and its status."""

    text: str
    status: int


def run_line(line: str, folder: Path, limits: Limits = SHELL_LIMITS) -> Answer:
    """Run one line over a folder. Raises: ValueError if it is no folder; NoSandboxError if the walls cannot be built."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give the root of a repository")
    if len(line) > MOST_LINE:
        return Answer(f"the command has {len(line)} characters; at most {MOST_LINE} are allowed", 2)
    head = json.dumps({"line": line, "folder": str(folder.resolve()), "limits": asdict(limits)})
    command = [sys.executable, "-I", "-S", str(CHILD)]
    seconds = limits.wall_seconds + SETUP_SECONDS
    try:
        ended = subprocess.run(command, input=f"{len(head):8d}{head}".encode(), capture_output=True, timeout=seconds, env={})
    except subprocess.TimeoutExpired:
        return Answer("timeout: the command took too long", 124)
    if ended.returncode == REFUSED:
        errors = ended.stderr.decode(errors="replace")[-SHOWN_CHARACTERS:]
        raise NoSandboxError(f"commands cannot be held here, so none was run: {errors}")
    if ended.returncode != 0:
        return Answer("killed: the command needs too much memory", 137)
    result = json.loads(ended.stdout)
    return Answer("\n".join((*result["lines"], *result["errors"])), result["status"])
