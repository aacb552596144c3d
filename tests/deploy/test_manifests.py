"""`deploy/` as it would be applied: by Kubernetes' own schemas, and by what it promises about rights, secrets and ways in."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.queues import parse_pools, queues
from lineage.config import from_jsonable
from lineage.jobs import Launch
from recipes.hardware import hardware
from resources.manifests import ClusterSettings, job_manifest

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
WORDS = {
    "PROJECT_ID": "a-project",
    "REGION": "us-central1",
    "REGISTRY": "us-docker.pkg.dev/a-project/marin",
    "GIT_SHA": "0123456789abcdef0123456789abcdef01234567",
    "ARTIFACT_BUCKET": "artifacts",
    "LOG_BUCKET": "logs",
    "PG_HOST": "10.1.2.3",
    "PG_CIDR": "10.1.2.3/32",
    "API_SERVER_CIDR": "10.0.0.2/32",
    "DOMAIN": "example.org",
}
OF_OTHERS = {"external-secrets.io/v1/ExternalSecret", "external-secrets.io/v1/ClusterSecretStore"}
"""Kinds of custom resources, whose schemas are not Kubernetes'."""
type Manifest = dict[str, Any]


def render(out: Path, words: dict[str, str]) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **words}
    command = ["sh", str(DEPLOY / "render.sh"), str(out)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rendered")
    result = render(out, WORDS)
    assert result.returncode == 0, result.stderr
    return out


@pytest.fixture(scope="module")
def manifests(rendered: Path) -> list[Manifest]:
    paths = sorted(path for path in rendered.glob("*.yaml") if path.name != "values.yaml")
    return [document for path in paths for document in yaml.safe_load_all(path.read_text())]


@pytest.fixture(scope="module")
def values(rendered: Path) -> Manifest:
    return yaml.safe_load((rendered / "values.yaml").read_text())


def schema_errors(manifest: Manifest) -> Iterator[str]:
    schemas = json.loads((Path(__file__).parent / "kube_schemas.json").read_text())
    schema = schemas["kinds"][f"{manifest['apiVersion']}/{manifest['kind']}"] | {"$defs": schemas["$defs"]}
    for error in jsonschema.Draft202012Validator(schema).iter_errors(manifest):
        yield f"{manifest['kind']} {manifest['metadata']['name']}: {error.json_path}: {error.message}"


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {manifest["metadata"]["name"]: manifest for manifest in manifests if manifest["kind"] == kind}


def test_every_manifest_keeps_its_schema(manifests: list[Manifest]) -> None:
    ours = [manifest for manifest in manifests if f"{manifest['apiVersion']}/{manifest['kind']}" not in OF_OTHERS]
    assert len(ours) >= 20
    assert [error for manifest in ours for error in schema_errors(manifest)] == []


def test_the_schemas_refuse_what_the_api_server_would(manifests: list[Manifest]) -> None:
    wrong = json.loads(json.dumps(of_kind(manifests, "Deployment")["marin-proxy"]))
    wrong["spec"]["template"]["spec"]["containers"][0]["ressources"] = {}
    wrong["spec"]["replicas"] = "two"
    errors = " ".join(schema_errors(wrong))
    assert "ressources" in errors
    assert "replicas" in errors


def test_a_word_without_a_value_is_named(tmp_path: Path) -> None:
    result = render(tmp_path, {name: value for name, value in WORDS.items() if name != "PG_CIDR"})
    assert result.returncode == 1
    assert "$PG_CIDR is not set" in result.stderr


def test_rights_are_the_least(manifests: list[Manifest]) -> None:
    """No wildcard, no secret, nothing cluster-wide, and every account's rights are those that its role lists here."""
    assert {m["kind"] for m in manifests} & {"ClusterRole", "ClusterRoleBinding"} == set()
    roles = of_kind(manifests, "Role")
    for role in roles.values():
        for rule in role["rules"]:
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"], role
            assert not {"secrets", "pods/exec", "serviceaccounts/token", "rolebindings"} & set(rule["resources"]), role
    bound = {s["name"]: b["roleRef"]["name"] for b in of_kind(manifests, "RoleBinding").values() for s in b["subjects"]}
    assert bound == {"marin-dagster": "start-runs", "marin-runs": "launch-jobs"}
    starter, launcher = (
        {name: set(rule["verbs"]) for rule in roles[role]["rules"] for name in rule["resources"]}
        for role in ("start-runs", "launch-jobs")
    )
    # Held to dagster-k8s' own requests by `test_image_environment.py`, to which this is the short version.
    starts = {"jobs": {"create", "list", "delete"}, "jobs/status": {"get"}}
    assert starter == starts | {"pods": {"list", "delete"}, "pods/log": {"get"}, "events": {"list"}}
    job = {"create", "get", "patch", "delete"}
    config_map, pods = {"create", "get"}, {"list"}
    assert launcher == {"jobs": job, "jobsets": job, "configmaps": config_map, "pods": pods, "pods/log": {"get"}}
    accounts = of_kind(manifests, "ServiceAccount")
    assert {name for name, account in accounts.items() if account.get("automountServiceAccountToken", True)} == bound.keys()


def test_jobs_run_as_the_images_user_with_no_rights_of_the_kernels(values: Manifest) -> None:
    launch = Launch("trainer", Path("job.json"), Path("log.txt"), "runs/tiny/checkpoint", "0123456789abcdef")
    settings = ClusterSettings("image@sha256:1", "marin")
    pod = job_manifest(launch, hardware("v5p-8"), settings, 1, "[]")["spec"]["template"]["spec"]
    assert pod["securityContext"] == values["dagsterWebserver"]["podSecurityContext"]
    assert pod["containers"][0]["securityContext"] == values["dagsterWebserver"]["securityContext"]
    assert f"USER {pod['securityContext']['runAsUser']}:" in (DEPLOY / "Dockerfile").read_text()
    scratch = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}["scratch"]
    assert f'MARIN_SCRATCH="{scratch}"' in (DEPLOY / "Dockerfile").read_text()
    limit = pod["containers"][0]["resources"]["limits"]["ephemeral-storage"]
    assert {"name": "scratch", "emptyDir": {"sizeLimit": limit}} in pod["volumes"]


def test_no_secret_has_its_text_here(manifests: list[Manifest]) -> None:
    assert of_kind(manifests, "Secret") == {}
    wanted = {item["secretKey"] for each in of_kind(manifests, "ExternalSecret").values() for item in each["spec"]["data"]}
    page = (DEPLOY.parent / "docs" / "deploy.md").read_text()
    keys = {item["remoteRef"]["key"] for each in of_kind(manifests, "ExternalSecret").values() for item in each["spec"]["data"]}
    assert {key for key in keys if f"gcloud secrets create {key} " not in page} == set(), "every one is made by a command"
    stores = {each["spec"]["secretStoreRef"]["name"] for each in of_kind(manifests, "ExternalSecret").values()}
    assert stores == of_kind(manifests, "ClusterSecretStore").keys()
    assert {"postgresql-password", "MARIN_PG_PASSWORD", "OAUTH2_PROXY_COOKIE_SECRET"} <= wanted
    environment = of_kind(manifests, "ConfigMap")["marin-environment"]["data"]
    assert not [name for name in environment if "PASSWORD" in name or "SECRET" in name or "TOKEN" in name]


def test_nothing_listens_in_public_and_only_the_proxy_reaches_the_webserver(
    manifests: list[Manifest], values: Manifest
) -> None:
    assert {service["spec"]["type"] for service in of_kind(manifests, "Service").values()} == {"ClusterIP"}
    assert values["ingress"]["enabled"] is False
    assert values["dagsterWebserver"]["service"]["type"] == "ClusterIP"
    policies = of_kind(manifests, "NetworkPolicy")
    assert policies["nothing"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    (way_in,) = policies["webserver"]["spec"]["ingress"]
    proxy = of_kind(manifests, "Deployment")["marin-proxy"]["spec"]["template"]
    assert way_in["from"] == [{"podSelector": {"matchLabels": proxy["metadata"]["labels"]}}]
    port = values["dagsterWebserver"]["service"]["port"]
    assert [each["port"] for each in way_in["ports"]] == [port]
    # "dagster.webserver.fullname" of the chart: the release's name, `helm upgrade --install marin`, and this one.
    service = f"marin-{values['dagsterWebserver'].get('nameOverride', 'webserver')}.marin.svc.cluster.local:{port}"
    assert upstream(proxy) == [f"--upstream=http://{service}"]


def upstream(pod: Manifest) -> list[str]:
    return [argument for argument in pod["spec"]["containers"][0]["args"] if argument.startswith("--upstream=")]


def test_what_the_chart_renders_is_what_the_instance_file_says(values: Manifest) -> None:
    """Two texts of one thing, because the chart writes its own instance: they may not drift apart."""
    instance = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
    launcher, charted = instance["run_launcher"]["config"], values["runLauncher"]["config"]["k8sRunLauncher"]
    pod, charted_pod = launcher["run_k8s_config"], charted["runK8sConfig"]
    assert charted_pod["podSpecConfig"]["nodeSelector"] == pod["pod_spec_config"]["node_selector"]
    assert charted_pod["podSpecConfig"]["serviceAccountName"] == launcher["service_account_name"]
    assert charted_pod["containerConfig"]["resources"] == pod["container_config"]["resources"]
    assert charted_pod["jobSpecConfig"]["backoffLimit"] == pod["job_spec_config"]["backoff_limit"] == 0
    assert values["postgresql"]["postgresqlScheme"] == instance["storage"]["postgres"]["postgres_db"]["scheme"]
    assert values["dagsterDaemon"]["runRetries"]["maxRetries"] == instance["run_retries"]["max_retries"] == 0
    coordinator = values["dagsterDaemon"]["runCoordinator"]["config"]["queuedRunCoordinator"]
    assert coordinator["maxConcurrentRuns"] == instance["concurrency"]["runs"]["max_concurrent_runs"]
    logs = values["computeLogManager"]["config"]["gcsComputeLogManager"]
    assert logs["prefix"] == instance["compute_logs"]["config"]["prefix"]


def test_the_chart_gives_no_rights_and_puts_nothing_of_the_code_location_on_runs(values: Manifest) -> None:
    """Both charts would make a role of their own, and a run would have the code location's account and memory."""
    subchart = values["dagster-user-deployments"]
    assert (values["rbacEnabled"], subchart["rbacEnabled"]) == (False, False)
    assert (values["serviceAccount"]["create"], subchart["serviceAccount"]["create"]) == (False, False)
    assert [each["includeConfigInLaunchedRuns"] for each in subchart["deployments"]] == [{"enabled": False}]
    told = values["runLauncher"]["config"]["k8sRunLauncher"]
    (location,) = subchart["deployments"]
    names = ("envConfigMaps", "volumes", "volumeMounts")
    assert [told[name] for name in names] == [location[name] for name in names], "so the launcher says them itself"


def test_runs_stay_on_nodes_that_are_not_taken_away(values: Manifest) -> None:
    on_demand = {"marin.community/pool": "on-demand"}
    parts = [values["dagsterWebserver"], values["dagsterDaemon"], *values["dagster-user-deployments"]["deployments"]]
    parts.append(values["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]["podSpecConfig"])
    assert all(part["nodeSelector"] == on_demand for part in parts)


def test_queues_are_those_of_the_hardware_table() -> None:
    made = list(queues(parse_pools(["--pool", "v5p-8=4", "--pool", "v4-512=1", "--pool", "cpu=16"])))
    flavors = of_kind(made, "ResourceFlavor")
    assert flavors["v4-512"]["spec"]["nodeLabels"] == dict(hardware("v4-512").node_selector)
    cluster = of_kind(made, "ClusterQueue")["marin-v4-512"]["spec"]["resourceGroups"][0]
    quota = {item["name"]: item["nominalQuota"] for item in cluster["flavors"][0]["resources"]}
    assert quota == {"google.com/tpu": "256", "ephemeral-storage": "3200Gi"}
    assert cluster["coveredResources"] == list(quota), "Kueue admits no workload that asks for more than is covered"
    cpu = of_kind(made, "ClusterQueue")["marin-cpu"]["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    assert {item["name"]: item["nominalQuota"] for item in cpu} == {
        "cpu": "32",
        "memory": "128Gi",
        "ephemeral-storage": "320Gi",
    }
    assert {q["spec"]["clusterQueue"] for q in of_kind(made, "LocalQueue").values()} == of_kind(made, "ClusterQueue").keys()


def test_the_launchers_read_the_clusters_settings(manifests: list[Manifest], values: Manifest) -> None:
    """Of the very class that they are read into; accounts, queues and priorities are those that the other files make."""
    told = of_kind(manifests, "ConfigMap")["marin-cluster"]["data"]["cluster.yaml"]
    settings = from_jsonable(ClusterSettings, yaml.safe_load(told), "cluster.yaml")
    assert settings.service_account in of_kind(manifests, "ServiceAccount")
    made = list(queues(dict.fromkeys(settings.queues, 1)))
    assert set(settings.queues.values()) == of_kind(made, "LocalQueue").keys()
    assert set(settings.priorities.values()) == of_kind(made, "WorkloadPriorityClass").keys()
    page = (DEPLOY.parent / "docs" / "deploy.md").read_text()
    pools = [line for line in page.splitlines() if "node-pools create" in line and "--tpu-topology" in line]
    assert pools and {"--spot" in line for line in pools} == {settings.spot}
    path = of_kind(manifests, "ConfigMap")["marin-environment"]["data"]["MARIN_CLUSTER"]
    (mount,) = values["runLauncher"]["config"]["k8sRunLauncher"]["volumeMounts"]
    assert path == f"{mount['mountPath']}/cluster.yaml"


@pytest.mark.parametrize("told", [[], ["--pool", "v5p-8"], ["--pool", "v5p-8=0"], ["--pool"]])
def test_odd_pools_are_refused(told: list[str]) -> None:
    with pytest.raises(ValueError, match="NAME=COUNT"):
        parse_pools(told)
