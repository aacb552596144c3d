"""`deploy/ray/cluster.yaml`: Kubernetes' schemas, and what its pods may do. Nobody has applied it to a cluster."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = json.loads((Path(__file__).parent / "kube_schemas.json").read_text())
POD_TEMPLATE = next(name for name in SCHEMAS["$defs"] if name.endswith("PodTemplateSpec"))
type Manifest = dict[str, Any]


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
    own, lab = policy["ingress"][0]["from"]
    assert own == {"podSelector": {}}
    assert lab["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "marin"}


def test_every_machine_has_the_version_of_ray_that_the_lab_declares(manifests: dict[str, Manifest]) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["ray"]
    assert declared == [f"ray=={manifests['RayCluster']['spec']['rayVersion']}"]
