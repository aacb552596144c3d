"""Who makes an artifact: the user, the machine and the commit of the code, as the manifest records them."""

import getpass
import os
import socket
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lineage.artifact.packages import commit_of
from lineage.project import CODE, COMMIT_FILE, PREFIX

UNKNOWN = "unknown"
"""The value of each field in a manifest that was written before 2026-11-24, or where the system does not give it."""
GIT_SECONDS = 10


@dataclass(frozen=True)
class MadeBy:
    """Who committed an artifact. It is a claim by the writer, not a proof, and no part of any identity."""

    user: str = UNKNOWN
    host: str = UNKNOWN
    commit: str = UNKNOWN
    """Commit of this repository; it ends in `-dirty` if tracked files had other content."""


def this_process() -> MadeBy:
    """Return the user, the host and the commit of this process.

    The commit comes from the environment (`lineage.artifact.packages.COMMIT`, as the image sets it), from the wheel, or from
    git.
    """
    commit = next(iter(commit_of(os.environ).values()), None) or (_of_the_wheel() if PREFIX else _checked_out(CODE))
    return MadeBy(_user(), socket.gethostname() or UNKNOWN, commit)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a pod runs under a number that has no name, and without LOGNAME or USER
        return f"uid {os.getuid()}"


@cache
def _of_the_wheel() -> str:
    """Return the commit that the wheel was built from; git would answer for the repository that the environment lies in."""
    return (CODE / COMMIT_FILE).read_text().strip()


@cache
def _checked_out(repository: Path) -> str:
    """Return the commit that git has checked out. Cached: asking takes 20 ms, and a process does not change its code."""
    command = ["git", "-C", str(repository), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):  # no git, no repository, or one of another user
        return UNKNOWN
    return ended.stdout.strip() or UNKNOWN
