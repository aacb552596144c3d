"""A real Ray cluster as processes of this machine: a head without cores, and raylets of one core that can be killed."""

import importlib
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

STORE_BYTES = 256 << 20
PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
PATIENCE = {"RAY_agent_register_timeout_ms": "300000", "RAY_raylet_start_wait_time_s": "300"}
"""A loaded machine needs longer than Ray's 30 s to start a raylet."""


@dataclass(frozen=True)
class RayMachines:
    """A running cluster."""

    cluster: Any

    @property
    def address(self) -> str:
        """`host:port` of the head."""
        return self.cluster.address

    def add(self) -> Any:
        """Start a machine of one core and return it."""
        return self.cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES, **free_ports())

    def kill(self, machine: Any) -> None:
        """Kill a machine with its workers and what they hold."""
        self.cluster.remove_node(machine, allow_graceful=False)


def free_ports() -> dict[str, int]:
    """Return ports for a raylet. If it chose them itself it would wait for the files in which its agents name them, for 30 s
    only, and end (Ray 2.60)."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in PORTS]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return {name: one.getsockname()[1] for name, one in zip(PORTS, sockets, strict=True)}


@contextmanager
def ray_machines() -> Iterator[RayMachines]:
    """Yield a cluster whose processes import what this one imports; end it and the connection of this process."""
    before = dict(os.environ)
    os.environ |= PATIENCE | {"PYTHONPATH": os.pathsep.join(sys.path), "RAY_USAGE_STATS_ENABLED": "0"}
    head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False, **free_ports()}
    cluster = importlib.import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args=head)
    try:
        yield RayMachines(cluster)
    finally:
        importlib.import_module("ray").shutdown()
        cluster.shutdown()
        os.environ.clear()
        os.environ |= before
