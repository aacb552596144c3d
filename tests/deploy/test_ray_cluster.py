"""`deploy/ray/cluster.yaml`: Kubernetes' schemas, and what its pods may do. Nobody has applied it to a cluster."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from lineage.tables.shuffle import LARGEST_BYTES, LARGEST_TASK_BYTES

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = json.loads((Path(__file__).parent / "kube_schemas.json").read_text())
POD_TEMPLATE = next(name for name in SCHEMAS["$defs"] if name.endswith("PodTemplateSpec"))
CLIENT_PORT = 10001
SPOT = ("cloud.google.com/gke-spot", "true")
type Manifest = dict[str, Any]


def fields(required: str, **known: Manifest) -> Manifest:
    """Schema of an object with no other fields than these."""
    return {"type": "object", "properties": known, "required": required.split(), "additionalProperties": False}


FLAG, TEXT, COUNT, ANY = {"type": "boolean"}, {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "object"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
GROUP = {"rayStartParams": TEXTS, "template": ANY}
RAY_CLUSTER = fields(
    "apiVersion kind metadata spec",
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayCluster"},
    metadata=ANY,
    spec=fields(
        "headGroupSpec",
        rayVersion=TEXT,
        enableInTreeAutoscaling=FLAG,
        autoscalerOptions=fields(
            "",
            idleTimeoutSeconds=COUNT,
            upscalingMode={"enum": ["Default", "Aggressive", "Conservative"]},
            securityContext=ANY,
        ),
        headGroupSpec=fields("rayStartParams template", **GROUP),
        workerGroupSpecs={
            "type": "array",
            "items": fields(
                "groupName minReplicas maxReplicas rayStartParams template",
                groupName=TEXT,
                minReplicas=COUNT,
                replicas=COUNT,
                maxReplicas=COUNT,
                **GROUP,
            ),
        },
    ),
)
"""The fields of a RayCluster that we use, written by hand after KubeRay's types of ray.io/v1. Its CRD, which knows all of them,
is in no package registry here. Templates are checked by Kubernetes' own schema.
"""


@pytest.fixture(scope="module")
def manifests() -> dict[str, Manifest]:
    """Kind -> manifest, with a value for every word."""
    text = (ROOT / "deploy/ray/cluster.yaml").read_text()
    text = re.sub(r"@([A-Z_]+)@", lambda word: word[1].lower(), text)
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def templates(manifests: dict[str, Manifest]) -> dict[str, Manifest]:
    spec = manifests["RayCluster"]["spec"]
    return {"head": spec["headGroupSpec"]["template"]} | {g["groupName"]: g["template"] for g in spec["workerGroupSpecs"]}


def errors(schema: Manifest, instance: Manifest) -> list[str]:
    return [e.message for e in jsonschema.Draft202012Validator(schema | {"$defs": SCHEMAS["$defs"]}).iter_errors(instance)]


def test_manifests_and_pods_keep_their_schemas(manifests: dict[str, Manifest], templates: dict[str, Manifest]) -> None:
    known = [m for m in manifests.values() if f"{m['apiVersion']}/{m['kind']}" in SCHEMAS["kinds"]]
    assert {"Namespace", "ServiceAccount", "NetworkPolicy"} <= {manifest["kind"] for manifest in known}
    for manifest in known:
        assert errors(SCHEMAS["kinds"][f"{manifest['apiVersion']}/{manifest['kind']}"], manifest) == []
    for template in templates.values():
        assert errors(SCHEMAS["$defs"][POD_TEMPLATE], template) == []


def test_the_head_runs_no_task_and_pods_of_tasks_have_no_token(
    manifests: dict[str, Manifest], templates: dict[str, Manifest]
) -> None:
    assert manifests["RayCluster"]["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert templates["spot"]["spec"]["automountServiceAccountToken"] is False
    for template in templates.values():
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] and "hostNetwork" not in pod
        assert not any(container["securityContext"]["allowPrivilegeEscalation"] for container in pod["containers"])


def test_only_the_cluster_and_run_workers_reach_it(manifests: dict[str, Manifest]) -> None:
    policy = manifests["NetworkPolicy"]["spec"]
    assert policy["podSelector"] == {} and policy["policyTypes"] == ["Ingress"]
    own, lab = policy["ingress"]
    assert own == {"from": [{"podSelector": {}}]}
    assert lab["from"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "marin"}
    assert lab["ports"] == [{"protocol": "TCP", "port": CLIENT_PORT}]


def test_run_workers_may_go_where_the_cluster_lets_them_in(manifests: dict[str, Manifest]) -> None:
    policies = yaml.safe_load_all((ROOT / "deploy/kubernetes/network.yaml").read_text().replace("@", ""))
    (way,) = [policy["spec"] for policy in policies if policy["metadata"]["name"] == "ray-of-runs"]
    (lab,) = manifests["NetworkPolicy"]["spec"]["ingress"][1]["from"]
    assert way["podSelector"] == lab["podSelector"]
    assert way["egress"][0]["ports"] == manifests["NetworkPolicy"]["spec"]["ingress"][1]["ports"]
    to = way["egress"][0]["to"][0]["namespaceSelector"]["matchLabels"]
    assert to == {"kubernetes.io/metadata.name": manifests["RayCluster"]["metadata"]["namespace"]}


def test_the_cluster_keeps_the_fields_of_its_kind(manifests: dict[str, Manifest]) -> None:
    cluster = manifests["RayCluster"]
    assert errors(RAY_CLUSTER, cluster) == []
    wrong = json.loads(json.dumps(cluster))
    wrong["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 0
    wrong["spec"]["workerGroupSpecs"][0]["maxReplica"] = 9
    del wrong["spec"]["workerGroupSpecs"][0]["maxReplicas"]
    found = " ".join(errors(RAY_CLUSTER, wrong))
    assert all(
        word in found for word in ("'maxReplica' was unexpected", "'maxReplicas' is a required", "0 is not of type 'string'")
    )


def test_the_autoscaler_adds_spot_nodes_and_removes_all_of_them(manifests: dict[str, Manifest]) -> None:
    spec = manifests["RayCluster"]["spec"]
    assert spec["enableInTreeAutoscaling"] is True
    assert spec["autoscalerOptions"]["idleTimeoutSeconds"] > 0
    assert spec["autoscalerOptions"]["securityContext"]["allowPrivilegeEscalation"] is False, "the namespace is restricted"
    for group in spec["workerGroupSpecs"]:
        assert group["minReplicas"] == group["replicas"] == 0 < group["maxReplicas"]
        pod, (label, value) = group["template"]["spec"], SPOT
        assert pod["nodeSelector"] == {label: value}
        assert pod["tolerations"] == [{"key": label, "operator": "Equal", "value": value, "effect": "NoSchedule"}]
        assert pod["terminationGracePeriodSeconds"] < 30, "a spot node has 30 s"
    assert "nodeSelector" not in spec["headGroupSpec"]["template"]["spec"], "the head does not stand on a spot node"


def test_the_tasks_of_a_pod_fit_its_memory(manifests: dict[str, Manifest]) -> None:
    """A task takes six times its bytes at most, a range fifteen times; Ray sees as many cores as there is room for tasks."""
    task = max(6 * LARGEST_TASK_BYTES, 15 * LARGEST_BYTES) / 2**30
    for group in manifests["RayCluster"]["spec"]["workerGroupSpecs"]:
        start, (container,) = group["rayStartParams"], group["template"]["spec"]["containers"]
        memory, tasks = gibibytes(container["resources"]["limits"]["memory"]), int(start["num-cpus"])
        assert container["resources"]["requests"]["cpu"] == start["num-cpus"]
        assert tasks * task + int(start["object-store-memory"]) / 2**30 <= memory
        (spill,) = [each for each in group["template"]["spec"]["volumes"] if each["name"] == "spill"]
        size = gibibytes(container["resources"]["limits"]["ephemeral-storage"])
        assert gibibytes(spill["emptyDir"]["sizeLimit"]) < size


def test_probes_are_the_clusters_own(manifests: dict[str, Manifest]) -> None:
    """KubeRay adds its own where a container has none: they ask by wget, which the image does not have."""
    spec = manifests["RayCluster"]["spec"]
    for group, port in ((spec["headGroupSpec"], 6379), *((each, 6380) for each in spec["workerGroupSpecs"])):
        (container,) = group["template"]["spec"]["containers"]
        assert container["readinessProbe"]["tcpSocket"] == container["livenessProbe"]["tcpSocket"] == {"port": port}
        assert group["rayStartParams"].get("node-manager-port", "6379") == str(port)


def test_pods_run_as_the_images_user(templates: dict[str, Manifest]) -> None:
    user = re.findall(r"^USER (\d+):", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)[-1]
    for template in templates.values():
        assert str(template["spec"]["securityContext"]["runAsUser"]) == user


def gibibytes(quantity: str) -> int:
    """GiB of a quantity that is written in them."""
    assert quantity.endswith("Gi")
    return int(quantity.removesuffix("Gi"))


def test_every_machine_has_the_version_of_ray_that_the_lab_declares(manifests: dict[str, Manifest]) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["ray"]
    assert declared == [f"ray=={manifests['RayCluster']['spec']['rayVersion']}"]
