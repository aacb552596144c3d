"""Manifests of `deploy/` against Kubernetes' schemas, and what they grant: rights, secrets, network access."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.queues import parse_pools, queues
from lineage.config import from_jsonable
from lineage.jobs.job import LaunchRequest
from recipes.hardware import hardware
from resources.cluster_settings import ClusterSettings
from resources.manifests import indexed_job_manifest, job_manifest

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
    "WEB_URL": "http://localhost:4180",
    "VIEWER_URL": "http://localhost:4181",
    "OPERATORS": "ada@example.org,bob@example.org",
    "IMAGE_DIGEST": f"sha256:{'1' * 64}",
    "PROXY_IMAGE": f"quay.io/oauth2-proxy/oauth2-proxy:v7.12.0@sha256:{'2' * 64}",
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


@pytest.mark.parametrize("change", [{"IMAGE_DIGEST": "latest"}, {"PROXY_IMAGE": "quay.io/oauth2-proxy/oauth2-proxy:v7"}])
def test_an_image_by_tag_alone_is_refused(tmp_path: Path, change: dict[str, str]) -> None:
    result = render(tmp_path, WORDS | change)
    assert result.returncode == 1 and not list(tmp_path.iterdir())
    assert "give sha256:... and NAME@sha256:..." in result.stderr


def test_every_image_is_by_digest(manifests: list[Manifest], values: Manifest) -> None:
    image = f"{WORDS['REGISTRY']}/marin-lab:{WORDS['GIT_SHA']}@{WORDS['IMAGE_DIGEST']}"
    charted = values["dagsterDaemon"]["image"]
    assert f"{charted['repository']}:{charted['tag']}" == image
    maps = of_kind(manifests, "ConfigMap")
    settings = yaml.safe_load(maps["marin-cluster"]["data"]["cluster.yaml"])
    assert settings["image"] == maps["marin-environment"]["data"]["MARIN_IMAGE"] == image
    for proxy in of_kind(manifests, "Deployment").values():
        assert [each["image"] for each in proxy["spec"]["template"]["spec"]["containers"]] == [WORDS["PROXY_IMAGE"]]


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
    reads = {"pods": {"list"}, "pods/log": {"get"}, "events": {"list"}, "workloads": {"list"}}
    assert launcher == {"jobs": job, "jobsets": job, "configmaps": {"create", "get", "patch"}} | reads
    accounts = of_kind(manifests, "ServiceAccount")
    assert {name for name, account in accounts.items() if account.get("automountServiceAccountToken", True)} == bound.keys()


def test_jobs_run_as_the_images_user_with_no_rights_of_the_kernels(values: Manifest) -> None:
    launch = LaunchRequest("trainer", Path("job.json"), Path("log.txt"), "runs/tiny/checkpoint", "0123456789abcdef")
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
    assert flag_of(proxy, "upstream") == f"http://{service}"


def test_only_operators_reach_the_webserver_that_starts_runs(manifests: list[Manifest], values: Manifest) -> None:
    """oauth2-proxy accepts users who are in the file *or* of the domain, so the operators' proxy may name no domain."""
    deployments = {name: each["spec"]["template"] for name, each in of_kind(manifests, "Deployment").items()}
    operators, viewers = deployments["marin-proxy"], deployments["marin-viewer-proxy"]
    assert (flag_of(operators, "email-domain"), flag_of(viewers, "email-domain")) == ("", WORDS["DOMAIN"])
    file = flag_of(operators, "authenticated-emails-file")
    (mount,) = operators["spec"]["containers"][0]["volumeMounts"]
    assert file == f"{mount['mountPath']}/emails" and flag_of(viewers, "authenticated-emails-file") == ""
    emails = of_kind(manifests, "ConfigMap")["marin-operators"]["data"]["emails"]
    assert emails.split("\n") == WORDS["OPERATORS"].split(",")
    assert values["dagsterWebserver"]["enableReadOnly"] is True
    # "dagster.webserver.fullname" and "componentName" of the chart add -read-only.
    assert flag_of(viewers, "upstream").startswith("http://marin-dagster-webserver-read-only.marin.svc")
    policies = of_kind(manifests, "NetworkPolicy")
    for component, proxy in {"dagster-webserver": "marin-proxy", "dagster-webserver-read-only": "marin-viewer-proxy"}.items():
        labels = {"component": component, **values["dagsterWebserver"]["labels"]}
        ways = [
            rule
            for p in policies.values()
            if matches(p["spec"]["podSelector"], labels)
            for rule in p["spec"].get("ingress", [])
        ]
        to_the_ui = [rule["from"] for rule in ways if 8080 in [port["port"] for port in rule["ports"]]]
        assert to_the_ui == [[{"podSelector": {"matchLabels": {"app.kubernetes.io/name": proxy}}}]]
    assert flag_of(viewers, "cookie-name") != flag_of(operators, "cookie-name"), "cookies of localhost go to all ports"


def test_the_quota_has_room_for_500_runs_a_day(manifests: list[Manifest], values: Manifest) -> None:
    """A run is a Job, and launches up to ten; all stay for a day, with their job files."""
    hard = of_kind(manifests, "ResourceQuota")["marin-objects"]["spec"]["hard"]
    text = of_kind(manifests, "ConfigMap")["marin-cluster"]["data"]["cluster.yaml"]
    kept = from_jsonable(ClusterSettings, yaml.safe_load(text), "cluster.yaml").keep_finished_seconds
    days = (
        max(kept, values["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]["jobSpecConfig"]["ttlSecondsAfterFinished"])
        / 86_400
    )
    assert int(hard["count/jobs.batch"]) >= 500 * 11 * days
    assert int(hard["count/configmaps"]) >= 500 * 10 * days
    assert int(hard["count/services"]) >= 500 * days


def test_a_person_comes_back_from_the_sign_in_to_where_the_proxy_is(manifests: list[Manifest]) -> None:
    """With Secure cookies oauth2-proxy assumes https for its own address unless it is configured; a port-forward is http."""
    proxy = of_kind(manifests, "Deployment")["marin-proxy"]["spec"]["template"]
    back = flag_of(proxy, "redirect-url")
    assert (flag_of(proxy, "cookie-secure"), back) == ("true", f"{WORDS['WEB_URL']}/oauth2/callback")
    page = (DEPLOY.parent / "docs" / "deploy.md").read_text()
    assert f"export WEB_URL={WORDS['WEB_URL']}" in page and "$WEB_URL/oauth2/callback" in page, "Google must know it, too"
    forwarded = re.search(r"port-forward service/marin-proxy (\d+):80", page)
    assert forwarded is not None and WORDS["WEB_URL"].endswith(f":{forwarded[1]}")


NAMES = {"kube-dns": ({"k8s-app": "kube-dns"}, 53), "node-local-dns": ({"k8s-app": "node-local-dns"}, 53)}
ADDRESSES = {
    "NodeLocal DNSCache": ("169.254.20.10", 53),
    "Cloud DNS": ("169.254.169.254", 53),
    "metadata": ("169.254.169.254", 80),
    "workload identity": ("169.254.169.252", 988),
    "bucket": ("199.36.153.9", 443),
    "database": (WORDS["PG_HOST"], 5432),
    "API server": (WORDS["API_SERVER_CIDR"].removesuffix("/32"), 443),
    "internet": ("151.101.0.223", 443),
    "somebody else's database": ("10.9.9.9", 5432),
    "kubelet": ("10.128.0.7", 10250),
}
EVERYBODY = {*NAMES, "NodeLocal DNSCache", "Cloud DNS", "metadata", "workload identity", "bucket"}


def matches(selector: Manifest, labels: dict[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    assert all(each["operator"] == "Exists" for each in selector.get("matchExpressions", []))
    keys = {each["key"] for each in selector.get("matchExpressions", [])}
    return selector.get("matchLabels", {}).items() <= labels.items() and keys <= labels.keys()


def is_peer(peer: Manifest, address: str, labels: dict[str, str] | None) -> bool:
    """Whether a rule's peer is an address, or a pod of these labels (its namespace is taken for granted)."""
    if "ipBlock" not in peer:
        return labels is not None and matches(peer["podSelector"], labels)
    block, here = peer["ipBlock"], ip_address(address)
    return here in ip_network(block["cidr"]) and not any(here in ip_network(each) for each in block.get("except", []))


def reached(policies: dict[str, Manifest], pod: dict[str, str]) -> set[str]:
    """Return which of the places above a pod with some labels may reach."""
    rules = [
        rule
        for policy in policies.values()
        if "Egress" in policy["spec"]["policyTypes"] and matches(policy["spec"]["podSelector"], pod)
        for rule in policy["spec"].get("egress", [])
    ]
    places = {name: ("192.0.2.1", labels, port) for name, (labels, port) in NAMES.items()}
    places |= {name: (address, None, port) for name, (address, port) in ADDRESSES.items()}
    return {
        name
        for name, (address, labels, port) in places.items()
        for rule in rules
        if port in [each["port"] for each in rule.get("ports", [{"port": port}])]
        if any(is_peer(peer, address, labels) for peer in rule["to"])
    }


def test_every_pod_reaches_what_it_needs_and_nothing_else(manifests: list[Manifest], values: Manifest) -> None:
    """Names and the bucket: all. The database and the API server: what orchestrates. The internet: what downloads."""
    policies = of_kind(manifests, "NetworkPolicy")
    launch = LaunchRequest("trainer", Path("job.json"), Path("log.txt"), "runs/tiny/checkpoint", "0123456789abcdef")
    settings, cpu = ClusterSettings("image@sha256:1", "marin"), hardware("cpu")
    training = job_manifest(launch, cpu, settings, 1, "[]")["spec"]["template"]["metadata"]["labels"]
    runner = indexed_job_manifest(replace(launch, indices=8), cpu, settings, 1, "[]")["spec"]["template"]["metadata"]["labels"]
    worker = {"dagster/run-id": "r", "app.kubernetes.io/part-of": "dagster"}
    (location,) = values["dagster-user-deployments"]["deployments"]
    control = {"database", "API server"}
    assert reached(policies, training) == EVERYBODY
    assert reached(policies, runner) == EVERYBODY | {"internet"}
    tracked = replace(launch, arguments=("MARIN_TRACKERS=wandb",))
    tracking = job_manifest(tracked, cpu, settings, 1, "[]")["spec"]["template"]["metadata"]["labels"]
    assert reached(policies, tracking) == EVERYBODY | {"internet"}, "W&B"
    assert reached(policies, worker) == EVERYBODY | control | {"internet"}
    for part in (values["dagsterWebserver"], values["dagsterDaemon"], location):
        assert reached(policies, part["labels"]) == EVERYBODY | control
    proxy = of_kind(manifests, "Deployment")["marin-proxy"]["spec"]["template"]["metadata"]["labels"]
    assert reached(policies, proxy) == EVERYBODY | {"internet"}, "Google's sign-in"


def flag_of(pod: Manifest, flag: str) -> str:
    """The value of a flag of its container, or "" without one."""
    arguments = dict(argument.removeprefix("--").split("=", 1) for argument in pod["spec"]["containers"][0]["args"])
    return arguments.get(flag, "")


def test_what_the_chart_renders_is_what_the_instance_file_says(values: Manifest) -> None:
    """Two texts of one thing, because the chart writes its own instance: they may not drift apart."""
    instance = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
    launcher, charted = instance["run_launcher"]["config"], values["runLauncher"]["config"]["k8sRunLauncher"]
    pod, charted_pod = launcher["run_k8s_config"], charted["runK8sConfig"]
    assert charted_pod["podSpecConfig"]["nodeSelector"] == pod["pod_spec_config"]["node_selector"]
    assert charted_pod["podTemplateSpecMetadata"] == pod["pod_template_spec_metadata"]
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
    launcher = values["runLauncher"]["config"]["k8sRunLauncher"]
    (location,) = subchart["deployments"]
    names = ("envConfigMaps", "volumes", "volumeMounts")
    assert [launcher[name] for name in names] == [location[name] for name in names], "so the launcher says them itself"


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
    hosts = {"google.com/tpu": "256", "ephemeral-storage": "6400Gi"}
    assert quota == hosts | {"cpu": str(64 * 192), "memory": f"{64 * 302}Gi"}
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
    text = of_kind(manifests, "ConfigMap")["marin-cluster"]["data"]["cluster.yaml"]
    settings = from_jsonable(ClusterSettings, yaml.safe_load(text), "cluster.yaml")
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


def test_the_page_says_every_word_and_its_commands_are_shell() -> None:
    """What a stranger copies from it, block by block, into one shell."""
    page = (DEPLOY.parent / "docs" / "deploy.md").read_text()
    shell = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL))
    assert subprocess.run(["bash", "-n"], input=shell, text=True, capture_output=True, check=False).stderr == ""
    before, _, _ = shell.partition("sh deploy/render.sh")
    assert {
        word for word in WORDS if not re.search(rf"^\s*export .*\b{word}=|&& export {word}=", before, re.MULTILINE)
    } == set()
    used = set(re.findall(r"\$\{?([A-Z_]{3,})", shell)) - {"HOME", "PWD"}
    assert {word for word in used if not re.search(rf"export .*\b{word}=", shell)} == set(), "every variable is given"
    for pool in (line for line in shell.splitlines() if "node-pools create" in line and "--tpu-topology" in line):
        assert "--node-locations=$TPU_ZONE" in pool, "TPUs are in one zone of a region"


def test_every_account_may_do_with_each_bucket_what_its_processes_do() -> None:
    """A writer of a bucket also requests the bucket itself: the region guard asks for its region, dagster-gcp whether it
    exists, in every process that has the instance (seen in `test_image_environment.py`). objectUser lacks storage.buckets.get.
    """
    page = (DEPLOY.parent / "docs" / "deploy.md").read_text()
    accounts: dict[str, set[str]] = {}
    for names, body in re.findall(r"^for account in ([a-z -]+); do\n(.*?)^done", page, re.MULTILINE | re.DOTALL):
        for bucket, role in re.findall(r"gs://\$(\w+) --role=roles/storage\.(\w+)", body):
            for name in names.split():
                accounts.setdefault(name, set()).add(f"{bucket} {role}")
    lone = re.findall(
        r"^gcloud storage buckets add-iam.*gs://\$(\w+) --role=roles/storage\.(\w+) .*:([a-z-]+)@", page, re.MULTILINE
    )
    for bucket, role, name in lone:
        accounts.setdefault(name, set()).add(f"{bucket} {role}")
    artifacts, logs = ({f"{bucket} objectUser", f"{bucket} legacyBucketReader"} for bucket in ("ARTIFACT_BUCKET", "LOG_BUCKET"))
    assert accounts == {
        "marin-dagster": {"ARTIFACT_BUCKET objectViewer"} | logs,
        "marin-runs": artifacts | logs,
        "marin-job": artifacts,
    }


@pytest.mark.parametrize("pools", [[], ["--pool", "v5p-8"], ["--pool", "v5p-8=0"], ["--pool"]])
def test_odd_pools_are_refused(pools: list[str]) -> None:
    with pytest.raises(ValueError, match="NAME=COUNT"):
        parse_pools(pools)
