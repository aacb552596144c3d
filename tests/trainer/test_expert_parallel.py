"""Experts over virtual devices: both exchanges and every mesh give what one device gives, and checkpoints move between them."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest
from tiny_moe import tiny_moe
from tiny_run import ROOT, RUN, at_step, job_of, metrics_of

from lineage.jobs.job import Job
from trainer.array_files import open_arrays
from trainer.checkpoint import read_checkpoint
from trainer.initial_state import state_shapes
from trainer.spec.compute import ComputeConfig
from trainer.spec.mesh import Layout, MeshShape
from trainer.spec.moe import ExpertsConfig, RouterConfig
from trainer.spec.schedules import WarmupStableDecay
from trainer.train import train

pytestmark = pytest.mark.slow

SPEC = replace(
    RUN,
    name="spread",
    model=tiny_moe(
        vocab_size=50, hidden_dim=16, num_layers=1, experts=ExpertsConfig(4, 8, 8), router=RouterConfig(2, z_loss_weight=1e-2)
    ),
    schedule=WarmupStableDecay(peak_learning_rate=1e-3, warmup_steps=1, decay_frac=0.5),
    microbatch_size=4,
    batch_size=8,
    num_steps=4,
    save_every_steps=2,
)
OVER_DEVICES = """
import sys
from pathlib import Path
from lineage.jobs.job import read_job
from trainer.spec.mesh import MeshShape
from trainer.running import Running
from trainer.train import train
for told in sys.argv[1:]:
    job, mesh = told.split("@")
    train(read_job(Path(job)), Running(mesh=MeshShape.parse(mesh)))
"""
MESHES = {
    "ring_4": ("expert=4", "ring"),
    "ring_tensor": ("expert=2,tensor=2", "ring"),
    "exchange_2": ("expert=2,data=2", "all_to_all"),
}


def spec_of_exchange(exchange: str):
    return replace(SPEC, compute=ComputeConfig(exchange=exchange))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    """One process does all that is done on four devices: every mesh, and `moved` from one device's middle."""
    root = tmp_path_factory.mktemp("experts")
    jobs = {"one": job_of(root / "one", SPEC)}
    train(jobs["one"])
    shutil.copytree(root / "one", root / "moved")
    jobs["moved"] = job_of(root / "moved", SPEC)
    jobs["moved"].store.delete(at_step(jobs["moved"], 4))  # type: ignore[arg-type]
    jobs |= {name: job_of(root / name, spec_of_exchange(exchange)) for name, (_, exchange) in MESHES.items()}
    jobs_on_meshes = [f"{root / name / 'job.json'}@{mesh}" for name, (mesh, _) in MESHES.items()]
    ran = subprocess.run(
        [sys.executable, "-c", OVER_DEVICES, *jobs_on_meshes, f"{root / 'moved' / 'job.json'}@expert=4"],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
                          "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    return jobs


@pytest.mark.parametrize("name", [*MESHES, "moved"])
def test_every_mesh_and_exchange_trains_as_one_device_does(name: str, runs: dict[str, Job]) -> None:
    made, wanted = at_step(runs[name], 4), at_step(runs["one"], 4)
    assert made is not None and wanted is not None
    for column in ("loss_nats", "grad_norm"):
        np.testing.assert_allclose(metrics_of(made)[column], metrics_of(wanted)[column], rtol=1e-5, err_msg=column)
    actual, expected = open_arrays(made, "model").whole(), open_arrays(wanted, "model").whole()
    for array, values in expected.items():
        scale = np.abs(values).max()
        np.testing.assert_allclose(actual[array], values, rtol=0, atol=2e-3 * scale, err_msg=array)


def test_a_checkpoint_of_any_mesh_is_read_on_any_other_with_the_same_bits(runs: dict[str, Job]) -> None:
    made = at_step(runs["ring_4"], 4)
    assert made is not None
    state, _ = read_checkpoint(made, state_shapes(SPEC, Layout.of(MeshShape())))
    stored = open_arrays(made, "model").whole()
    for path, leaf in jax.tree_util.tree_leaves_with_path(state.model):
        if hasattr(leaf, "shape"):
            np.testing.assert_array_equal(leaf, stored[jax.tree_util.keystr(path)])
