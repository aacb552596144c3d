"""Training steps for accelerators that are not here: lowered for CUDA, compiled for a v5p topology where libtpu is installed.

`make libtpu` installs it (137 MB) into `.libtpu`; the other tests need nothing.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_model, tiny_spec
from tiny_moe import tiny_moe
from tiny_run import ROOT

from lineage.config import to_jsonable
from recipes.planned_runs import june
from trainer.spec.compute import ComputeConfig
from trainer.spec.config import RunSpec
from trainer.spec.moe import ExpertsConfig

pytestmark = pytest.mark.slow

LIBTPU = ROOT / ".libtpu"
SIZES = {
    "vocab_size": 512, "hidden_dim": 256, "intermediate_dim": 512, "num_layers": 2, "num_heads": 2, "num_kv_heads": 2,
    "max_seq_len": 256,
}  # fmt: skip
DENSE, MIXED = tiny_model(**SIZES), tiny_moe(**SIZES, experts=ExpertsConfig(8, 256, shared_dim=256))
BF16 = ComputeConfig(dtype="bfloat16", layers="scan", strict=True)


def case(mesh: str, platform: str, model=DENSE, compute: ComputeConfig = BF16, of=(256, 8, 4), **more: Any) -> dict[str, Any]:
    """A step of two microbatches on four devices. `of`: length of a sequence, sequences of a batch and of a microbatch."""
    seq_len, batch, micro = of
    spec = tiny_spec(model=model, seq_len=seq_len, batch_size=batch, microbatch_size=micro, compute=compute)
    return {"spec": to_jsonable(spec), "mesh": mesh, "platform": platform, "devices": 4, **more}


def reports(cases: list[dict[str, Any]], libtpu: Path | None = None) -> list[dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | ({} if libtpu is None else {"MARIN_LIBTPU": str(libtpu)})
    command = [sys.executable, str(Path(__file__).with_name("lowering.py")), json.dumps(cases)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def whole(lowered: dict[str, Any]) -> None:
    """Nothing fell back, every array of the state is donated, no host is called."""
    assert "unavailable" not in lowered["compute"]["notes"]
    assert lowered["donated"] == lowered["arrays"] and lowered["callbacks"] == 0


RING = {"all_gather": 4, "reduce_scatter": 3, "all_to_all": 0, "collective_permute": 0}
"""Of one layer. Forward: rows, ids and shares are gathered, sums are scattered. Backward: one gather of the gradient of the
sums, one scatter each for the gradients of rows and shares."""
EXCHANGE = {"all_gather": 0, "reduce_scatter": 0, "all_to_all": 5, "collective_permute": 0}
"""Of one layer. Forward: rows, the experts that they want, results. Backward: gradients of results and of rows."""
NOTHING = dict.fromkeys(RING, 0)


def planned(lowered: dict[str, Any]) -> dict[str, int]:
    """The collectives that the program names itself; XLA adds those of FSDP and `tensor` when it splits the program."""
    return {kind: lowered["explicit"][kind] for kind in RING}


def test_steps_are_lowered_for_cuda_on_every_mesh() -> None:
    exact = ComputeConfig(layers="scan")
    exchange = replace(BF16, exchange="all_to_all")
    cases = [
        case("data=2,tensor=2", "gpu"),
        case("slice=2,data=2", "gpu", compute=exact),
        case("expert=4", "gpu", MIXED),
        case("expert=2,tensor=2", "gpu", MIXED),
        case("expert=2,data=2", "gpu", MIXED, exchange),
        case("expert=4", "gpu", MIXED, capability="9.0"),
    ]
    dense, sliced, ring, tensor, exchanged, hopper = all_reports = reports(cases)
    for each in all_reports:
        whole(each)
    assert dense["compute"]["attention"] == "cudnn" and set(dense["calls"]) == {
        "__cudnn$fmhaSoftmax",
        "__cudnn$fmhaSoftmaxBackward",
    }
    assert sliced["compute"]["precision"] == "highest" and sliced["imprecise"] == 0, "float32 is float32"
    assert [each["compute"]["experts"] for each in (ring, tensor, exchanged)] == ["ragged"] * 3
    assert hopper["compute"]["experts"] == "hopper" and planned(hopper) == RING
    assert hopper["calls"]["mosaic_gpu_v2"] >= 9, "three products forward, six backward"
    assert planned(dense) == planned(sliced) == NOTHING
    assert planned(ring) == planned(tensor) == RING and planned(exchanged) == EXCHANGE


def test_the_planned_june_run_is_lowered_for_its_two_nodes() -> None:
    """16 B parameters over 16 GPUs, from shapes alone; its spec asks for full rematerialization in bfloat16."""
    plan = june()
    spec: RunSpec = replace(plan.spec, compute=replace(plan.spec.compute, strict=True))
    [lowered] = reports([{"spec": to_jsonable(spec), "mesh": "expert=8,data=2", "platform": "gpu", "devices": 16}])
    whole(lowered)
    assert lowered["compute"]["attention"] == "cudnn" and lowered["compute"]["loss_rows"] == 8192
    assert lowered["explicit"]["reduce_scatter"] >= 3 and lowered["explicit"]["all_to_all"] == 0


@pytest.mark.skipif(not (LIBTPU / "libtpu").exists(), reason="make libtpu installs the compiler of TPUs")
@pytest.mark.parametrize("name", ["data", "tensor", "experts"])
def test_steps_are_compiled_for_a_tpu_topology(name: str) -> None:
    """The peaks of the larger shapes are within 10 % of the plan (docs/design/moe.md has more shapes, and what is missed)."""
    large = {**SIZES, "vocab_size": 4096, "num_layers": 4, "max_seq_len": 512}
    dense = tiny_model(**{**large, "hidden_dim": 1024, "intermediate_dim": 4096, "num_heads": 8, "num_kv_heads": 8})
    mixed = tiny_moe(
        **{**large, "hidden_dim": 512, "num_heads": 4, "num_kv_heads": 4}, experts=ExpertsConfig(16, 512, shared_dim=512)
    )
    asked = {
        "data": case("data=4", "tpu", dense, of=(512, 8, 4)),
        "tensor": case("data=2,tensor=2", "tpu", dense, of=(512, 8, 4)),
        "experts": case("expert=4", "tpu", mixed, of=(512, 16, 8)),
    }[name]
    [lowered] = reports([{**asked, "topology": "v5p:2x2x1", "compiled": True}], LIBTPU)
    whole(lowered)
    assert lowered["compute"]["attention"] == "splash" and lowered["kernels"] >= 3
    assert lowered["aliased"] >= 0.99 * lowered["planned_state"], "the new state is written over the old one"
    assert lowered["arguments"] == pytest.approx(lowered["planned_state"], rel=0.01)
    if name == "tensor":
        assert lowered["collectives"]["all_gather"] > 0 and lowered["collectives"]["all_reduce"] > 0
    assert lowered["peak"] == pytest.approx(lowered["planned"], rel=0.1)
    if name == "experts":
        assert planned(lowered) == RING
        assert 0 < lowered["collectives"]["reduce_scatter"] <= RING["reduce_scatter"], "XLA may join two"
