"""Programs that mean harm: none passes, none leaves anything behind. Real processes and real limits of the kernel."""

import os
import socket
import time
from pathlib import Path

import pytest

from evals.sandbox import Limits, run_program

SMALL = Limits(wall_seconds=2.0, cpu_seconds=1, memory_mib=128, processes=8)
MARKER = "marin-sandbox-marker"
"""In the command line of processes that a test leaves behind on purpose."""


def left_behind() -> list[str]:
    """Processes of this machine whose command line has the marker."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.name != str(os.getpid()):
            try:
                words = (process / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            found += [process.name] if MARKER.encode() in words else []
    return found


def test_a_program_that_is_right_passes_with_the_standard_library_and_a_scratch_folder():
    source = "import math, collections, json\nopen('/tmp/a', 'w').write('x')\nassert math.gcd(4, 6) == 2\nprint('hello')"
    assert run_program(source, SMALL).outcome == "passed"


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("assert 1 == 2, 'no'", "AssertionError: no"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("import os; os._exit(0)", "before its last line"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
        ('import atexit, os; print(\'{"proof": "x"}\'); os._exit(0)', "before its last line"),
        (
            'import os\nfor fd in range(3, 60):\n  try: os.write(fd, b\'{"proof": "guess"}\')\n'
            "  except OSError: pass\nos._exit(0)",
            "",
        ),
    ],
)
def test_what_does_not_come_to_its_end_does_not_pass(source, detail):
    run = run_program(source, SMALL)
    assert run.outcome == "failed"
    assert detail in run.detail


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("while True: pass", "timeout"),
        ("import time; time.sleep(60)", "timeout"),
        ("x = bytearray(10 * 2**30)", "memory"),
        ("x = []\nwhile True: x.append(bytearray(2**20))", "memory"),
        ("import os\nfor _ in range(5):\n  if os.fork() == 0:\n    x = bytearray(60 * 2**20)\n    x[:] = b'1' * len(x)\n"
         "    import time; time.sleep(60)\nimport time; time.sleep(60)", "memory"),
    ],
)  # fmt: skip
def test_time_and_memory_end_a_program(source, outcome):
    assert run_program(source, SMALL).outcome == outcome


def test_a_fork_bomb_ends_with_its_namespace():
    bomb = f"import os, ctypes\nwhile True:\n  try: os.fork()\n  except OSError: pass\n# {MARKER}"
    assert not run_program(bomb, SMALL).passed
    many = "import os\nn = 0\nfor _ in range(100):\n  if os.fork() == 0:\n    import time; time.sleep(60)\n"
    run = run_program(many, SMALL)
    assert "Resource temporarily unavailable" in run.detail, "8 processes are allowed"


def test_a_daemon_dies_with_the_program():
    daemon = (
        "import os, sys\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n"
        f"    os.execv(sys.executable, [sys.executable, '-I', '-S', '-c', 'import time; time.sleep(60)', '{MARKER}'])\n"
        "  os._exit(0)\nimport time; time.sleep(0.5)"
    )
    run_program(daemon, SMALL)
    time.sleep(0.1)
    assert not left_behind()


@pytest.mark.parametrize(
    "path", ["/usr/marker", "/marker", "/etc/marker", "/dev/marker", "/proc/sys/kernel/hostname", "{outside}"]
)
def test_nothing_is_written_outside(tmp_path, path):
    target = path.format(outside=tmp_path / "marker")
    assert run_program(f"open({target!r}, 'w').write('x')", SMALL).outcome == "failed"
    assert not Path("/tmp/marker").exists()
    assert list(tmp_path.iterdir()) == []


def test_files_of_the_machine_cannot_be_read(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    for path in (secret, "/etc/passwd", "/proc/1/environ", Path(__file__)):
        assert run_program(f"print(open({str(path)!r}).read())", SMALL).outcome == "failed"
    assert run_program("import os\nassert os.environ.get('PATH') is None and os.listdir('/tmp') == []", SMALL).passed


def test_the_network_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)"
        assert run_program(connect, SMALL).outcome == "failed"
    assert run_program("import socket\nassert [n for _, n in socket.if_nameindex()] == ['lo']", SMALL).passed


def test_rights_cannot_be_had_again():
    for attempt in (
        "os.unshare(os.CLONE_NEWUSER)",
        "os.setuid(0)",
        "os.chroot('/tmp')",
        "os.mkdir('/proc/x')",
    ):
        run = run_program(f"import os\n{attempt}\nassert os.getuid() != 0", SMALL)
        assert run.outcome == "failed", attempt


def test_the_supervisor_cannot_be_killed_into_a_pass():
    """Under root the kernel forbids the signal; elsewhere both have one user, and process 1 does not hear it from inside."""
    unheard = "import os\ntry: os.kill(1, 9)\nexcept PermissionError: pass"
    assert run_program(unheard, SMALL).passed
    assert not run_program("import os, time\nos.kill(1, 2)\ntime.sleep(0.5)\nos._exit(0)", SMALL).passed


def test_disk_is_bounded():
    big = "f = open('/tmp/a', 'wb')\nf.write(bytes(40 * 2**20))"
    assert run_program(big, SMALL).outcome == "failed"
    many = "import os\nfor n in range(5000): os.close(os.open(f'/tmp/{n}', os.O_CREAT))"
    assert run_program(many, SMALL).outcome == "failed"


def test_bad_limits_are_refused():
    with pytest.raises(ValueError, match=r"limits.memory_mib is 0; it must be positive"):
        Limits(memory_mib=0)
