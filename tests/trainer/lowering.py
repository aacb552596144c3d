"""`python lowering.py CASES`: lower or compile training steps for accelerators that are not here, and print what they hold.

CASES is a JSON list of cases; the output is a JSON list of reports. A process of its own, because the number of devices and the
library of TPUs (`MARIN_LIBTPU`, a folder that holds `libtpu`) are chosen before JAX starts.
"""

import collections
import json
import os
import re
import sys
from typing import Any

os.environ |= {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=16",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_LOG_DIR": "disabled",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # else a second process at a time stops at a lock file; no chip is shared here
}
sys.path.append(os.environ.get("MARIN_LIBTPU", ""))

import jax
import jax.numpy as jnp
from jax._src.cudnn import fused_attention_stablehlo as cudnn
from jax.experimental import topologies
from jax.experimental.pallas.ops.gpu import transposed_ragged_dot_mgpu as hopper_kernel
from jax.sharding import NamedSharding, PartitionSpec

from lineage.config import from_jsonable
from trainer.batch import Batch
from trainer.footprint import footprint
from trainer.initial_state import state_shapes
from trainer.model import transformer
from trainer.model.parts import parted
from trainer.spec.compute import resolve
from trainer.spec.config import RunSpec
from trainer.spec.mesh import BATCH_AXES, Layout, MeshShape
from trainer.step import StepState, compiled_step, resolved_compute

KINDS = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "collective_permute")
CUDNN = 91002
"""The version that a GPU would report. JAX asks for it while it traces, though the program does not depend on a device."""


class OnHopper:
    """`jax` for a kernel that asks its device how many multiprocessors it has."""

    core_count = 132

    def devices(self) -> list["OnHopper"]:
        return [self]

    def __getattr__(self, name: str) -> Any:
        return getattr(jax, name)


def report(case: dict[str, Any]) -> dict[str, Any]:
    """What a step holds: collectives, custom calls, donated buffers, callbacks; on a TPU topology its memory too."""
    spec, mesh, platform = from_jsonable(RunSpec, case["spec"]), MeshShape.parse(case["mesh"]), case["platform"]
    if platform == "tpu":
        devices = list(topologies.get_topology_desc(case["topology"], "tpu").devices)
    else:
        devices = jax.devices()[: case["devices"]]
    layout = Layout.of(mesh, devices)
    shapes = state_shapes(spec, layout)
    parameters, router, _ = parted(shapes.model)
    state = StepState(parameters, shapes.optimizer, shapes.skip, shapes.ema, router if jax.tree.leaves(router) else None)
    chip = case.get("capability")
    transformer.resolve = lambda config, _, work, __: resolve(
        config, platform, work, chip
    )  # this machine's platform is another
    cudnn.check_cudnn_version = lambda: CUDNN
    hopper_kernel.jax = OnHopper()
    compute = resolved_compute(spec, shapes.model)
    rows = NamedSharding(layout.mesh, PartitionSpec(BATCH_AXES, None))
    tokens = jax.ShapeDtypeStruct((spec.batches.size(0), spec.seq_len), jnp.int32, sharding=rows)
    with layout.pinned():
        program = compiled_step(spec, shapes.model, layout, compute).program
        traced = program.trace(state, Batch(tokens), jax.ShapeDtypeStruct((), jnp.float32))
        lowered = traced.lower() if platform == "tpu" else traced.lower(lowering_platforms=("cuda",))  # as `jax.export` does
    text = lowered.as_text()
    facts = {
        "compute": compute.record(),
        "arrays": len(jax.tree.leaves(state)),
        "donated": len(re.findall(r"jax\.buffer_donor|tf\.aliasing_output", text)),
        "callbacks": len(re.findall(r"callback|send|recv|infeed|outfeed", text)),
        "explicit": {kind: len(re.findall(rf"stablehlo\.{kind}\b", text)) for kind in KINDS},
        "calls": dict(collections.Counter(re.findall(r"custom_call @([\w$.]+)", text))),
        "imprecise": imprecise(text),
    }
    if case.get("compiled"):
        compiled = lowered.compile()
        optimized, memory = compiled.as_text(), compiled.memory_analysis()
        planned = footprint(spec, mesh, len(devices))
        facts |= {
            "collectives": {kind: len(re.findall(rf"\b{kind.replace('_', '-')}(?:-start)?\(", optimized)) for kind in KINDS},
            "callbacks": facts["callbacks"] + len(re.findall(r"callback|infeed|outfeed", optimized)),
            "kernels": len(re.findall(r'custom_call_target="tpu_custom_call"', optimized)),
            "aliased": memory.alias_size_in_bytes,
            "arguments": memory.argument_size_in_bytes,
            "peak": memory.argument_size_in_bytes
            + memory.temp_size_in_bytes
            + memory.output_size_in_bytes
            - memory.alias_size_in_bytes,
            "planned_state": planned.device_state_bytes,
            "planned": planned.device_bytes,
        }
    return facts


def imprecise(text: str) -> int:
    """Products of two float32 arrays that ask for less than the highest precision."""
    products = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    wide = [line for line in products if re.search(r": \(tensor<[0-9x]*xf32>, tensor<[0-9x]*xf32>\)", line)]
    return sum("HIGHEST" not in line for line in wide)


if __name__ == "__main__":
    print(json.dumps([report(case) for case in json.loads(sys.argv[1])]))
