"""Fixtures of the cluster tests: one control plane and kubelet for the session, one namespace for each test."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from control_plane import ControlPlane, RunningPlane, control_plane
from jobset_controller import JobSetController
from kubelet import Kubelet
from launches import IMAGE, ROOT
from pod_process import Image

from resources.cluster import Cluster

NAMESPACES = "/api/v1/namespaces"
ACCOUNTS = "/api/v1/namespaces/{namespace}/serviceaccounts"


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane | RunningPlane]:
    with control_plane() as running:
        yield running


@pytest.fixture
def mortal_plane(plane: ControlPlane | RunningPlane) -> ControlPlane:
    """Return a control plane of our own, whose API server may be killed."""
    if not isinstance(plane, ControlPlane):
        pytest.skip("MARIN_KUBECONFIG names a control plane that is not ours to kill")
    return plane


@pytest.fixture(scope="session")
def kubelet(plane: ControlPlane | RunningPlane) -> Iterator[Kubelet]:
    env = {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'lab'}",
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin",
        "JAX_COORDINATOR_BIND_ADDRESS": "{address}:8476",
    }
    images = {IMAGE: Image(ROOT, env), "marin:other": Image(ROOT, env)}
    cluster = plane.cluster("default")
    with Kubelet(cluster, images) as running:
        running.add_node("cpu-0")
        yield running
    cluster.close()


@pytest.fixture(scope="session")
def jobsets(kubelet: Kubelet) -> Iterator[JobSetController]:
    """Yield the controller of JobSets."""
    with JobSetController(kubelet.cluster) as running:
        yield running
        assert not running.errors


@pytest.fixture
def cluster(plane: ControlPlane | RunningPlane, kubelet: Kubelet, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Yield the API server as a namespace for this test, with the account that jobs run under."""
    name = request.node.name.replace("_", "-").replace("[", "-").rstrip("]")[:50].strip("-")
    here = replace(plane.cluster("default"), namespace=name)
    here.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    here.create(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "marin-job"}})
    yield here
    here.close()
