"""Build the walls and run one program behind them. `evals/sandbox/run.py` starts this script with `python -I -S`.

The outermost process waits and reports. It uses the first of two kinds of walls that the machine allows: namespaces with a root
of their own (`walls.py`), else Landlock and a stricter filter (`landlock.py`), which a pod allows. Behind the walls a
supervisor watches time and memory. Its two children give up every right; one runs the program, the other the tests.
The verdict comes from the tests' process. The program can neither read that process nor write to it: the process is not
dumpable, so nobody without capabilities can trace it or open its memory or files. All parts import only the standard library
and the files beside this one, because the root holds nothing else.
"""

import contextlib
import importlib.util
import json
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NoReturn

REFUSED, UNAVAILABLE = 77, 78
"""Exit statuses. The first: the walls failed half built. The second: the machine has no such walls, and nothing was read or
run.
"""
MOST_FILES = 256
"""Bound of descriptor numbers: the outermost process starts without open files, and opens few."""
NOBODY, JUDGE = 1_000_000, 2_000_000_000
"""User ids from this one on exist on no machine. Under root each program gets its own, so its processes are counted separately.
"""


def load_neighbour(file_name: str) -> ModuleType:
    """Load a file beside this one before the walls hide it.
    Its folder never gets on the path, where it would shadow Python's own modules.
    """
    path = Path(__file__).with_name(file_name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


calls, walls, memory = load_neighbour("calls.py"), load_neighbour("walls.py"), load_neighbour("memory.py")
syscalls, landlock, supervisor = (load_neighbour(name) for name in ("syscalls.py", "landlock.py", "supervise.py"))


def run_program(job: dict, connection: socket.socket) -> None:
    """Run the program's process: execute its text when the tests ask for it, then answer their calls."""
    os.setsid()
    stream = connection.makefile("rwb")
    try:
        shut_all_but(job, connection.fileno())
        confine(job, job["user"])
    except OSError as error:
        calls.send(stream, {"refused": f"{type(error).__name__}: {error}"})
        os._exit(1)
    calls.send(stream, {"refused": None})
    calls.serve(stream, job["source"])
    os._exit(0)


def run_tests(job: dict, connection: socket.socket, report: int) -> None:
    """Run the tests' process, and send the verdict to the supervisor by a pipe that no other process has."""
    walls.libc.prctl(walls.PR_SET_DUMPABLE, 0, 0, 0, 0)  # until its rights go, the program's lack of rights keeps it out
    os.setsid()
    stream, tests = connection.makefile("rwb"), ""
    try:
        tests = json.loads(read_whole(0))
        shut_all_but(job, connection.fileno(), report)
        confine(job, JUDGE + job["user"], dumpable=False)
        program_verdict = calls.receive(stream)
    except OSError as error:
        program_verdict = {"refused": f"{type(error).__name__}: {error}"}
    verdict = program_verdict if program_verdict["refused"] else calls.judge(stream, tests, frozenset(job["names"]))
    os.write(report, json.dumps(verdict).encode() + supervisor.END)
    os._exit(0)


def confine(job: dict, user: int, *, dumpable: bool = True) -> None:
    """Give up every right of this process. Raises: OSError if the kernel does not take one away."""
    has_root = job["walls"] == "namespaces"
    walls.give_up_rights(job["limits"], job["is_root"], user, has_root=has_root)
    if not dumpable:
        walls.check(walls.libc.prctl(walls.PR_SET_DUMPABLE, 0, 0, 0, 0), "not dumpable")
    if not has_root:
        die_with_parent()
        landlock.restrict(walls.readable_places(job["libraries"]))
    syscalls.refuse_calls(alone=not has_root)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    walls.check(walls.libc.prctl(walls.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "end with the parent")


def read_whole(descriptor: int) -> bytes:
    """Return all bytes of a descriptor until its end."""
    parts = []
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def shut_all_but(job: dict, *kept: int) -> None:
    """Close all files but these. The three standard streams go to the null device."""
    nothing = os.open(f"{root_of(job)}/dev/null", os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    for descriptor in set(range(3, MOST_FILES)) - set(kept):
        with contextlib.suppress(OSError):  # only a few files are open
            os.close(descriptor)


def root_of(job: dict) -> str:
    """Return the path of the program's root, as the supervisor sees it."""
    return walls.JAIL if job["walls"] == "namespaces" else ""


def excess(job: dict, running: list[int]) -> tuple[str, str]:
    """Return the outcome and its detail if the processes hold more than they may, else two empty texts."""
    limits, proc = job["limits"], Path(f"{root_of(job)}/proc")
    if job["walls"] == "namespaces":
        processes = [each for each in proc.iterdir() if each.name.isdigit() and each.name != "1"]
        held = memory.held_bytes(processes, f"{walls.JAIL}/tmp")
    else:
        processes = [proc / str(each) for each in running]
        held = memory.held_bytes(processes, None)
        if any(memory.threads(each) > limits["processes"] for each in processes):
            return "failed", f"it started more than {limits['processes']} threads"
    if held > limits["memory_mib"] << 20:
        return "memory", f"its processes held more than {limits['memory_mib']} MiB"
    return "", ""


def end_all(job: dict, running: list[int]) -> None:
    """End everything in the namespace but this process. Without a namespace, end both processes, which could start none."""
    if job["walls"] == "namespaces":
        with contextlib.suppress(ProcessLookupError):  # nothing else runs
            os.kill(-1, signal.SIGKILL)
        return
    for each in running:  # our children that we have not waited for: their numbers are still in use
        os.kill(each, signal.SIGKILL)
        os.waitpid(each, 0)


def first_process(job: dict) -> None:
    """Run the supervisor. With namespaces it is process 1: when it ends, the kernel ends the rest."""
    die_with_parent()
    try:
        if job["walls"] == "namespaces":
            walls.build_root(job["limits"]["disk_mib"], job["libraries"])
        reports, report = os.pipe()
        asking, answering = socket.socketpair()
    except OSError as error:
        leave(UNAVAILABLE, error)
    try:
        tests = os.fork()
        if tests == 0:
            answering.close()
            run_tests(job, asking, report)
        program = os.fork()
        if program == 0:
            asking.close()
            run_program(job, answering)
    except OSError as error:
        leave(REFUSED, error)
    asking.close()
    os.close(report)
    watched = partial(excess, job), partial(end_all, job)
    verdict = supervisor.supervise(program, tests, answering, reports, job["limits"]["wall_seconds"], *watched)
    if "refused" in verdict:
        os.write(2, verdict["refused"].encode())
        os._exit(REFUSED)
    os.write(1, json.dumps(verdict | {"walls": job["walls"]}).encode() + b"\n")
    os._exit(0)


def leave(status: int, error: OSError) -> NoReturn:
    """Report an error on stderr and exit with a status."""
    os.write(2, f"{type(error).__name__}: {error}\n".encode())
    os._exit(status)


def read_job() -> dict:
    """Read the job from standard input, after its length. The tests that follow are left for the process that runs them."""
    length = int(read_exactly(8))
    return json.loads(read_exactly(length))


def read_exactly(count: int) -> bytes:
    """Return `count` bytes of stdin; fewer if it ends."""
    parts = []
    while count and (part := os.read(0, count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def behind_namespaces(job: dict, supervise: Callable[[dict], None] | None = None) -> None:
    """Make the namespaces, start a supervisor in them (`first_process` by default), and exit with its status."""
    die_with_parent()
    try:
        walls.enter_namespaces()
        first = os.fork()
    except OSError as error:
        leave(UNAVAILABLE, error)
    if first == 0:
        (supervise or first_process)(job)
    os._exit(status_of(first))


def status_of(child: int) -> int:
    """Return the exit status of a child that has ended."""
    _, status = os.waitpid(child, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1


def start(work: Callable[[dict], None], job: dict) -> int:
    """Run a function in a separate process, and return the status with which it ended."""
    child = os.fork()
    if child == 0:
        work(job)
    return status_of(child)


def main() -> None:
    """Run a job in the first walls that the machine allows, and exit with its status."""
    job = read_job()
    job |= {"is_root": os.getuid() == 0, "user": NOBODY + os.getpid()}
    syscalls.leave_keyrings()
    group = memory.enter_group((job["limits"]["memory_mib"] << 20) + memory.GROUP_EXTRA)
    status = start(behind_namespaces, job | {"walls": "namespaces"})
    if status == UNAVAILABLE:
        if job["is_root"]:
            os.write(2, b"Landlock's walls are for a user who is not root; ")
        else:
            status = start(first_process, job | {"walls": "landlock"})
    if group is not None:
        full = group.kills() > 0
        group.leave()
        if full and status in (0, 1):
            os.write(1, json.dumps({"outcome": "memory", "detail": "its memory cgroup was full", "walls": ""}).encode() + b"\n")
    os._exit(REFUSED if status == UNAVAILABLE else status)


if __name__ == "__main__":
    main()
