"""Hardware by name: one table from `v5p-8` or `2xh100x8` to chips, hosts, topology, a pod's requests, and prices.

A run's recipe names hardware (`Execution.hardware`, alternatives in order); launchers look the name up here. It never enters an
identity: the same run on other chips is the same run. `COUNTxNAME` is that many slices or nodes of a base shape.

TPU names count as Google's do: TensorCores for v4 and v5p (two a chip), chips for v5e and v6e. Chip figures and prices are from
memory unless marked verified: plan with them, and check them against the provider's page before money depends on them.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

GPUS_PER_NODE = 8
_DISK = "ephemeral-storage"
"""Resource name for a pod's downloads and working copies. Kubernetes schedules the pod on a node with enough disk."""


@dataclass(frozen=True)
class Price:
    """List price on demand, per chip and hour."""

    dollars_per_chip_hour: float
    as_of: str
    source: str
    verified: bool = False


@dataclass(frozen=True)
class Chip:
    """One accelerator: dense bfloat16 peak and memory."""

    name: str
    bf16_flops: float
    hbm_bytes: int
    price: Price


@dataclass(frozen=True)
class Hardware:
    """A kind of hardware for a job. `hosts` is per slice; a GPU node is a slice of one host.

    `resources` and `node_selector` are those of one host's pod, in Kubernetes' words.
    """

    name: str
    kind: Literal["cpu", "tpu", "gpu"]
    chip: Chip | None
    chips_per_host: int
    hosts: int
    slices: int
    topology: str
    resources: Mapping[str, str]
    node_selector: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    """Keys of node taints that its pods tolerate."""

    machine: str = ""
    fabric: Literal["", "infiniband", "tcpxo"] = ""
    """Network between GPU nodes (`resources/pods.py`)."""

    mesh: str = ""
    """Default mesh of a run's devices, as `trainer.spec.mesh` reads it; empty: all along `data`."""

    @property
    def chips(self) -> int:
        """Accelerators in all; 0 of a CPU."""
        return self.chips_per_host * self.hosts * self.slices

    @property
    def pods(self) -> int:
        return self.hosts * self.slices

    @property
    def peak_flops(self) -> float:
        """Dense bfloat16 FLOP/s of all chips; 0 where there is no accelerator."""
        return self.chips * self.chip.bf16_flops if self.chip else 0.0

    @property
    def dollars_per_hour(self) -> float:
        """List price on demand; 0 of a CPU, which is not priced here."""
        return self.chips * self.chip.price.dollars_per_chip_hour if self.chip else 0.0


def _from_memory(dollars: float, provider: str) -> Price:
    return Price(dollars, as_of="2026-11-21", source=f"from memory of {provider}'s list price on demand, not read again")


_GIB = 2**30
_CUBES = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8), (4, 8, 8), (8, 8, 8), (8, 8, 16), (8, 16, 16))
"""Shapes of v4 and v5p slices. Larger slices and twisted tori are not listed yet."""
_SQUARES = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
_GOOGLE = "Google Cloud"
_V5E = Chip("TPU v5e", 197e12, 16 * _GIB, _from_memory(1.20, _GOOGLE))  # peak and memory read in Google's v5e page, 2026-11-21
_TPUS: Mapping[str, tuple[Chip, str, str]] = {
    "v4": (Chip("TPU v4", 275e12, 32 * _GIB, _from_memory(3.22, _GOOGLE)), "tpu-v4-podslice", "ct4p-hightpu"),
    "v5p": (Chip("TPU v5p", 459e12, 95 * _GIB, _from_memory(4.20, _GOOGLE)), "tpu-v5p-slice", "ct5p-hightpu"),
    "v5e": (_V5E, "tpu-v5-lite-podslice", "ct5lp-hightpu"),
    "v6e": (Chip("TPU v6e", 918e12, 32 * _GIB, _from_memory(2.70, _GOOGLE)), "tpu-v6e-slice", "ct6e-standard"),
}
_H100 = Chip("H100 SXM", 989e12, 80 * 10**9, _from_memory(6.16, "CoreWeave"))
_H100_GOOGLE = replace(_H100, price=_from_memory(11.06, _GOOGLE))
_TPU_HOSTS: Mapping[str, tuple[int, int]] = {
    "ct4p-hightpu-4t": (240, 407),
    "ct5p-hightpu-4t": (208, 448),
    "ct5lp-hightpu-1t": (24, 48),
    "ct5lp-hightpu-4t": (112, 192),
    "ct5lp-hightpu-8t": (224, 384),
    "ct6e-standard-1t": (44, 176),
    "ct6e-standard-4t": (180, 720),
    "ct6e-standard-8t": (180, 1440),
}
"""vCPU and GB of memory of a TPU host's machine, from memory of Google's page of TPU machine types, not read again."""
_HOST_SHARE = 0.8
"""Share of a host's processors and memory that its one pod requests. GKE keeps up to a tenth, and DaemonSets need some. Without
a request a node short of memory evicts the pod first; without a limit a leak does not end in OOMKilled."""


def hardware(name: str) -> Hardware:
    """The hardware of a name. Raises ValueError that lists the known names, or says which slices cannot be joined."""
    match = re.fullmatch(r"([1-9]\d*)x(?=\D)(.+)", name)
    count, base = (int(match[1]), match[2]) if match else (1, name)
    table = base_shapes()
    if base not in table or (match and table[base].kind == "cpu"):
        raise ValueError(f"hardware {name!r} is not known; known: {', '.join(table)}, and COUNTx before an accelerator's name")
    shape = table[base]
    if match is None:
        return shape
    if shape.kind == "tpu" and shape.hosts == 1 and count > 1:
        many = next(each.name for each in table.values() if each.chip is shape.chip and each.hosts > 1)
        raise ValueError(
            f"hardware {name!r}: GKE joins slices of several hosts alone (Multislice), and {base} is one host; take one larger "
            f"slice, or {count} of {many} or above"
        )
    # Slices are joined by a slow network that gradients alone are to cross; GPU nodes share one that bears FSDP.
    return replace(shape, name=name, slices=count, mesh=f"slice={count}" if shape.kind == "tpu" and count > 1 else shape.mesh)


def alternatives(names: tuple[str, ...]) -> tuple[Hardware, ...]:
    """Hardware of names in order of preference. Raises: ValueError for an unknown or repeated name, or for no name."""
    if not names or len(set(names)) != len(names):
        raise ValueError(f"hardware is {names}; name at least one, each once, the preferred first")
    return tuple(hardware(name) for name in names)


def refuse_accelerators(names: tuple[str, ...], what: str, instead: str) -> None:
    """Raises: ValueError when any of the names is an accelerator: `what` asks for it and must not, `instead` is the way."""
    accelerators = [name for name in names if hardware(name).kind != "cpu"]
    if accelerators:
        raise ValueError(
            f"{what} asks for {', '.join(accelerators)}, by accident or not: it would hold accelerators idle. {instead}"
        )


@functools.cache
def base_shapes() -> Mapping[str, Hardware]:
    """Every shape that has a name of its own, in the order in which they are listed to people."""
    shapes = [
        Hardware("cpu", "cpu", None, 0, 1, 1, "", {"cpu": "2", "memory": "8Gi", _DISK: "20Gi"}),
        *(_tpu("v4", f"v4-{2 * prod(t)}", t) for t in _CUBES),
        *(_tpu("v5p", f"v5p-{2 * prod(t)}", t) for t in _CUBES),
        *(_tpu("v5e", f"v5e-{prod(t)}", t) for t in _SQUARES),
        *(_tpu("v6e", f"v6e-{prod(t)}", t) for t in _SQUARES),
        _h100_coreweave(),
        replace(_h100_google("a3mega", "a3-megagpu-8g", "nvidia-h100-mega-80gb"), fabric="tcpxo"),
        _h100_google("a3high", "a3-highgpu-8g", "nvidia-h100-80gb"),
    ]
    return {shape.name: shape for shape in shapes}


def _tpu(generation: str, name: str, topology: tuple[int, ...]) -> Hardware:
    """A TPU slice as GKE sells it: hosts of four chips (v5e and v6e slices of at most eight are one host)."""
    chip, accelerator, machine = _TPUS[generation]
    chips = prod(topology)
    per_host = chips if generation in ("v5e", "v6e") and chips <= 8 else 4
    shape = "x".join(map(str, topology))
    host = f"{machine}-{per_host}t"
    cpus, gigabytes = (int(_HOST_SHARE * each) for each in _TPU_HOSTS[host])
    memory = f"{gigabytes * 10**9 // 2**30}Gi"
    return Hardware(
        name=name,
        kind="tpu",
        chip=chip,
        chips_per_host=per_host,
        hosts=chips // per_host,
        slices=1,
        topology=shape,
        resources={"google.com/tpu": str(per_host), "cpu": str(cpus), "memory": memory, _DISK: "100Gi"},
        node_selector={"cloud.google.com/gke-tpu-accelerator": accelerator, "cloud.google.com/gke-tpu-topology": shape},
        taints=("google.com/tpu",),
        machine=host,
    )


def _h100_coreweave() -> Hardware:
    """CoreWeave's node of eight on InfiniBand; `rdma/ib` is a switch there, not a count."""
    selector = {"node.kubernetes.io/instance-type": "gd-8xh100ib-i128", "backend.coreweave.cloud/flavor": "infiniband"}
    shape = _h100_node("h100x8", "gd-8xh100ib-i128", selector, {"cpu": "110", "memory": "1800Gi"}, _H100)
    return replace(shape, resources={**shape.resources, "rdma/ib": "1"}, fabric="infiniband")


def _h100_google(name: str, machine: str, accelerator: str) -> Hardware:
    """GKE's node of eight H100. Its 208 vCPU and 1872 GB are from memory of Google's list; the system needs some of them."""
    selector = {"cloud.google.com/gke-accelerator": accelerator}
    return _h100_node(name, machine, selector, {"cpu": "180", "memory": "1500Gi"}, _H100_GOOGLE)


def _h100_node(name: str, machine: str, selector: Mapping[str, str], host: Mapping[str, str], chip: Chip) -> Hardware:
    return Hardware(
        name=name,
        kind="gpu",
        chip=chip,
        chips_per_host=GPUS_PER_NODE,
        hosts=1,
        slices=1,
        topology="nvlink",
        resources={"nvidia.com/gpu": str(GPUS_PER_NODE), **host, _DISK: "500Gi"},
        node_selector=selector,
        taints=("nvidia.com/gpu",),
        machine=machine,
    )


def table() -> str:
    """The table as text, one line a shape."""
    rows = [("name", "chips", "hosts", "topology", "PFLOP/s", "HBM GiB", "$/h", "price verified")]
    for shape in base_shapes().values():
        chip = shape.chip
        if chip is None:
            rows.append((shape.name, "0", "1", "", "", "", "", ""))
            continue
        memory = shape.chips * chip.hbm_bytes / _GIB
        numbers = (f"{shape.peak_flops / 1e15:.1f}", f"{memory:.0f}", f"{shape.dollars_per_hour:.0f}")
        verified = "yes" if chip.price.verified else f"no, {chip.price.as_of}"
        rows.append((shape.name, str(shape.chips), str(shape.hosts), shape.topology, *numbers, verified))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


if __name__ == "__main__":
    print(table())
