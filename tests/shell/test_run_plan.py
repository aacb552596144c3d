"""Plans of the paper runs: totals, their document, and the manifests they would create."""

from pathlib import Path

import pytest
import yaml

from marin_assets.cli.run_plan import RunPlan, manifest, markdown, plan
from recipes.planned_runs import planned_runs

SCALE = Path(__file__).resolve().parents[2] / "docs" / "design" / "scale.md"


@pytest.fixture(scope="module")
def plans() -> dict[str, RunPlan]:
    return {name: plan(run) for name, run in planned_runs().items()}


def test_the_1e23_run_has_the_flops_of_its_name_and_the_published_parameters(plans: dict[str, RunPlan]) -> None:
    run_plan = plans["1e23"]
    assert run_plan.needs.flops_per_step * run_plan.run.spec.num_steps == pytest.approx(1e23, rel=0.06)
    assert run_plan.needs.parameters == pytest.approx(129e9, rel=0.01)
    assert run_plan.needs.active_parameters == pytest.approx(16e9, rel=0.02)
    assert run_plan.shape.chips == 256 and run_plan.needs.device_bytes < run_plan.device_memory


def test_the_june_model_is_16b_a2b_and_fits_two_nodes(plans: dict[str, RunPlan]) -> None:
    run_plan = plans["june"]
    embeddings = 2 * run_plan.run.spec.model.vocab_size * run_plan.run.spec.model.hidden_dim
    assert run_plan.needs.parameters == pytest.approx(16e9, rel=0.05)
    assert run_plan.needs.active_parameters - embeddings == pytest.approx(2e9, rel=0.1)
    assert run_plan.shape.chips == 16 and run_plan.needs.device_bytes < run_plan.device_memory


def test_what_a_host_keeps_on_its_disk_is_below_what_evicts_its_pod(plans: dict[str, RunPlan]) -> None:
    for name, run_plan in plans.items():
        assert run_plan.host_disk_bytes / 2**30 < run_plan.host_disk_gib, name


def test_the_documents_table_is_what_the_command_prints(plans: dict[str, RunPlan]) -> None:
    """`./marin plan-run --markdown`"""
    assert markdown(list(plans.values())) in SCALE.read_text()


@pytest.mark.parametrize(
    ("name", "pods", "chips"), [("1e23", 64, {"google.com/tpu": "4"}), ("june", 2, {"nvidia.com/gpu": "8"})]
)
def test_its_manifest_asks_for_every_chip_and_says_the_mesh(
    plans: dict[str, RunPlan], name: str, pods: int, chips: dict
) -> None:
    made = yaml.safe_load(yaml.safe_dump(manifest(plans[name])))
    (replicated,) = made["spec"]["replicatedJobs"]
    spec = replicated["template"]["spec"]
    container = spec["template"]["spec"]["containers"][0]
    assert replicated["replicas"] * spec["parallelism"] == pods
    assert chips.items() <= container["resources"]["limits"].items()
    mesh = {"1e23": "data=64,expert=4", "june": "data=2,expert=8"}[name]
    assert container["command"][1:4] == ["-m", "trainer", f"MARIN_MESH={mesh}"]


def test_hardware_without_accelerators_is_refused() -> None:
    with pytest.raises(ValueError, match="'cpu' has no accelerators; june is planned on 2xh100x8"):
        plan(planned_runs()["june"], "cpu")
