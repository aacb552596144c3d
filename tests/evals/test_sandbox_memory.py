"""All memory of a program counts, mapped or not."""

import subprocess
import sys
from pathlib import Path

import pytest
from hostile_programs import SYSCALL, run

from evals.sandbox.memory import enter_group


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
