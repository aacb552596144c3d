"""Hostile programs in the sandbox reach no file, network, right or process of the machine, and nothing stays behind."""

import ctypes
import socket
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_programs import MARKER, SMALL, SYSCALL, left_behind, run

from evals.sandbox.run import run_program


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
