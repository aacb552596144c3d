"""The hardware table: names to shapes, and who may request them."""

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.build.nodes import Node
from lineage.stage import Stage
from recipes.ferry import Ferry
from recipes.hardware import alternatives, base_shapes, hardware
from recipes.records.run import Evaluation, Execution
from recipes.runs import checkpoint, eval_result, eval_tasks
from recipes.smoke import smoke_ferry
from recipes.studies.default import default_evaluation, tiny


@pytest.mark.parametrize(
    ("name", "chips", "hosts", "slices", "topology"),
    [
        ("cpu", 0, 1, 1, ""),
        ("v5p-8", 4, 1, 1, "2x2x1"),
        ("v4-512", 256, 64, 1, "4x8x8"),
        ("v6e-16", 16, 4, 1, "4x4"),
        ("v6e-8", 8, 1, 1, "2x4"),
        ("v5e-256", 256, 64, 1, "16x16"),
        ("2xv5e-256", 512, 64, 2, "16x16"),
        ("h100x8", 8, 1, 1, "nvlink"),
        ("2xh100x8", 16, 1, 2, "nvlink"),
        ("2xa3mega", 16, 1, 2, "nvlink"),
        ("a3high", 8, 1, 1, "nvlink"),
    ],
)
def test_names_of_the_reference_documents(name: str, chips: int, hosts: int, slices: int, topology: str) -> None:
    shape = hardware(name)
    assert (shape.chips, shape.hosts, shape.slices, shape.topology) == (chips, hosts, slices, topology)


def test_every_topology_is_filled_by_its_hosts() -> None:
    for shape in base_shapes().values():
        if shape.kind == "tpu":
            assert prod(map(int, shape.topology.split("x"))) == shape.hosts * shape.chips_per_host
            assert shape.resources["google.com/tpu"] == str(shape.chips_per_host)
            assert shape.node_selector["cloud.google.com/gke-tpu-topology"] == shape.topology


def test_every_pod_requests_processors_memory_and_disk() -> None:
    """Without them a pod is evicted first, and its own leak cannot be distinguished from a neighbour's."""
    for shape in base_shapes().values():
        assert {"cpu", "memory", "ephemeral-storage"} <= shape.resources.keys(), shape.name
        assert int(shape.resources["cpu"]) >= max(2, shape.chips_per_host)


@given(st.sampled_from(sorted(base_shapes())), st.integers(1, 50))
def test_a_count_multiplies(name: str, count: int) -> None:
    base = hardware(name)
    if base.kind == "cpu":
        return
    if base.kind == "tpu" and base.hosts == 1 and count > 1:
        with pytest.raises(ValueError, match=rf"GKE joins slices of several hosts alone .*, and {name} is one host; take one"):
            hardware(f"{count}x{name}")
        return
    many = hardware(f"{count}x{name}")
    assert (many.chips, many.pods) == (count * base.chips, count * base.pods)
    assert many.peak_flops == pytest.approx(count * base.peak_flops)
    assert many.dollars_per_hour == pytest.approx(count * base.dollars_per_hour)


@pytest.mark.parametrize("name", ["v5p-9", "h100", "2xcpu", "0xh100x8", "x", "", "2x", "V5P-8"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=r"is not known; known: cpu, v4-8, .*v5p-8, .*v6e-16, .*h100x8"):
        hardware(name)


def test_no_price_claims_to_be_verified() -> None:
    """No price has been read on a provider's page. After checking one, mark it and narrow this test."""
    assert not any(shape.chip.price.verified for shape in base_shapes().values() if shape.chip)


def test_alternatives_are_named_once_each() -> None:
    assert [shape.name for shape in alternatives(("v5p-8", "v6e-8"))] == ["v5p-8", "v6e-8"]
    for names in ((), ("cpu", "cpu")):
        with pytest.raises(ValueError, match="name at least one, each once"):
            alternatives(names)
    with pytest.raises(ValueError, match="'v5p-7' is not known"):
        Execution(("v5p-8", "v5p-7"))


def test_hardware_is_no_part_of_an_identity() -> None:
    run = tiny()
    evaluation = replace(run.evaluation, hardware=("v6e-8",))
    elsewhere = replace(run, execution=Execution(("v5p-8",)), evaluation=evaluation)
    here, there = checkpoint(run, 50), checkpoint(elsewhere, 50)
    assert there.hardware == ("v5p-8",)
    assert eval_result(elsewhere, 50, eval_tasks(run)[:1], "x").hardware == ("v6e-8",)
    assert (here.config, here.stage, here.key, here.partition) == (there.config, there.stage, there.key, there.partition)


def test_what_orchestrates_and_what_runs_daily_may_not_hold_accelerators() -> None:
    inside = Stage("tests.inside", "1", run=lambda out, config: None)
    with pytest.raises(
        ValueError, match=r"hardware is v5p-8, arguments are \(\), but stage tests\.inside runs inside the step that"
    ):
        Node(("a",), None, inside, None, hardware=("v5p-8",))
    run = replace(smoke_ferry().online, execution=Execution(("cpu", "v5p-8")))
    with pytest.raises(ValueError, match="ferry of run smoke asks for v5p-8, by accident or not"):
        Ferry(run, run)
    assert Ferry(run, run, with_accelerators=True).online.execution.hardware == ("cpu", "v5p-8")


@pytest.mark.parametrize(("name", "hosts"), [("v5e-16", 4), ("2xh100x8", 2)])
def test_evaluations_run_on_one_host(name: str, hosts: int) -> None:
    """Their processes do not meet: each of several would score everything, and of a slice none would ever start."""
    with pytest.raises(ValueError, match=rf"evaluation\.hardware has {name}, which is {hosts} hosts; .* on one$"):
        replace(default_evaluation(), hardware=("v5e-4", name))
    assert Evaluation(default_evaluation().suites, hardware=("v5e-8", "h100x8", "cpu")).hardware[0] == "v5e-8"
