"""The code location of `test_run_pods.py`: an asset that launches a job of the lab, and says so."""

import json
import tempfile
from pathlib import Path

import dagster as dg

from lineage.jobs import Launch
from resources.lab import Lab, lab_from_environment

LAUNCH = "launch"
SAID, PRINTED = "said by the run's worker", "printed by its job"


@dg.asset
def launched(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
    print(SAID)
    home = Path(tempfile.mkdtemp())
    (home / "job.json").write_text(json.dumps({"steps": [{"print": PRINTED}]}))
    done = lab.launcher(Launch("quick_job", home / "job.json", home / "log.txt", "tests/launched", "0123456789abcdef"))
    return dg.MaterializeResult(metadata={"place": done.place, "log": (home / "log.txt").read_text()})


@dg.definitions
def defs() -> dg.Definitions:
    job = dg.define_asset_job(LAUNCH, selection=[launched])
    return dg.Definitions(assets=[launched], jobs=[job], resources={"lab": lab_from_environment()})
