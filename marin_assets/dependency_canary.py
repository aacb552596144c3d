"""The dependency canary: the canary's run under two environments, such as those of two lock files, compared step by step.

The spec, the data and the code are the same, so a difference comes from packages. A loss that differs is a regression until
somebody has explained it. A speed outside its band is a warning.
"""

import datetime
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial

import dagster as dg
import polars as pl

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import ancestors_first
from lineage.build.plan import build
from lineage.jobs.child_processes import run_subprocess
from lineage.upkeep.mirror import mirror
from marin_assets.areas import owners
from marin_assets.values import records_table
from recipes.canary import canary_run
from recipes.records.run import Run
from recipes.runs import checkpoint
from resources.lab import Lab

CANDIDATE = "MARIN_CANDIDATE_PYTHON"
"""Variable that names the interpreter of the other environment."""
FOLDER = ".operations/dependency_canary"
MIN_SPEED, MAX_SPEED = 0.8, 1.25
"""Candidate's tokens a second over this environment's; one run on each side of a shared machine is no finer than that."""
EQUAL, SPEED = "losses_equal", "speed_in_band"
IMPORT = "import trainer.train"
LIST = "import importlib.metadata as m, json; print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"


@dataclass(frozen=True)
class Side:
    """A run in one environment: its packages, its loss at each step (nats), and its tokens a second."""

    python: str
    packages: Mapping[str, str]
    losses: Mapping[int, float]
    tokens_per_second: float


@dataclass(frozen=True)
class Difference:
    """What differs between two sides. `first_step` None: every loss is equal to the bit.

    `packages`: name -> (version here, version of the candidate); None where a package is missing.
    """

    first_step: int | None
    largest_nats: float
    speed_ratio: float
    packages: Mapping[str, tuple[str | None, str | None]]

    @property
    def text(self) -> str:
        """What a person reads first."""
        steps = "all losses are equal" if self.first_step is None else (
            f"losses differ from step {self.first_step} on, by up to {self.largest_nats:.3g} nats"
        )  # fmt: skip
        return f"{steps}; {self.speed_ratio:.2f} times the speed; {len(self.packages)} packages differ"

    @property
    def is_fast(self) -> bool:
        return MIN_SPEED <= self.speed_ratio <= MAX_SPEED


def compare_environments(lab: Lab, candidate: str, run: Run) -> Difference:
    """Train a run in this environment and in the one of another interpreter, in scratch stores, and compare.

    The run's data is made in the lab's store where it is missing. Raises: JobFailedError if a run ends with an error;
    ValueError for an interpreter that does not start, or whose packages the trainer cannot import.
    """
    packages = {python: _packages(python) for python in (sys.executable, candidate)}
    _check_imports(candidate)
    node = checkpoint(run, run.spec.num_steps)
    inputs = [lab.build(lab.store, ancestor).artifact for ancestor in ancestors_first([node]) if ancestor is not node]
    here, there = (_trained(inputs, run, python, packages[python]) for python in (sys.executable, candidate))
    return difference(here, there)


def difference(here: Side, candidate: Side) -> Difference:
    """Compare two sides. A step that one side lacks, or a loss that is no number on one side, differs."""
    steps = sorted(here.losses.keys() | candidate.losses.keys())
    pairs = [(step, here.losses.get(step, math.nan), candidate.losses.get(step, math.nan)) for step in steps]
    unequal = [(step, abs(a - b)) for step, a, b in pairs if a != b]
    largest = max((math.inf if math.isnan(gap) else gap for _, gap in unequal), default=0.0)
    names = sorted(here.packages.keys() | candidate.packages.keys())
    versions = {name: (here.packages.get(name), candidate.packages.get(name)) for name in names}
    return Difference(
        unequal[0][0] if unequal else None,
        largest,
        candidate.tokens_per_second / here.tokens_per_second,
        {name: pair for name, pair in versions.items() if pair[0] != pair[1]},
    )


def _trained(inputs: list[Artifact], run: Run, python: str, packages: Mapping[str, str]) -> Side:
    with tempfile.TemporaryDirectory(prefix="dependency-canary-") as scratch:
        store = Store(f"{scratch}/store", f"{scratch}/work")
        for artifact in inputs:
            list(mirror(artifact, store, "dependency canary", ancestors=False))
        trained = build(store, checkpoint(run, run.spec.num_steps), launcher=partial(run_subprocess, python=python)).artifact
        curve = pl.read_parquet(trained.file("metrics.parquet"), columns=["step", "loss_nats"])
        speed = float(trained.manifest.extra["throughput"]["tokens_per_second"])
    return Side(python, packages, {int(step): float(loss) for step, loss in curve.iter_rows()}, speed)


def _packages(python: str) -> dict[str, str]:
    try:
        listed = subprocess.run([python, "-c", LIST], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ValueError(
            f"{python} is no interpreter of an environment: {error}. Build one from a lock file with "
            "`sh tools/bootstrap.sh LOCK .venv-candidate` and name .venv-candidate/bin/python"
        ) from error
    return json.loads(listed.stdout)


def _check_imports(python: str) -> None:
    """Import the trainer by an interpreter, before this environment trains for minutes. Raises: ValueError with its error."""
    done = subprocess.run([python, "-c", IMPORT], capture_output=True, text=True)
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or [f"it ended with status {done.returncode}"]
        raise ValueError(f"the trainer does not import by {python}: {why[0]}; its packages do not fit together")


def record(store: Store, difference: Difference, day: str) -> str:
    """Write the comparison of a day below the store's root; return where."""
    where = f"{FOLDER}/{day}.json"
    store.storage.replace(where, (json.dumps(asdict(difference) | {"text": difference.text}, indent=1) + "\n").encode())
    return store.storage.uri(where)


def dependency_canary_asset() -> dg.AssetsDefinition:
    """The canary's run under this environment and under the one that MARIN_CANDIDATE_PYTHON names."""
    key = dg.AssetKey(["operations", "dependency_canary"])

    @dg.asset(
        key=key,
        group_name="operations",
        owners=owners("operations"),
        kinds={"jax"},
        code_version="dependency_canary/1",
        check_specs=[
            dg.AssetCheckSpec(EQUAL, asset=key, description="every loss is equal to the bit under both lock files"),
            dg.AssetCheckSpec(SPEED, asset=key, description=f"{MIN_SPEED} to {MAX_SPEED} times the speed"),
        ],
    )
    def dependency_canary(lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        """Trains the canary twice, once in each environment; it changes neither."""
        candidate = os.environ.get(CANDIDATE)
        if not candidate:
            why = f"not judged: {CANDIDATE} names no environment of another lock file"
            return dg.MaterializeResult(check_results=[_warning(name, False, why) for name in (EQUAL, SPEED)])
        day = datetime.datetime.now(datetime.UTC).date().isoformat()
        difference = compare_environments(lab, candidate, canary_run("cpu", day))
        where = record(lab.store, difference, day)
        rows = [{"package": name, "here": str(a), "candidate": str(b)} for name, (a, b) in difference.packages.items()]
        return dg.MaterializeResult(
            metadata={
                "packages": records_table(rows, ("package", "here", "candidate")),
                "largest_nats": difference.largest_nats,
                "speed_ratio": difference.speed_ratio,
                "record": dg.MetadataValue.path(where),
            },
            check_results=[
                dg.AssetCheckResult(check_name=EQUAL, passed=difference.first_step is None, description=difference.text),
                _warning(SPEED, difference.is_fast, difference.text),
            ],
        )

    return dependency_canary


def _warning(name: str, passed: bool, description: str) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(check_name=name, passed=passed, severity=dg.AssetCheckSeverity.WARN, description=description)
