"""Make Kueue's queues from the hardware table: one cluster queue and one local queue a shape, and three priorities.

    python deploy/queues.py --pool v5p-8=4 --pool v4-512=1 --pool cpu=16 | kubectl apply -f -

A pool is a hardware name of `recipes/hardware.py` and how many such machines or slices may be used at once. Node selectors and
resources come from the table that the launchers use, so a job's pod and its queue cannot disagree.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from recipes.hardware import Hardware, hardware

API = "kueue.x-k8s.io/v1beta2"
NAMESPACE = "marin"
PRIORITIES = {"production": 1000, "interactive": 500, "batch": 100}
ON_DEMAND = {"marin.community/pool": "on-demand"}
type Manifest = dict[str, Any]


def queues(pools: dict[str, int]) -> Iterator[Manifest]:
    """Return the objects of some pools. Raises: ValueError for a name that the table lacks."""
    for name, value in PRIORITIES.items():
        yield {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": f"marin-{name}"}, "value": value}
    for name, slices in pools.items():
        yield from _pool(hardware(name), slices)


def _pool(shape: Hardware, slices: int) -> Iterator[Manifest]:
    labels = dict(shape.node_selector) or ON_DEMAND
    taints = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in shape.taints]
    yield {
        "apiVersion": API,
        "kind": "ResourceFlavor",
        "metadata": {"name": shape.name},
        "spec": {"nodeLabels": labels, **({"tolerations": taints} if taints else {})},
    }
    quota = [{"name": name, "nominalQuota": times(amount, shape.pods * slices)} for name, amount in shape.resources.items()]
    yield {
        "apiVersion": API,
        "kind": "ClusterQueue",
        "metadata": {"name": f"{NAMESPACE}-{shape.name}"},
        "spec": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
            "queueingStrategy": "BestEffortFIFO",
            # A slice is granted completely or not at all, and production may preempt less urgent work of the same shape.
            "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Never"},
            "resourceGroups": [
                {"coveredResources": list(shape.resources), "flavors": [{"name": shape.name, "resources": quota}]},
            ],
        },
    }
    yield {
        "apiVersion": API,
        "kind": "LocalQueue",
        "metadata": {"name": shape.name, "namespace": NAMESPACE},
        "spec": {"clusterQueue": f"{NAMESPACE}-{shape.name}"},
    }


def times(amount: str, count: int) -> str:
    """A quantity of Kubernetes, so many times.

    >>> times("8Gi", 3)
    '24Gi'
    """
    parts = re.fullmatch(r"(\d+)([A-Za-z]*)", amount)
    if parts is None:
        raise ValueError(f"resource amount {amount!r} is no whole number with a unit")
    return f"{int(parts[1]) * count}{parts[2]}"


def parse_pools(arguments: Sequence[str]) -> dict[str, int]:
    """Parse `--pool NAME=COUNT ...`. Raises: ValueError naming the wrong argument."""
    pools = {}
    for flag, argument in zip(arguments[::2], arguments[1::2], strict=False):
        name, _, count = argument.partition("=")
        if flag != "--pool" or not count.isdigit() or int(count) < 1:
            raise ValueError(f"{flag} {argument}: give --pool NAME=COUNT, with a count of at least 1")
        pools[name] = int(count)
    if not pools or len(arguments) % 2:
        raise ValueError("give at least one --pool NAME=COUNT")
    return pools


if __name__ == "__main__":
    yaml.safe_dump_all(queues(parse_pools(sys.argv[1:])), sys.stdout, sort_keys=False)
