"""Every run option at once on two slices with FSDP and tensor parallelism equals one device, and back."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from tiny_run import ROOT, RUN, Text, at_step, job_of, metrics_of

from lineage.jobs.job import Job
from trainer.array_files import open_arrays
from trainer.spec.optimizers import AdamHConfig, MuonConfig, OptimizerConfig
from trainer.spec.schedules import WarmupStableDecay
from trainer.train import train

pytestmark = pytest.mark.slow

MESH = {"processes": 1, "slice": 2, "data": 2, "expert": 1, "tensor": 2}
TEXT = Text(50, length=7)
"""Documents of half a row: every row has several segments."""
LOSSES = {"rtol": 2e-5, "atol": 0.0}
"""What docs/recipes/run_on_many_devices.md promises between meshes."""
RULES: dict[str, OptimizerConfig] = {"muon": MuonConfig(), "adamh": AdamHConfig()}
SPEC = replace(
    RUN,
    model=replace(RUN.model, num_layers=2, num_heads=4, head_dim=6, qk_norm=True, tie_embeddings=False),
    schedule=WarmupStableDecay(peak_learning_rate=1e-2, warmup_steps=1, decay_frac=0.5),
    batch_size=8,
    microbatch_size=4,
    num_steps=4,
    save_every_steps=2,
    z_loss_weight=1e-2,
    cross_document_attention=False,
)
ON_EIGHT_DEVICES = """
import sys
from pathlib import Path
from lineage.jobs.job import read_job
from trainer.spec.mesh import MeshShape
from trainer.running import Running
from trainer.train import train
for job in sys.argv[1:]:
    train(read_job(Path(job)), Running(mesh=MeshShape.parse("slice=2,data=2,tensor=2")))
"""


@dataclass(frozen=True)
class Ran:
    """A run to its last step: on one device, over the mesh, and each from the middle of the other."""

    one: Job
    spread: Job
    one_then_spread: Job
    spread_then_one: Job


def from_the_middle(job: Job, root: Path, into: Path, run: object) -> Job:
    """A copy of what a job left, without its last checkpoint."""
    shutil.copytree(root, into)
    copy = job_of(into, run, text=TEXT)  # type: ignore[arg-type]
    last = at_step(copy, SPEC.num_steps)
    assert last is not None and at_step(copy, SPEC.num_steps // 2) is not None
    copy.store.delete(last)
    return copy


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """By rule. One process does all that is done on eight devices."""
    root = tmp_path_factory.mktemp("slices")
    specs = {name: replace(SPEC, name=name, optimizer=rule) for name, rule in RULES.items()}
    one = {name: job_of(root / name / "one", spec, text=TEXT) for name, spec in specs.items()}
    spread = {name: job_of(root / name / "spread", spec, text=TEXT) for name, spec in specs.items()}
    for job in one.values():
        train(job)
    begun = {
        name: from_the_middle(one[name], root / name / "one", root / name / "one_then_spread", spec)
        for name, spec in specs.items()
    }
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    files = [str(root / name / kind / "job.json") for name in specs for kind in ("spread", "one_then_spread")]
    ran = subprocess.run(
        [sys.executable, "-c", ON_EIGHT_DEVICES, *files], cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | flags | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    by_name = {}
    for name, spec in specs.items():
        back = from_the_middle(spread[name], root / name / "spread", root / name / "spread_then_one", spec)
        train(back)
        by_name[name] = Ran(one[name], spread[name], begun[name], back)
    return by_name


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("way", ["spread", "one_then_spread", "spread_then_one"])
def test_two_slices_of_two_by_two_train_as_one_device_does(way: str, rule: str, runs: dict[str, Ran]) -> None:
    made, wanted = at_step(getattr(runs[rule], way), SPEC.num_steps), at_step(runs[rule].one, SPEC.num_steps)
    assert made is not None and wanted is not None
    assert (made.manifest.extra["checkpoint"]["mesh"] == MESH) is (way != "spread_then_one")
    for column in ("loss_nats", "grad_norm"):
        np.testing.assert_allclose(metrics_of(made)[column], metrics_of(wanted)[column], **LOSSES, err_msg=column)
    for arrays in ("model", "optimizer"):
        actual, expected = open_arrays(made, arrays).whole(), open_arrays(wanted, arrays).whole()
        assert actual.keys() == expected.keys()
        for name, array in expected.items():
            scale = np.abs(array).max()
            np.testing.assert_allclose(actual[name], array, rtol=1e-3, atol=1e-4 * scale, err_msg=name)


def test_what_is_compared_is_not_all_the_same(runs: dict[str, Ran]) -> None:
    """A rule that moved nothing, or a spec whose parts made no difference, would pass the test above."""
    ends = {name: open_arrays(artifact, "model").whole() for name, ran in runs.items() if (artifact := at_step(ran.one, 4))}
    begun = {name: open_arrays(artifact, "model").whole() for name, ran in runs.items() if (artifact := at_step(ran.one, 2))}
    for name, arrays in ends.items():
        assert all(np.abs(array - begun[name][key]).max() > 1e-4 for key, array in arrays.items()), name
    assert any(np.abs(ends["muon"][key] - ends["adamh"][key]).max() > 1e-3 for key in ends["muon"])
