"""The code location of `test_run_pods.py`: assets that launch a job of the lab, one that ends and one that does not."""

import json
import tempfile
from pathlib import Path

import dagster as dg

from lineage.jobs.job import LaunchRequest
from resources.lab import Lab, lab_from_environment

LAUNCH, WAIT = "launch", "wait"
SAID, PRINTED = "said by the run's worker", "printed by its job"


@dg.asset
def launched(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
    print(SAID)
    home = Path(tempfile.mkdtemp())
    (home / "job.json").write_text(json.dumps({"steps": [{"print": PRINTED}]}))
    done = lab.launcher(LaunchRequest("quick_job", home / "job.json", home / "log.txt", "tests/launched", "0123456789abcdef"))
    return dg.MaterializeResult(metadata={"place": done.place, "log": (home / "log.txt").read_text()})


@dg.asset
def waiting(lab: dg.ResourceParam[Lab]) -> None:
    home = Path(tempfile.mkdtemp())
    (home / "job.json").write_text(json.dumps({"steps": [{"print": PRINTED}, {"wait_for": "/what/never/comes"}]}))
    lab.launcher(LaunchRequest("quick_job", home / "job.json", home / "log.txt", "tests/waiting", "fedcba9876543210"))


@dg.definitions
def defs() -> dg.Definitions:
    jobs = [dg.define_asset_job(LAUNCH, selection=[launched]), dg.define_asset_job(WAIT, selection=[waiting])]
    return dg.Definitions(assets=[launched, waiting], jobs=jobs, resources={"lab": lab_from_environment()})
