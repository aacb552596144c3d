"""Build the walls and interpret one line of a shell that only reads (`shell_interpreter.py`), over one folder.

`evals/sandbox/shell.py` starts this script with `python -I -S`. The walls are those of programs (`child.py`): namespaces with
a root in which the folder is `/repo`, else Landlock and the stricter filter. The interpreter starts no program, so both kinds
give the same answers. What it prints comes over a pipe that only it writes to.
"""

import importlib
import json
import os
import select
import signal
import sys
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any


def declare_package(name: str, folder: Path) -> None:
    """Make the modules of a folder importable below a name. The folder never gets on the path, and `__init__.py` is not run."""
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package


if "evals" not in sys.modules:  # this file is run as a script
    declare_package("evals", Path(__file__).parents[1])
    declare_package("evals.sandbox", Path(__file__).parent)
child = importlib.import_module("evals.sandbox.child")
folders = importlib.import_module("evals.sandbox.shell_folder")
interpreter = importlib.import_module("evals.sandbox.shell_interpreter")


def interpret(job: dict, output: int) -> None:
    """Give up every right, run the line, and write the result."""
    try:
        child.shut_all_but(job, output)
        child.confine(job, job["user"])
    except OSError as error:
        os.write(output, json.dumps({"refused": f"{type(error).__name__}: {error}"}).encode())
        os._exit(1)
    root = folders.NAME if job["walls"] == "namespaces" else job["folder"]
    result = interpreter.Shell(folders.Folder(root)).run(job["line"])
    text = json.dumps({"lines": result.lines, "errors": result.errors, "status": result.status}).encode()
    while text:
        text = text[os.write(output, text) :]
    os._exit(0)


def first_process(job: dict) -> None:
    """Watch the interpreter: its time, and its memory by the limit on its address space."""
    child.die_with_parent()
    try:
        if job["walls"] == "namespaces":
            child.walls.build_root(job["limits"]["disk_mib"], [], {job["folder"]: folders.NAME})
    except OSError as error:
        child.leave(child.UNAVAILABLE, error)
    reading, writing = os.pipe()
    running = os.fork()
    if running == 0:
        os.close(reading)
        interpret(job, writing)
    os.close(writing)
    text, late = read_until(reading, job["limits"]["wall_seconds"])
    os.kill(running, signal.SIGKILL)  # it has ended, or is late; nobody has waited for it, so its number is still in use
    _, status = os.waitpid(running, 0)
    ended: dict[str, Any] | None = json.loads(text) if not late and text.endswith(b"}") else None
    if ended is None:
        cpu = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
        why = "timeout: the command took too long" if late or cpu else "memory: the command needs too much memory"
        ended = {"lines": [], "errors": [why], "status": 124 if late or cpu else 137}
    if "refused" in ended:
        os.write(2, ended["refused"].encode())
        os._exit(child.REFUSED)
    write_whole(1, json.dumps(ended).encode() + b"\n")
    os._exit(0)


def read_until(descriptor: int, seconds: float) -> tuple[bytes, bool]:
    """Return (what was written until the end, whether the time was over before)."""
    parts, deadline = [], time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return b"".join(parts), True
        part = os.read(descriptor, 1 << 16)
        if not part:
            return b"".join(parts), False
        parts.append(part)


def write_whole(descriptor: int, text: bytes) -> None:
    """Write all bytes; one `write` may take only some."""
    while text:
        text = text[os.write(descriptor, text) :]


def main() -> None:
    """Interpret the line of a job in the first walls that the machine allows, and exit with its status."""
    job = child.read_job() | {"libraries": [], "is_root": os.getuid() == 0, "user": child.NOBODY + os.getpid()}
    child.syscalls.leave_keyrings()
    status = child.start(partial(child.behind_namespaces, supervise=first_process), job | {"walls": "namespaces"})
    if status == child.UNAVAILABLE and not job["is_root"]:
        status = child.start(first_process, job | {"walls": "landlock", "libraries": [job["folder"]]})
    os._exit(child.REFUSED if status == child.UNAVAILABLE else status)


if __name__ == "__main__":
    main()
