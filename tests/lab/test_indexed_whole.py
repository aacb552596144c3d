"""Data stages as Indexed Jobs in the whole lab: its settings file, the role `marin-runs`, its bucket."""

import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from indexed_jobs import KEPT
from launches import ROOT
from sharded_stage import NAMES, lengths
from whole_lab import WholeLab

from lineage.artifact.store import Store
from lineage.build.nodes import resolve
from lineage.build.plan import build
from resources.cluster import JOBS

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
PYTHON_PATH = ":".join(str(ROOT / part) for part in (".", "tests/lab", "tests/lineage"))
BUILD = """
import sys
sys.path.insert(0, "tests/lineage")
from lineage.build.plan import build
from resources.lab import lab_from_environment
from sharded_stage import lengths
lab = lab_from_environment().lab()
assert lab.fan_out is not None and lab.fan_out.runners == 2
build(lab.store, lengths(), fan_out=lab.fan_out)
"""


def test_a_process_of_the_deployment_fans_a_stage_out(tmp_path: Path) -> None:
    whole = build(Store(str(tmp_path / "whole")), lengths()).artifact
    scratch = tmp_path / "lab" / "scratch"
    scratch.mkdir(parents=True)
    mounts = [{"path": str(scratch), "host_path": str(scratch)}]  # where the stage notes what ran
    with WholeLab(tmp_path / "lab", {"PYTHONPATH": PYTHON_PATH}, data_runners=2, mounts=mounts) as lab:
        lab.kubelet.add_node("cpu-0")
        lab.run("-c", BUILD)
        with patch.dict(os.environ, {"STORAGE_EMULATOR_HOST": lab.bucket.url}):
            made = resolve(Store(f"{lab.root}/artifacts", scratch_folder=str(tmp_path / "read")), lengths())
        jobs = lab.admin.find(JOBS)
        ran = list(lab.kubelet.history)
    plain = tuple(replace(entry, crc32c=None) for entry in made.manifest.files)  # the bucket's own checksum
    assert (made.data_version, plain) == (whole.data_version, whole.manifest.files)
    assert jobs and all('"completionMode": "Indexed"' in job["metadata"]["annotations"][KEPT] for job in jobs)
    assert {job["status"]["succeeded"] for job in jobs} == {2}
    assert {pod.raw["spec"]["serviceAccountName"] for pod in ran} == {"marin-job"}
    assert sorted((scratch / "log").read_text().split()) == sorted([*NAMES, *(name.upper() for name in NAMES)]), "each once"
