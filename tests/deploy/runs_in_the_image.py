"""Run by `test_image_environment.py` with the image's packages: a run as Dagster's chart has it from our values.

The chart itself cannot be rendered here (no Helm), so what its templates make of the values is written out below, from
dagster-io/dagster: `helm/dagster/templates/helpers/instance/_run-launcher.tpl` at a07d616f and
`helm/dagster/charts/dagster-user-deployments/templates/helpers/_helpers.tpl` at dba87afb. The rest is dagster-k8s itself, over
clients that allow what a role allows.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import kubernetes
import yaml
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.launcher import LaunchRunContext
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._core.storage.dagster_run import DagsterRun
from dagster_k8s import K8sRunLauncher

VERBS = {"create": "create", "read": "get", "list": "list", "delete": "delete", "patch": "patch", "replace": "update"}
type Values = Mapping[str, Any]


class Server:
    """Kubernetes' clients for batch and core: what a role does not allow is forbidden, everything else is noted."""

    def __init__(self, rules: list[dict[str, list[str]]]):
        self.allowed = {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}
        self.requests: list[tuple[str, str]] = []
        self.jobs: list[kubernetes.client.V1Job] = []

    def __getattr__(self, name: str) -> Any:
        match = re.fullmatch(r"([a-z]+)_namespaced_([a-z]+)(?:_([a-z]+))?", name)
        if match is None:
            raise AttributeError(name)
        resource = f"{match[2]}s" + (f"/{match[3]}" if match[3] else "")

        def ask(*given: object, **named: Any) -> object:
            self.requests.append((VERBS[match[1]], resource))
            if self.requests[-1] not in self.allowed:
                raise kubernetes.client.rest.ApiException(403, f"{self.requests[-1]} is forbidden")
            if name == "create_namespaced_job":
                self.jobs.append(named["body"])
            return answer(resource, match[1] == "list")

        return ask


def answer(resource: str, several: bool) -> object:
    """One of what was asked for, as far as dagster-k8s looks at it."""
    if resource == "pods/log":
        return SimpleNamespace(data=b"said by the run's worker")
    if resource == "jobs/status":
        return kubernetes.client.V1Job(status=kubernetes.client.V1JobStatus(active=1))
    status = kubernetes.client.V1PodStatus(phase="Running", container_statuses=[running()])
    metadata = kubernetes.client.V1ObjectMeta(name="worker")
    spec = kubernetes.client.V1PodSpec(containers=[kubernetes.client.V1Container(name="dagster")])
    pod = kubernetes.client.V1Pod(metadata=metadata, spec=spec, status=status) if resource == "pods" else None
    return SimpleNamespace(items=[pod] if pod else []) if several else pod


def running() -> kubernetes.client.V1ContainerStatus:
    state = kubernetes.client.V1ContainerState(running=kubernetes.client.V1ContainerStateRunning())
    container = {"image": "i", "image_id": "i", "name": "dagster", "ready": True, "restart_count": 0, "state": state}
    return kubernetes.client.V1ContainerStatus(**container)


def launcher_of(values: Values, server: Server, kubeconfig: Path) -> K8sRunLauncher:
    """As `_run-launcher.tpl` writes it; its account is the chart's."""
    launcher = values["runLauncher"]["config"]["k8sRunLauncher"]
    parts = {"containerConfig": "container_config", "podSpecConfig": "pod_spec_config", "jobSpecConfig": "job_spec_config"}
    parts["podTemplateSpecMetadata"] = "pod_template_spec_metadata"
    return K8sRunLauncher(
        service_account_name=values["global"]["serviceAccountName"],
        instance_config_map="marin-dagster-instance",
        postgres_password_secret=values["global"]["postgresqlSecretName"],
        dagster_home="/opt/dagster/dagster_home",
        job_image=f"{launcher['image']['repository']}:{launcher['image']['tag']}",
        job_namespace=launcher["jobNamespace"],
        env_config_maps=[each["name"] for each in launcher["envConfigMaps"]],
        volumes=launcher["volumes"],
        volume_mounts=launcher["volumeMounts"],
        fail_pod_on_run_failure=launcher["failPodOnRunFailure"],
        run_k8s_config={parts[name]: config for name, config in launcher["runK8sConfig"].items()},
        load_incluster_config=False,
        kubeconfig_file=str(kubeconfig),
        k8s_client_batch_api=server,
        k8s_client_core_api=server,
    )


def container_context(values: Values) -> dict[str, Any] | None:
    """What the code location puts on its runs, unless `includeConfigInLaunchedRuns` says not to."""
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    if not deployment.get("includeConfigInLaunchedRuns", {}).get("enabled", True):
        return None
    names = {"volumeMounts": "volume_mounts", "volumes": "volumes", "labels": "labels", "resources": "resources"}
    given = {name: deployment[key] for key, name in names.items() if deployment.get(key)}
    fixed = {
        "image_pull_policy": deployment["image"]["pullPolicy"],
        "env_config_maps": [
            "marin-dagster-user-deployments-marin-user-env",
            *(each["name"] for each in deployment["envConfigMaps"]),
        ],
        "namespace": "marin",
        "service_account_name": values["global"]["serviceAccountName"],
        "run_k8s_config": {"pod_spec_config": {"automount_service_account_token": True}},
    }
    return {"k8s": given | fixed}


def main(values_path: str, rules: str, kubeconfig: str) -> None:
    values = yaml.safe_load(Path(values_path).read_text())
    server = Server(json.loads(rules))
    launcher = launcher_of(values, server, Path(kubeconfig))
    image = values["dagsterWebserver"]["image"]
    location = RepositoryPythonOrigin(
        executable_path="python",
        code_pointer=ModuleCodePointer("marin_assets.definitions", "defs"),
        container_image=f"{image['repository']}:{image['tag']}",
        entry_point=["dagster"],
        container_context=container_context(values),
    )
    with dg.DagsterInstance.local_temp() as instance:
        launcher.register_instance(instance)
        run = DagsterRun("a-job", job_code_origin=JobPythonOrigin("a-job", location), status=dg.DagsterRunStatus.STARTED)
        instance.add_run(run)
        launcher.launch_run(LaunchRunContext(run, workspace=None))
        launcher.check_run_worker_health(run)
        launcher.get_run_worker_debug_info(run)
        outcome = {"terminated": launcher.terminate(run.run_id)}
        launcher._api_client.get_job_debug_info("worker", "marin")  # what debug info asks where the pods are gone
    job = kubernetes.client.ApiClient().sanitize_for_serialization(server.jobs[0])
    print(json.dumps(outcome | {"job": job, "asked": sorted(set(server.requests))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
