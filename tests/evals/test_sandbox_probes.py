"""Each attack of `sandbox_probes.py` under each profile: as root, as user 10001, and as a pod (user 10001, default seccomp)."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from sandbox_probes import FORGERIES, PROBES

ROOT = Path(__file__).parents[2]
SUBJECTS = ("files", "network", "memory", "processes", "keyrings", "time", "ipc", "forged")
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")


def wrong_under(profile: str, *subjects: str) -> list[str]:
    """What went wrong, in a process of its own, because a profile is not left again."""
    command = [sys.executable, str(Path(__file__).with_name("sandbox_probe_run.py")), profile, *subjects]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_every_subject_has_ten_probes_and_each_probe_has_a_name_of_its_own():
    counts = Counter(probe.subject for probe in PROBES) | Counter({"forged": len(FORGERIES)})
    assert set(counts) == set(SUBJECTS)
    assert min(counts.values()) >= 10
    assert counts.total() >= 150
    assert max(Counter((probe.subject, probe.name, probe.body) for probe in PROBES).values()) == 1


@needs_root
@pytest.mark.parametrize("profile", ["user", "pod"])
def test_keys_and_objects_of_the_user_stay_out_of_reach(profile):
    assert wrong_under(profile, "keyrings", "ipc") == []


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["root", pytest.param("user", marks=needs_root), pytest.param("pod", marks=needs_root)])
def test_no_attack_gets_through_and_right_programs_pass(profile):
    if os.getuid() != 0:
        profile = "user"
    assert wrong_under(profile) == []
