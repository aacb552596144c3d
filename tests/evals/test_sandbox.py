"""Harmful programs in the sandbox: none passes, none leaves anything behind. Real processes and kernel limits."""

import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.sandbox.calls import decode, encode
from evals.sandbox.memory import enter_group
from evals.sandbox.run import Limits, Run, run_program

SMALL = Limits(wall_seconds=60.0, cpu_seconds=1, memory_mib=128, processes=8)
"""CPU time decides for programs that do not sleep, however long the machine pauses."""
MARKER = f"marin-sandbox-{uuid.uuid4().hex}"
"""In the command line of processes that a test leaves behind on purpose."""


END = "\ndef answer():\n  return 42\n"
"""Behind a program: what the tests ask for is there only if it came to its end."""


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


def test_a_program_that_is_right_passes_with_the_standard_library_and_a_scratch_folder():
    source = "import math, collections, json\nopen('/tmp/a', 'w').write('x')\nassert math.gcd(4, 6) == 2\nprint('hello')"
    assert run(source).outcome == "passed"


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("assert 1 == 2, 'no'", "AssertionError: no"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("import os; os._exit(0)", "ended before its tests did"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
        ("import atexit, os; print('{\"passed\": true}'); os._exit(0)", "ended before its tests did"),
    ],
)
def test_what_does_not_come_to_its_end_does_not_pass(source, detail):
    result = run(source)
    assert result.outcome == "failed"
    assert detail in result.detail


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("while True: pass", "timeout"),
        ("x = bytearray(10 * 2**30)", "memory"),
        ("x = []\nwhile True: x.append(bytearray(2**20))", "memory"),
        ("import os\nfor _ in range(5):\n  if os.fork() == 0:\n    x = bytearray(60 * 2**20)\n    x[:] = b'1' * len(x)\n"
         "    import time; time.sleep(600)\nimport time; time.sleep(600)", "memory"),
    ],
)  # fmt: skip
def test_time_and_memory_end_a_program(source, outcome):
    """A program that fills memory gets time to do so: on a busy machine a second is over first."""
    limits = SMALL if outcome == "timeout" else replace(SMALL, cpu_seconds=30)
    assert run(source, limits).outcome == outcome


def test_wall_time_ends_what_sleeps():
    assert run("import time; time.sleep(600)", replace(SMALL, wall_seconds=2.0)).outcome == "timeout"


def test_a_verdict_that_is_written_stands_however_long_the_tests_take_to_end():
    """They close everything, so that the program ends, and are held up on their own way out."""
    held_up = "import os, time\nleave = os._exit\nos._exit = lambda code: (os.closerange(3, 300), time.sleep(3), leave(code))"
    assert run_program(END, f"assert answer() == 42\n{held_up}", SMALL).passed
    result = run_program(END, f"{held_up}\nassert answer() == 43", SMALL)
    assert (result.outcome, "AssertionError" in result.detail) == ("failed", True)


def test_how_a_program_died_is_told_however_long_that_took():
    """It lets go of the connection long before its end: the tests could take that for its end."""
    slow = "import os, signal, time\nos.closerange(3, 300)\ntime.sleep(2)\nos.kill(os.getpid(), signal.SIGKILL)"
    result = run(slow)
    assert (result.outcome, "ended by signal 9" in result.detail) == ("failed", True)


def test_what_a_program_leaves_behind_does_not_hold_its_tests_up():
    """It has the connection too, and never says anything."""
    result = run("import os, time\nif os.fork() == 0: time.sleep(600)\nos._exit(0)")
    assert (result.outcome, "ended before its tests did" in result.detail) == ("failed", True)


def test_a_fork_bomb_ends_with_its_namespace():
    bomb = f"import os, ctypes\nwhile True:\n  try: os.fork()\n  except OSError: pass\n# {MARKER}"
    assert not run(bomb, replace(SMALL, wall_seconds=5.0)).passed
    many = "import os\nn = 0\nfor _ in range(100):\n  if os.fork() == 0:\n    import time; time.sleep(60)\n"
    result = run(many)
    assert "Resource temporarily unavailable" in result.detail, "8 processes are allowed"


def test_a_daemon_dies_with_the_program():
    daemon = (
        "import os, sys\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n"
        f"    os.execv(sys.executable, [sys.executable, '-I', '-S', '-c', 'import time; time.sleep(60)', '{MARKER}'])\n"
        "  os._exit(0)\nimport time; time.sleep(0.5)"
    )
    run(daemon)
    time.sleep(0.1)
    assert not left_behind()


@pytest.mark.parametrize(
    "path", ["/usr/marker", "/marker", "/etc/marker", "/dev/marker", "/proc/sys/kernel/hostname", "{outside}"]
)
def test_nothing_is_written_outside(tmp_path, path):
    target = path.format(outside=tmp_path / "marker")
    assert run(f"open({target!r}, 'w').write('x')").outcome == "failed"
    assert not Path("/tmp/marker").exists()
    assert list(tmp_path.iterdir()) == []


def test_files_of_the_machine_cannot_be_read(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    for path in (secret, "/etc/passwd", "/proc/1/environ", Path(__file__)):
        assert run(f"print(open({str(path)!r}).read())").outcome == "failed"
    assert run("import os\nassert os.environ.get('PATH') is None and os.listdir('/tmp') == []").passed


def test_the_network_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)"
        assert run(connect).outcome == "failed"
    assert run("import socket\nassert [n for _, n in socket.if_nameindex()] == ['lo']").passed


def test_rights_cannot_be_had_again():
    for attempt in (
        "os.unshare(os.CLONE_NEWUSER)",
        "os.setuid(0)",
        "os.chroot('/tmp')",
        "os.mkdir('/proc/x')",
    ):
        result = run(f"import os\n{attempt}\nassert os.getuid() != 0")
        assert result.outcome == "failed", attempt


def test_the_supervisor_cannot_be_killed_into_a_pass():
    """Under root the kernel forbids the signal. Otherwise both have one user, and process 1 ignores signals from inside."""
    unheard = "import os\ntry: os.kill(1, 9)\nexcept PermissionError: pass"
    assert run(unheard).passed
    assert not run("import os, time\nos.kill(1, 2)\ntime.sleep(0.5)\nos._exit(0)").passed


def test_disk_is_bounded():
    big = "f = open('/tmp/a', 'wb')\nf.write(bytes(40 * 2**20))"
    assert run(big).outcome == "failed"
    many = "import os\nfor n in range(5000): os.close(os.open(f'/tmp/{n}', os.O_CREAT))"
    assert run(many).outcome == "failed"


def test_a_library_below_tmp_is_read_and_not_written():
    """A Python below `/tmp` ended the setup with FileExistsError (red team, C-L4)."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "mine.py").write_text("number = 7")
        program = f"""
import sys
import tempfile
sys.path.insert(0, {folder!r})
import mine
def f():
    open("/tmp/own", "w").write("x")
    try:
        open({folder!r} + "/mine.py", "w")
    except OSError:
        return mine.number
"""
        run = run_program(program, "assert f() == 7", libraries=[Path(folder)])
        assert run.passed, run.detail
        assert (Path(folder) / "mine.py").read_text() == "number = 7"


def test_bad_limits_are_refused():
    with pytest.raises(ValueError, match=r"limits.memory_mib is 0; it must be positive"):
        Limits(memory_mib=0)


FORGERS = {
    "the frames above": """
import json, os, sys
frame = sys._getframe()
while frame:
    for scope in (frame.f_locals, frame.f_globals):
        for value in list(scope.values()):
            if isinstance(value, int) and not isinstance(value, bool) and value > 2:
                try: os.write(value, b'{"passed": true, "outcome": "passed"}\\n')
                except (OSError, OverflowError): pass
            try: scope["proof"], scope["passed"] = True, True
            except Exception: pass
    frame = frame.f_back
os._exit(0)
""",
    "the verifier's": """
import json, os, sys
f = sys._getframe(1).f_locals
os.write(f["report"], json.dumps({"proof": f["proof"]}).encode())
os._exit(0)
""",
    "a traceback's frames": """
import os
try: 1 / 0
except ZeroDivisionError as error:
    frame = error.__traceback__.tb_frame
    while frame.f_back: frame = frame.f_back
    try: os.write(frame.f_globals.get("report", 3), b'{"passed": true}')
    except OSError: pass
os._exit(0)
""",
    "inspect": """
import inspect, os
for record in inspect.stack():
    for name, value in list(record.frame.f_locals.items()):
        if name in ("report", "connection", "stream"):
            try: os.write(value if isinstance(value, int) else value.fileno(), b'{"passed": true}\\n')
            except (OSError, ValueError): pass
os._exit(0)
""",
    "what gc holds": """
import gc, os
for each in gc.get_objects():
    if isinstance(each, dict) and ("proof" in each or "report" in each):
        os.write(each.get("report", 3), b'{"passed": true}')
    if type(each).__name__ in ("socket", "SocketIO"):
        try: each.send(b'{"passed": true}\\n') if hasattr(each, "send") else each.write(b'{"passed": true}\\n')
        except Exception: pass
os._exit(0)
""",
    "every open file": """
import os
for fd in range(3, 300):
    for said in (b'{"passed": true}\\n', b'{"value": true}\\n', b'{"value": null}\\n' * 9, b'{"refused": "x"}\\n'):
        try: os.write(fd, said)
        except OSError: pass
os._exit(0)
""",
    "a value that is equal to all": """
class Equal(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
class Anything:
    def __eq__(self, other): return True
    def __hash__(self): return 0
def f(x): return Anything() if x % 2 else Equal(0)
""",
    "names of the tests' own": """
import builtins
class Quiet(Exception): pass
AssertionError = builtins.AssertionError = Quiet
abs = all = any = len = isinstance = lambda *a: True
def f(x): raise Quiet
""",
    "the tests' memory": """
import os, re
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid(): continue
    for name in ("mem", "fd", "maps", "environ"):
        try:
            place = f"/proc/{pid}/{name}"
            if name == "fd":
                for fd in os.listdir(place): os.write(os.open(f"{place}/{fd}", os.O_WRONLY), b'{"passed": true}')
            else: raise SystemExit(f"could open {place}: {os.open(place, os.O_RDWR if name == 'mem' else os.O_RDONLY)}")
        except (PermissionError, FileNotFoundError, ProcessLookupError): pass
def f(x): return [x, "nothing could be opened"]
""",
}
"""Programs that would have a wrong answer read as a pass."""


@pytest.mark.parametrize("forger", list(FORGERS))
def test_no_program_forges_its_verdict(forger):
    result = run_program(FORGERS[forger], "assert abs(f(3)) == 9 and f(4) == 16", SMALL)
    assert result.outcome == "failed", result.detail
    assert "could open" not in result.detail
    assert "calls.py" not in result.detail, "records hold the detail, and no path of a machine"


def test_the_tests_and_what_they_expect_are_nowhere_in_the_program():
    looking = """
import re
def f(x):
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for place, rights, *_ in map(str.split, maps.readlines()):
            first, last = (int(part, 16) for part in place.split("-"))
            if "r" in rights and last - first < 1 << 26 and first < 1 << 47:
                try:
                    memory.seek(first)
                    if found := re.search(rb"x3pec[t]3d_value|mine_whol[l]y", memory.read(last - first)):
                        yield found[0]
                except OSError: pass
mine = "mine_wholly"
"""
    result = run_program(looking, "unused = 'x3pect3d_value'\nassert set(f(1)) == {b'mine_wholly'}", Limits())
    assert result.passed or "PermissionError" in result.detail, result.detail


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.complex_numbers(allow_nan=False) | st.integers(10**5000, 10**5001) | st.frozensets(st.integers()),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.sets(st.text())
    | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)  # fmt: skip


@given(PLAIN)
def test_plain_data_go_by_value_and_keep_their_kinds(value):
    def refuse(*unknown):
        raise AssertionError(unknown)

    decoded = decode(json.loads(json.dumps(encode(value, refuse))), refuse)
    assert decoded == value
    assert type(decoded) is type(value)


def test_tests_call_functions_hold_objects_and_set_their_attributes():
    program = """
import collections
class Node:
    def __init__(self, value): self.value, self.left = value, None
def depth(node): return 0 if node is None else 1 + depth(node.left)
def count(words): return collections.Counter(words)
def squares(n): return (k * k for k in range(n))
def fails(): raise ValueError("no such thing")
def sum(a, b): return a + b
"""
    tests = """
import math
root = Node(1)
root.left = Node(2)
assert depth(root) == 2 and root.left.value == 2 and root is not root.left
assert count(["a", "b", "a"]) == {"a": 2, "b": 1}
assert list(squares(4)) == [0, 1, 4, 9] and not squares(4) == [0, 1, 4, 9]
def check(call):
    assert math.isclose(call(0.5, 0.25), 0.75)
check(sum)
try:
    fails()
    assert False
except ValueError as error:
    assert str(error) == "no such thing"
"""
    result = run_program(program, tests, SMALL, {"sum"})
    assert result.passed, result.detail
    assert not run_program(program, tests, SMALL).passed, "without its name, sum is Python's"


def test_open_files_are_bounded():
    few = replace(SMALL, open_files=12)
    assert "Too many open files" in run("held = [open('/dev/null') for _ in range(20)]", few).detail
    assert run("held = [open('/dev/null') for _ in range(5)]", few).passed


def test_tests_that_hold_nothing_are_refused():
    with pytest.raises(ValueError, match="the tests are empty; nothing would be judged"):
        run_program("x = 1", " \n", SMALL)


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def f(x): raise StopIteration", "cases=[(2,4),(3,9)]\nassert all(map(lambda t: f(t[0])==t[1], cases))\n"),
        ("def f(x): raise StopIteration", "for r in map(f,[2,3]):\n    assert r==4\n"),
        ("def f(x): raise StopIteration", "assert [*map(f, [1])] == []\n"),
        ("class E(StopIteration): pass\ndef f(x): raise E", "assert not list(filter(f, [1, 2]))\n"),
        ("def f(x): raise StopAsyncIteration", "assert list(iter(lambda: f(1), 3)) == []\n"),
        ("def f(x): raise GeneratorExit", "for r in map(f, [1]): assert False\n"),
    ],
)
def test_an_exception_that_ends_loops_is_an_error_of_the_program(program, tests):
    result = run_program(program, tests, SMALL)
    assert result.outcome == "failed"
    assert "RuntimeError" in result.detail


SYSCALL = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"


@pytest.mark.parametrize(
    ("hold", "what"),
    [
        ("fd = os.memfd_create('x')\nfor _ in range(14): os.write(fd, b'x' * 2**20)", "memfd"),
        ("assert libc.shmget(0, 2**20, 0o1600) >= 0, 'no segment'", "System V memory"),
        ("assert libc.syscall(447, 0) >= 0, 'no secret memory'", "memfd_secret"),
    ],
)
def test_memory_that_no_process_maps_is_refused(hold, what):
    """A program filled the host's memory through 60 memfds a process, which no resident size counts (red team, D1)."""
    result = run(SYSCALL + hold)
    assert result.outcome == "failed", what


def test_shared_memory_counts_though_its_pages_are_not_resident():
    hold = (
        "import mmap, time\nheld = []\nfor _ in range(6):\n"
        "  if os.fork() == 0:\n    m = mmap.mmap(-1, 30 * 2**20)\n    m.write(b'1' * (30 * 2**20))\n"
        "    m.madvise(mmap.MADV_DONTNEED)\n    time.sleep(600)\ntime.sleep(600)"
    )
    assert run(SYSCALL + hold).outcome == "memory"


def test_the_session_keyring_of_the_operator_is_not_there():
    """Keyrings are in no namespace: a program read a key of its operator and left one for the next (red team, D2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(250, 1, b"marin-tests", 0, 0, 0)
    payload = b"HOSTSECRET"
    made = libc.syscall(248, b"user", b"marin-host-key", payload, len(payload), -3)
    if made < 0:
        pytest.skip("this kernel or container has no keyrings, so there is none to reach")
    result = run(
        SYSCALL + "assert libc.syscall(250, 10, -3, b'user', b'marin-host-key', 0) < 0\n"
        "assert libc.syscall(248, b'user', b'left-behind', b'NOTE', 4, -3) < 0"
    )
    assert result.outcome == "passed", result.detail
    assert libc.syscall(250, 10, -3, b"user", b"left-behind", 0) < 0, "the next program would find it"


@pytest.mark.parametrize("number", [101, 165, 272, 298, 308, 310, 321, 323, 425, 435, 0x40000000 + 39])
def test_calls_that_reach_around_the_walls_are_refused(number):
    assert run(SYSCALL + f"assert libc.syscall({number}, 0, 0, 0, 0, 0) == -1\nassert ctypes.get_errno() in (1, 38)").passed


def test_a_new_user_namespace_cannot_be_cloned():
    result = run(SYSCALL + "assert libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0) == -1\nassert ctypes.get_errno() == 1")
    assert result.passed, result.detail


def test_a_program_cannot_hide_its_memory_from_the_supervisor():
    result = run(SYSCALL + "assert libc.prctl(4, 0, 0, 0, 0) == -1\nassert libc.prctl(3, 0, 0, 0, 0) in (0, 1)")
    assert result.passed, result.detail


HOG = """
import os, sys
from evals.sandbox.memory import enter_group
group = enter_group(96 << 20)
if group is None:
    sys.exit(0 if os.getuid() != 0 or not os.access("/sys/fs/cgroup/memory", os.W_OK) else 3)
hog = os.fork()
if hog == 0:
    held = bytearray(400 << 20)
    held[::4096] = b"1" * len(held[::4096])
    os._exit(0)
_, status = os.waitpid(hog, 0)
killed, counted = os.WIFSIGNALED(status), group.kills()
group.leave()
sys.exit(0 if killed and counted and not group.place.exists() else 4)
"""


def test_a_memory_cgroup_holds_what_polling_would_see_too_late():
    """`None` says that no group can be made. The test uses a small process, because the kernel ends the largest of a group."""
    root = str(Path(__file__).parents[2])
    assert subprocess.run([sys.executable, "-S", "-c", HOG], env={"PYTHONPATH": root}).returncode == 0


def test_no_memory_cgroup_is_made_where_none_can_be(tmp_path):
    (tmp_path / "cgroup").write_text("0::/nowhere\n4:memory:/nowhere\n")
    assert enter_group(1 << 20, str(tmp_path / "cgroup"), str(tmp_path)) is None
    assert enter_group(1 << 20, str(tmp_path / "missing"), str(tmp_path)) is None
