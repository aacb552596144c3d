"""Builds the walls and runs one program behind them. A script, not a module: `evals/sandbox/run.py` starts it with `python -I
-S`.

Four processes: the outermost makes the namespaces and waits; inside, process 1 is the supervisor, which builds the root,
watches time and memory and reports; of its children, which give up every right, one runs the program, the other its tests.
The verdict comes from the second, into which the first can neither look nor write: it is not dumpable, so nobody without
capabilities traces it or opens its memory and its files. All import the standard library and two files beside this one, because
inside the root there is nothing else.
"""

import contextlib
import importlib.util
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from pathlib import Path
from types import ModuleType

REFUSED = 77
POLL_SECONDS = 0.02
END = b"\n"
"""Of a verdict: without it, what was written is half of one."""
MOST_FILES = 256
"""The outermost process was started without files; what it has opened since lies below."""
NOBODY, JUDGE = 1_000_000, 2_000_000_000
"""Users from here on exist on no machine; under root each program is one of its own, so its processes are counted apart."""


def load_neighbour(file_name: str) -> ModuleType:
    """A file beside this one, before the walls hide it; its folder never gets on the path, where it would hide Python's own."""
    path = Path(__file__).with_name(file_name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


calls, walls = load_neighbour("calls.py"), load_neighbour("walls.py")
syscalls = load_neighbour("syscalls.py")


def run_program(job: dict, connection: socket.socket) -> None:
    """The program's process: its text, when the tests ask for it, and then their calls."""
    os.setsid()
    stream = connection.makefile("rwb")
    try:
        shut_all_but(connection.fileno())
        walls.give_up_rights(job["limits"], job["is_root"], job["user"])
        syscalls.refuse_calls()
    except OSError as error:
        calls.send(stream, {"refused": f"{type(error).__name__}: {error}"})
        os._exit(1)
    calls.send(stream, {"refused": None})
    calls.serve(stream, job["source"])
    os._exit(0)


def run_tests(job: dict, connection: socket.socket, report: int) -> None:
    """The tests' process: the verdict goes to the supervisor, by a pipe that no other process has."""
    walls.libc.prctl(walls.PR_SET_DUMPABLE, 0, 0, 0, 0)  # until its rights go, the program's lack of them keeps it out
    os.setsid()
    stream, tests = connection.makefile("rwb"), ""
    try:
        tests = json.loads(read_whole(0))
        shut_all_but(connection.fileno(), report)
        walls.give_up_rights(job["limits"], job["is_root"], JUDGE + job["user"])
        walls.check(walls.libc.prctl(walls.PR_SET_DUMPABLE, 0, 0, 0, 0), "not dumpable")
        syscalls.refuse_calls()
        said = calls.receive(stream)
    except OSError as error:
        said = {"refused": f"{type(error).__name__}: {error}"}
    verdict = said if said["refused"] else calls.judge(stream, tests, frozenset(job["names"]))
    os.write(report, json.dumps(verdict).encode() + END)
    os._exit(0)


def read_whole(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def shut_all_but(*kept: int) -> None:
    """No file stays open but these, and the three streams on nothing."""
    nothing = os.open(f"{walls.JAIL}/dev/null", os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    for descriptor in set(range(3, MOST_FILES)) - set(kept):
        with contextlib.suppress(OSError):  # few are open
            os.close(descriptor)


def supervise(program: int, tests: int, answering: socket.socket, reports: int, limits: dict) -> dict:
    """Wait for the verdict within its wall time and memory; when this returns, nothing of either runs.

    `answering` is a second hold on the program's end of the connection. So the tests do not see its end before we have seen
    the program's, and know how it ended; then we close it, though what the program forked may hold it still.
    """
    deadline = time.monotonic() + limits["wall_seconds"]
    allowed = limits["memory_mib"] << 20
    outcome = detail = ""
    verdict, ends = b"", dict[int, int]()
    os.set_blocking(reports, False)
    while not outcome:
        look_at(ends, program, tests)
        verdict += read_report(reports)  # in this order: who has ended has written all that it ever will
        if verdict.endswith(END) or tests in ends:
            outcome = "ended"
        elif time.monotonic() > deadline:
            outcome, detail = "timeout", f"no end within {limits['wall_seconds']} s"
        elif resident_bytes() > allowed:
            outcome, detail = "memory", f"its processes held more than {limits['memory_mib']} MiB"
        else:
            if program in ends:
                answering.shutdown(socket.SHUT_RDWR)  # what it had said is still read
            select.select([reports], [], [], POLL_SECONDS)
    with contextlib.suppress(ProcessLookupError):  # nothing may be left
        os.kill(-1, signal.SIGKILL)  # everything in this namespace but this process
    said = json.loads(verdict) if verdict.endswith(END) else {}
    if "refused" in said:
        return said
    return told(outcome, detail, said, ends.get(program), ends.get(tests))


def told(outcome: str, detail: str, said: dict, program: int | None, tests: int | None) -> dict:
    """What goes out, of the wait statuses of both processes (None: it was killed here)."""
    signals = [os.WTERMSIG(status) for status in (program, tests) if status is not None and os.WIFSIGNALED(status)]
    if outcome in ("timeout", "memory"):
        return {"outcome": outcome, "detail": detail}
    if said.get("memory"):
        return {"outcome": "memory", "detail": "MemoryError"}
    if said.get("passed") is True:
        return {"outcome": "passed", "detail": ""}
    if signal.SIGXCPU in signals:
        return {"outcome": "timeout", "detail": "its CPU time was over"}
    raised = said.get("raised", "the program ended before its tests did")
    return {"outcome": "failed", "detail": f"{raised}; ended by signal {signals[0]}" if signals else raised}


def look_at(ends: dict[int, int], *children: int) -> None:
    """Put down the wait statuses of those that have ended."""
    for child in children:
        if child not in ends:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                ends[child] = status


def read_report(reports: int) -> bytes:
    """What has come since of the verdict, which only the tests' process can write."""
    try:
        return os.read(reports, 1 << 16)
    except BlockingIOError:
        return b""


def resident_bytes() -> int:
    """Memory of all processes of the namespace but this one, and what lies in `/tmp`.

    Of shared anonymous memory the whole mapping counts, once: `madvise(MADV_DONTNEED)` takes its pages out of the resident
    size of every process and leaves them in memory.
    """
    page = resource.getpagesize()
    total, shared = 0, dict[str, int]()
    for process in Path(f"{walls.JAIL}/proc").iterdir():
        if process.name.isdigit() and process.name != "1":
            try:
                pages = (process / "statm").read_text().split()
                mappings = shared_mappings(process)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we looked
            for inode, size in mappings.items():
                shared[inode] = max(size, shared.get(inode, 0))
            total += (int(pages[1]) - int(pages[2])) * page  # resident without files and shared memory
    total += sum(shared.values())
    disk = os.statvfs(f"{walls.JAIL}/tmp")
    return total + (disk.f_blocks - disk.f_bfree) * disk.f_bsize


def shared_mappings(process: Path) -> dict[str, int]:
    """Bytes of each shared anonymous mapping of a process, by inode; none of the tests' process, which is not dumpable.

    Raises: FileNotFoundError or ProcessLookupError when it has ended.
    """
    found = dict[str, int]()
    try:
        maps = (process / "maps").read_text()
    except PermissionError:  # where we are not root; the filter keeps the program from hiding in the same way
        return found
    for line in maps.splitlines():
        words = line.split(maxsplit=5)
        if words[1][3] == "s" and words[5:] == ["/dev/zero (deleted)"]:
            start, stop = (int(address, 16) for address in words[0].split("-"))
            found[words[4]] = found.get(words[4], 0) + stop - start
    return found


def first_process(job: dict) -> None:
    """Process 1 of the namespace: when it ends, the kernel ends the rest."""
    walls.libc.prctl(walls.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        walls.build_root(job["limits"]["disk_mib"])
        reports, report = os.pipe()
        asking, answering = socket.socketpair()
        tests = os.fork()
        if tests == 0:
            answering.close()
            run_tests(job, asking, report)
        program = os.fork()
        if program == 0:
            asking.close()
            run_program(job, answering)
    except OSError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(REFUSED)
    asking.close()
    os.close(report)
    verdict = supervise(program, tests, answering, reports, job["limits"])
    if "refused" in verdict:
        os.write(2, verdict["refused"].encode())
        os._exit(REFUSED)
    os.write(1, json.dumps(verdict).encode() + b"\n")
    os._exit(0)


def read_job() -> dict:
    """The job of standard input, behind its length; the tests that follow it are left for the process that runs them."""
    length = int(read_exactly(8))
    return json.loads(read_exactly(length))


def read_exactly(count: int) -> bytes:
    parts = []
    while count and (part := os.read(0, count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def main() -> None:
    job = read_job()
    job |= {"is_root": os.getuid() == 0, "user": NOBODY + os.getpid()}
    try:
        syscalls.leave_keyrings()
        walls.enter_namespaces()
        first = os.fork()
    except OSError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(REFUSED)
    if first == 0:
        first_process(job)
    _, status = os.waitpid(first, 0)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


main()
