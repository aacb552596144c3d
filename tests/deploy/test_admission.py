"""Admission policies of `deploy/`, evaluated: what launchers create passes, and what their accounts must not create does not.

The expressions are CEL. The API server of `tests/lab` is older than these policies, so cel-python evaluates them here.
"""

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import celpy
import pytest
import yaml
from test_manifests import WORDS, render

from lineage.jobs.job import LaunchRequest
from recipes.hardware import hardware
from resources.cluster_settings import ClusterSettings, Mount
from resources.manifests import indexed_job_manifest, job_file, job_manifest, jobset_manifest

type Manifest = dict[str, Any]
RUNS, DAGSTER = (f"system:serviceaccount:marin:{name}" for name in ("marin-runs", "marin-dagster"))
IMAGE = f"{WORDS['REGISTRY']}/marin-lab:{WORDS['GIT_SHA']}@{WORDS['IMAGE_DIGEST']}"
SETTINGS = ClusterSettings(
    IMAGE,
    "marin",
    mounts=(Mount("/etc/gcs", secret="gcs-credentials"),),
    secrets=("bucket",),
    tracker_secrets=("marin-trackers",),
    tcpxo_image=f"{WORDS['REGISTRY']}/tcpxo@sha256:{'3' * 64}",
)


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Manifest]:
    out = tmp_path_factory.mktemp("rendered")
    assert render(out, WORDS).returncode == 0
    documents = list(yaml.safe_load_all((out / "admission.yaml").read_text()))
    by_name = {each["metadata"]["name"]: each["spec"] for each in documents if each["kind"] == "ValidatingAdmissionPolicy"}
    bound = {each["spec"]["policyName"]: each["spec"]["validationActions"] for each in documents if "Binding" in each["kind"]}
    assert bound == {name: ["Deny"] for name in by_name}
    assert {each["failurePolicy"] for each in by_name.values()} == {"Fail"}
    return by_name


def value_of(expression: str, context: dict[str, Any]) -> Any:
    environment = celpy.Environment()
    return environment.program(environment.compile(expression)).evaluate(context)


def refusals(policy: Manifest, user: str, made: Manifest, before: Manifest | None = None) -> list[str]:
    """Return the messages of the policy's rules that the object breaks."""
    request = {"userInfo": {"username": user}, "operation": "CREATE" if before is None else "UPDATE"}
    context = {
        name: celpy.json_to_cel(each) for name, each in {"object": made, "oldObject": before, "request": request}.items()
    }
    if not all(value_of(each["expression"], context) for each in policy["matchConditions"]):
        return []
    variables = celpy.json_to_cel({})
    for each in policy.get("variables", []):
        variables[celpy.celtypes.StringType(each["name"])] = value_of(each["expression"], context | {"variables": variables})
    whole_context = context | {"variables": variables}
    return [each["message"] for each in policy["validations"] if not value_of(each["expression"], whole_context)]


def launch_of(**change: Any) -> LaunchRequest:
    launch = LaunchRequest("trainer", Path("job.json"), Path("log.txt"), "runs/tiny/checkpoint", "0123456789abcdef")
    return replace(launch, **change)


def jobs() -> list[Manifest]:
    tracked = launch_of(arguments=("MARIN_TRACKERS=wandb",))
    return [
        *(job_manifest(tracked, hardware(name), SETTINGS, 1, "[]") for name in ("cpu", "v5p-8", "h100x8")),
        *(jobset_manifest(launch_of(), hardware(name), SETTINGS, 1, "[]") for name in ("v4-512", "2xh100x8", "2xa3mega")),
        indexed_job_manifest(launch_of(indices=8), hardware("cpu"), SETTINGS, 1, "[]"),
    ]


def pod_of(job: Manifest) -> Manifest:
    spec = job["spec"]
    return (spec["replicatedJobs"][0]["template"]["spec"] if job["kind"] == "JobSet" else spec)["template"]["spec"]


def run_job() -> Manifest:
    """What dagster-k8s' K8sRunLauncher makes by `deploy/dagster.yaml`: the fields that the policy looks at."""
    container = {
        "name": "dagster",
        "image": IMAGE,
        "envFrom": [{"configMapRef": {"name": "marin-environment"}}, {"secretRef": {"name": "marin-postgresql"}}],
        "env": [
            {
                "name": "DAGSTER_PG_PASSWORD",
                "valueFrom": {"secretKeyRef": {"name": "marin-postgresql", "key": "postgresql-password"}},
            }
        ],
    }
    pod = {"serviceAccountName": "marin-runs", "automountServiceAccountToken": True, "containers": [container]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "run"}, "spec": {"template": {"spec": pod}}}


def test_what_the_lab_launches_is_let_in(policies: dict[str, Manifest]) -> None:
    for job in jobs():
        assert refusals(policies["marin-jobs"], RUNS, job) == []
    assert refusals(policies["marin-jobs"], DAGSTER, run_job()) == []


def test_what_controllers_and_people_create_is_not_looked_at(policies: dict[str, Manifest]) -> None:
    job = jobs()[0]
    pod_of(job)["serviceAccountName"] = "default"
    assert refusals(policies["marin-jobs"], "system:serviceaccount:kube-system:job-controller", job) == []


def _account(pod: Manifest) -> None:
    pod["serviceAccountName"] = "marin-dagster"


def _no_account(pod: Manifest) -> None:
    del pod["serviceAccountName"]


def _image(pod: Manifest) -> None:
    pod["containers"][0]["image"] = "docker.io/somebody/marin-lab:1"


def _image_with_our_prefix(pod: Manifest) -> None:
    pod["containers"][0]["image"] = f"{WORDS['REGISTRY']}/marin-lab-of-somebody:1"


def _second_container(pod: Manifest) -> None:
    pod["containers"].append({"name": "other", "image": "docker.io/somebody/miner:1"})


def _init_container(pod: Manifest) -> None:
    pod["initContainers"] = [{"name": "other", "image": "docker.io/somebody/miner:1"}]


def _token(pod: Manifest) -> None:
    pod["automountServiceAccountToken"] = True


def _token_by_default(pod: Manifest) -> None:
    del pod["automountServiceAccountToken"]


def _projected_token(pod: Manifest) -> None:
    pod["volumes"].append({"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}})


def _mounted_secret(pod: Manifest) -> None:
    pod["volumes"].append({"name": "password", "secret": {"secretName": "marin-postgresql"}})


def _secret_as_environment(pod: Manifest) -> None:
    pod["containers"][0]["envFrom"].append({"secretRef": {"name": "marin-postgresql"}})


def _secret_as_variable(pod: Manifest) -> None:
    key = {"name": "marin-proxy", "key": "OAUTH2_PROXY_COOKIE_SECRET"}
    pod["containers"][0]["env"].append({"name": "P", "valueFrom": {"secretKeyRef": key}})


WAYS: dict[Callable[[Manifest], None], str] = {
    _account: "have the account marin-runs, pods of jobs marin-job",
    _no_account: "have the account marin-runs, pods of jobs marin-job",
    _image: "containers run the lab's image",
    _image_with_our_prefix: "containers run the lab's image",
    _second_container: "containers run the lab's image",
    _init_container: "an image of the lab's registry",
    _token: "no token of their account",
    _token_by_default: "no token of their account",
    _projected_token: "mount no token, and no secret",
    _mounted_secret: "mount no token, and no secret",
    _secret_as_environment: r"in their environment \(envFrom\)",
    _secret_as_variable: r"in their environment \(env\)",
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_run_worker_cannot_start_a_pod_that_is_more_than_a_job(
    policies: dict[str, Manifest], way: Callable[[Manifest], None]
) -> None:
    for job in jobs():
        wrong = copy.deepcopy(job)
        way(pod_of(wrong))
        messages = refusals(policies["marin-jobs"], RUNS, wrong)
        assert len(messages) == 1 and re.search(WAYS[way], messages[0]), (job["kind"], messages)


def test_an_account_of_dagsters_starts_runs_only(policies: dict[str, Manifest]) -> None:
    assert refusals(policies["marin-jobs"], DAGSTER, jobs()[0]) != []
    assert refusals(policies["marin-jobs"], RUNS, run_job()) != [], "nor does a run worker start a run"
    stolen = run_job()
    pod_of(stolen)["containers"][0]["envFrom"].append({"secretRef": {"name": "marin-proxy"}})
    assert refusals(policies["marin-jobs"], DAGSTER, stolen) != []


def test_a_run_worker_makes_and_gives_away_job_files_and_changes_no_settings(
    policies: dict[str, Manifest], tmp_path: Path
) -> None:
    (tmp_path / "job.json").write_text("{}")
    made = job_file(launch_of(job_path=tmp_path / "job.json"), hardware("cpu"), SETTINGS, 1)
    policy = policies["marin-job-files"]
    assert refusals(policy, RUNS, made) == []
    assert refusals(policy, RUNS, made | {"metadata": made["metadata"] | {"ownerReferences": []}}, made) == []
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "marin-cluster"}, "data": {"cluster.yaml": "x"}}
    assert len(refusals(policy, RUNS, settings)) == 1
    assert len(refusals(policy, RUNS, settings, settings)) == 2
    disguised = settings | {"immutable": True, "metadata": {"name": "marin-cluster", "labels": made["metadata"]["labels"]}}
    assert refusals(policy, RUNS, disguised, settings) == ["the lab's accounts change job files only"]
