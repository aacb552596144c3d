"""Job manifests against Kubernetes' schema and the design (docs/design/launchers.md).

`kubernetes_1_37_job.schema.json` is the part of Kubernetes 1.37's OpenAPI that a Job, its pod and a ConfigMap refer to, from
the package kubernetes-validate 1.37.0 (Apache-2.0), strict (no unknown field), without descriptions. JobSet's own fields are in
`jobset_v1alpha2.schema.json`, from kubeflow-trainer-api 2.3.0 (Apache-2.0; tools/jobset_schema.py).
"""

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from lineage.jobs.job import LaunchRequest
from marin_assets.cli.run_plan import manifest, plan
from recipes.hardware import hardware
from recipes.planned_runs import planned_runs
from recipes.records.run import Execution
from recipes.runs import checkpoint
from recipes.studies.default import tiny
from resources.cluster_settings import ClusterSettings, Mount, PodOptions
from resources.manifests import (
    NAME_LENGTH,
    Manifest,
    indexed_job_manifest,
    job_file,
    job_manifest,
    jobset_manifest,
    object_name,
    owned_by,
)
from trainer.running import running_of
from trainer.spec.mesh import MeshShape
from trainer.spec.settings import RuntimeOptions

HERE = Path(__file__).parent
SCHEMA = HERE / "kubernetes_1_37_job.schema.json"
JOBSET = HERE / "jobset_v1alpha2.schema.json"
GOLDEN = HERE / "manifests.golden.yaml"
JOB_SPEC, POD_METADATA, CONFIG_MAP = (
    f"io.k8s.{name}" for name in ("api.batch.v1.JobSpec", "apimachinery.pkg.apis.meta.v1.ObjectMeta", "api.core.v1.ConfigMap")
)
LAUNCH = LaunchRequest(
    "trainer", Path("job.json"), Path("log.txt"), "runs/tiny/checkpoint[step-00000150]", "0123456789abcdef", "c0de"
)
SETTINGS = ClusterSettings(
    image="registry.example/marin@sha256:12",
    namespace="lab",
    queues={"v5p-8": "tpu", "v4-512": "tpu-v4", "2xh100x8": "h100"},
    priorities={"production": "marin-production", "batch": "marin-batch"},
    mounts=(Mount("/scratch", host_path="/mnt/local"), Mount("/data", claim="lab-data")),
    env={"MARIN_ROOT": "gs://bucket/lab"},
    secrets=("tracker",),
)
GANGS = ("v4-512", "v6e-16", "2xv5e-256", "2xh100x8", "v5p-2048", "4xv5p-16")


@cache
def definitions() -> Manifest:
    return json.loads(SCHEMA.read_text())


def hold(value: Manifest, name: str) -> None:
    Draft202012Validator({"$ref": f"#/$defs/{name}", **definitions()}).validate(value)


def job_of(name: str) -> Manifest:
    return job_manifest(LAUNCH, hardware(name), SETTINGS, 2, "[]")


def jobset_of(name: str) -> Manifest:
    return jobset_manifest(LAUNCH, hardware(name), SETTINGS, 2, "[]")


def job_spec_of(jobset: Manifest) -> Manifest:
    return jobset["spec"]["replicatedJobs"][0]["template"]["spec"]


@pytest.mark.parametrize("name", ["cpu", "v5p-8", "v5e-1", "v6e-8", "h100x8"])
def test_a_job_is_valid_today(name: str) -> None:
    job = job_of(name)
    hold(job["spec"], JOB_SPEC)
    hold(job["metadata"], POD_METADATA)


def test_an_indexed_job_is_valid_today_and_its_indices_fail_alone() -> None:
    launch = replace(
        LAUNCH, module="lineage.build.shard_runner", arguments=("--count", "8", "datakit.documents.normalize"), indices=8
    )
    job = indexed_job_manifest(launch, hardware("cpu"), SETTINGS, 1, "[]")
    hold(job["spec"], JOB_SPEC)
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 8, 8)
    assert spec["backoffLimitPerIndex"] == 0 and "backoffLimit" not in spec
    assert [rule["action"] for rule in spec["podFailurePolicy"]["rules"]] == ["Ignore"], "a preempted index is replaced"
    command = spec["template"]["spec"]["containers"][0]["command"]
    assert command == [
        "python",
        "-m",
        "lineage.build.shard_runner",
        "--count",
        "8",
        "datakit.documents.normalize",
        "/etc/marin/job.json",
    ]


def test_a_run_gets_the_mesh_of_its_shape_and_its_declared_settings() -> None:
    """One run for three shapes: each job has the mesh of its own, in the command of its own pods, and no other job has any."""
    settings = RuntimeOptions(("wandb",), "heldout.jsonl@500", "20+5", 60.0, 10, meshes=(("v5p-64", "data=8,tensor=4"),))
    run = replace(tiny(), execution=Execution(("v5p-64", "2xv5e-256", "h100x8"), settings))
    node, plain = checkpoint(run, 50), checkpoint(tiny(), 50)
    assert (node.config, node.key, node.partition) == (plain.config, plain.key, plain.partition), "it is the same run"
    declared = ["MARIN_TRACKERS=wandb", "MARIN_EVAL=heldout.jsonl@500", "MARIN_PROFILE=20+5", "MARIN_ROLLING_SECONDS=60"]
    launch = replace(LAUNCH, arguments=node.arguments, on_hardware=node.on_hardware)
    for name, mesh in {"v5p-64": ["data=8,tensor=4"], "2xv5e-256": ["slice=2"], "h100x8": []}.items():
        spec = job_spec_of(jobset_manifest(launch, hardware(name), SETTINGS, 1, "[]"))
        command = spec["template"]["spec"]["containers"][0]["command"]
        settings_told = [*(f"MARIN_MESH={each}" for each in mesh), *declared, "MARIN_WATCH_STEPS=10"]
        assert command == ["python", "-m", "trainer", *settings_told, "/etc/marin/job.json"]
        running = running_of({}, settings_told)
        assert (running.mesh, running.trackers, running.profile) == (MeshShape.parse("".join(mesh)), ("wandb",), (20, 5))
        assert (running.evaluation, running.rolling_seconds, running.watch_steps) == ("heldout.jsonl@500", 60.0, 10)
    assert (plain.arguments, plain.on_hardware) == ((), {})
    with pytest.raises(ValueError, match=r"settings\.meshes has a mesh for v4-8, which is not in execution\.hardware \(cpu\)"):
        Execution(settings=RuntimeOptions(meshes=(("v4-8", "tensor=4"),)))


@pytest.mark.parametrize("name", GANGS)
def test_the_jobs_of_a_jobset_are_valid_today(name: str) -> None:
    hold(job_spec_of(jobset_of(name)), JOB_SPEC)
    hold(jobset_of(name)["metadata"], POD_METADATA)


def jobset_errors(jobset: Manifest) -> list[str]:
    errors = Draft202012Validator(json.loads(JOBSET.read_text())).iter_errors(jobset)
    return [f"{error.json_path}: {error.message}" for error in errors]


@pytest.mark.parametrize("name", GANGS)
def test_a_jobset_holds_to_its_own_schema(name: str) -> None:
    assert jobset_errors(jobset_of(name)) == []


@pytest.mark.parametrize("run", ["1e23", "june"])
def test_the_jobsets_of_paper_runs_hold_to_it(run: str) -> None:
    assert jobset_errors(manifest(plan(planned_runs()[run]))) == []


def test_the_jobset_schema_refuses_what_its_controller_would() -> None:
    """A field that is not there, a value that is none, a name that may not be, a template that is missing."""
    wrong = jobset_of("v4-512")
    policy, (replicated,) = wrong["spec"]["failurePolicy"], wrong["spec"]["replicatedJobs"]
    policy["maxRestart"] = 3
    policy["rules"][0] |= {"action": "RestartJobset", "name": "was disrupted"}
    replicated["replicas"] = "two"
    del replicated["template"]
    errors = " ".join(jobset_errors(wrong))
    assert all(
        part in errors for part in ("maxRestart'", "RestartJobset", "was disrupted", "'two'", "'template' is a required")
    )


def test_the_schema_refuses_what_kubernetes_would() -> None:
    job = job_of("cpu")
    job["spec"]["podFailurePolicy"]["rules"][0]["onPodCondition"] = []
    errors = Draft202012Validator({"$ref": f"#/$defs/{JOB_SPEC}", **definitions()}).iter_errors(job["spec"])
    assert any("onPodCondition" in error.message for error in errors)


def test_a_job_file_goes_with_its_job(tmp_path: Path) -> None:
    launch = replace(LAUNCH, job_path=tmp_path / "job.json")
    launch.job_path.write_text('{"job": 1}')
    job = job_of("cpu")
    job["metadata"]["uid"] = "u-1"
    made = job_file(launch, hardware("cpu"), SETTINGS, 2)
    made["metadata"] |= owned_by(job)
    hold(made, CONFIG_MAP)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": object_name(LAUNCH), "uid": "u-1"}
    assert (made["metadata"]["ownerReferences"], made["data"]) == ([owner], {"job.json": '{"job": 1}'})
    assert made["immutable"], "who may give it to its job may not change it"
    assert {"name": "job", "configMap": {"name": made["metadata"]["name"]}} in job["spec"]["template"]["spec"]["volumes"]
    launch.job_path.write_text("x" * 1_000_001)
    with pytest.raises(ValueError, match=r"its job file .* has 1000001 bytes; a ConfigMap holds at most"):
        job_file(launch, hardware("cpu"), SETTINGS, 2)


@pytest.mark.parametrize("name", GANGS)
def test_a_gang_asks_for_every_chip_once(name: str) -> None:
    shape, jobset = hardware(name), jobset_of(name)
    spec = job_spec_of(jobset)
    assert spec["parallelism"] == spec["completions"]
    pods = jobset["spec"]["replicatedJobs"][0]["replicas"] * spec["parallelism"]
    limits = spec["template"]["spec"]["containers"][0]["resources"]["limits"]
    per_pod = int(limits.get("google.com/tpu", limits.get("nvidia.com/gpu", 0)))
    assert (pods, pods * per_pod) == (shape.pods, shape.chips)


def test_a_preemption_is_never_a_failure_and_nothing_else_is_tried_again_by_kubernetes() -> None:
    """One owner of retries: Kubernetes has preemptions, the launcher all the rest."""
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    lone = job_of("v5p-8")["spec"]
    assert lone["backoffLimit"] == 0
    assert lone["template"]["spec"]["restartPolicy"] == "Never"
    assert lone["podFailurePolicy"]["rules"] == [{"action": "Ignore", "onPodConditions": disrupted}]
    gang = jobset_of("v6e-16")
    assert job_spec_of(gang)["backoffLimit"] == 0
    exits = {"containerName": "job", "operator": "In", "values": [143]}
    rules = [{"action": "FailJob", "onPodConditions": disrupted}, {"action": "FailJob", "onExitCodes": exits}]
    assert job_spec_of(gang)["podFailurePolicy"]["rules"] == rules
    policy = gang["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 0
    assert [(rule["action"], rule["onJobFailureReasons"]) for rule in policy["rules"]] == [
        ("RestartJobSetAndIgnoreMaxRestarts", ["PodFailurePolicy"])
    ]


def test_processes_find_each_other() -> None:
    def env(jobset: Manifest) -> dict[str, str]:
        container = job_spec_of(jobset)["template"]["spec"]["containers"][0]
        return {entry["name"]: entry.get("value", "from the pod") for entry in container["env"]}

    gpu, tpu = env(jobset_of("2xh100x8")), env(jobset_of("v6e-16"))
    name = object_name(LAUNCH)
    assert (gpu["MARIN_PROCESSES"], gpu["MARIN_PROCESS_INDEX"]) == ("2", "from the pod")
    assert gpu["MARIN_COORDINATOR"] == f"{name}-host-0-0.{name}:8476"
    assert tpu["MARIN_PROCESSES"] == "gke-tpu" and "MARIN_COORDINATOR" not in tpu


def container_of(launch: LaunchRequest, name: str, settings: ClusterSettings) -> Manifest:
    shape = hardware(name)
    made = (job_manifest if shape.pods == 1 else jobset_manifest)(launch, shape, settings, 1, "[]")
    spec = made["spec"] if shape.pods == 1 else job_spec_of(made)
    hold(spec, JOB_SPEC)
    return spec["template"]["spec"]["containers"][0]


def env_of(container: Manifest) -> dict[str, str]:
    names = [entry["name"] for entry in container["env"]]
    assert len(set(names)) == len(names), "Kubernetes takes the last of two, silently"
    return {entry["name"]: entry.get("value", "from the pod") for entry in container["env"]}


@pytest.mark.parametrize("name", ["2xh100x8", "2xa3mega", "v6e-16", "cpu", "h100x8"])
def test_the_operators_environment_wins(name: str) -> None:
    """Over ours, and that of one hardware over that of all; in a gang, too."""
    operators = {"NCCL_SOCKET_IFNAME": "operator", "NCCL_IB_HCA": "mlx5", "MARIN_PROCESSES": "7"}
    every = replace(SETTINGS, env=operators, tcpxo_image="daemon@sha256:1")
    assert operators.items() <= env_of(container_of(LAUNCH, name, every)).items()
    options = {"*": PodOptions(env={"NCCL_IB_HCA": "all"}), name: PodOptions(env={"NCCL_IB_HCA": "one"})}
    assert env_of(container_of(LAUNCH, name, replace(every, pods=options)))["NCCL_IB_HCA"] == "one"


def test_pods_of_some_hardware_are_given_more() -> None:
    options = {
        "*": PodOptions(tolerations=({"key": "lab", "operator": "Exists"},), capabilities=("SYS_RESOURCE",)),
        "v5p-*": PodOptions(
            capabilities=("IPC_LOCK",), user=0, node_selector={"pool": "a"}, annotations={"a/b": "c"}, runtime_class="gvisor"
        ),
    }
    settings = replace(
        SETTINGS, pods=options, image_pull_secrets=("registry",), priority_classes={"batch": "low"}, secrets=("bucket-key",)
    )
    template = job_manifest(LAUNCH, hardware("v5p-8"), settings, 1, "[]")["spec"]["template"]
    pod, container = template["spec"], template["spec"]["containers"][0]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_RESOURCE", "IPC_LOCK"]}
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsNonRoot"]) == (0, False)
    assert pod["tolerations"][-1] == {"key": "lab", "operator": "Exists"}
    assert pod["nodeSelector"]["pool"] == "a" and "cloud.google.com/gke-tpu-topology" in pod["nodeSelector"]
    assert template["metadata"]["annotations"]["a/b"] == "c"
    assert (pod["imagePullSecrets"], pod["priorityClassName"], pod["runtimeClassName"]) == (
        [{"name": "registry"}],
        "low",
        "gvisor",
    )
    other = job_manifest(LAUNCH, hardware("cpu"), settings, 1, "[]")["spec"]["template"]["spec"]
    assert other["securityContext"]["runAsUser"] == 10001 and "runtimeClassName" not in other
    assert other["containers"][0]["securityContext"]["capabilities"]["add"] == ["SYS_RESOURCE"]


def test_only_a_job_that_tracks_gets_the_trackers_keys_and_label() -> None:
    settings = replace(SETTINGS, tracker_secrets=("marin-trackers",))
    key = {"secretRef": {"name": "marin-trackers", "optional": True}}
    assert key not in container_of(LAUNCH, "v5p-8", settings)["envFrom"]
    tracking = replace(LAUNCH, arguments=("MARIN_TRACKERS=wandb",))
    assert key in container_of(tracking, "v5p-8", settings)["envFrom"]
    labels = job_manifest(tracking, hardware("v5p-8"), settings, 1, "[]")["spec"]["template"]["metadata"]["labels"]
    assert labels["marin.community/trackers"] == "yes"
    assert "marin.community/trackers" not in job_of("v5p-8")["spec"]["template"]["metadata"]["labels"]


def test_h100_on_gke_have_its_labels_and_its_fabric() -> None:
    """The daemon is a sidecar: as a container beside the job it would never end, and no Job would be done."""
    settings = replace(SETTINGS, tcpxo_image="daemon@sha256:1", spot=True)
    spec = job_spec_of(jobset_manifest(LAUNCH, hardware("2xa3mega"), settings, 1, "[]"))
    hold(spec, JOB_SPEC)
    template = spec["template"]
    pod, (daemon,) = template["spec"], template["spec"]["initContainers"]
    assert pod["nodeSelector"]["cloud.google.com/gke-accelerator"] == "nvidia-h100-mega-80gb"
    assert pod["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert (daemon["image"], daemon["restartPolicy"]) == ("daemon@sha256:1", "Always")
    networks = json.loads(template["metadata"]["annotations"]["networking.gke.io/interfaces"])
    assert [each["interfaceName"] for each in networks] == [f"eth{i}" for i in range(9)]
    assert {mount["name"] for mount in daemon["volumeMounts"]} <= {volume["name"] for volume in pod["volumes"]}
    environment = env_of(pod["containers"][0])
    assert (
        environment["NCCL_FASTRAK_IFNAME"].split(",") == [f"eth{i}" for i in range(1, 9)] and "NCCL_IB_HCA" not in environment
    )
    with pytest.raises(ValueError, match="tcpxo_image is empty"):
        jobset_manifest(LAUNCH, hardware("2xa3mega"), SETTINGS, 1, "[]")
    lone = job_manifest(LAUNCH, hardware("a3high"), SETTINGS, 1, "[]")["spec"]["template"]["spec"]
    assert lone["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"} and "initContainers" not in lone


def test_a_queue_of_fewer_machines_admits_an_indexed_job() -> None:
    job = indexed_job_manifest(replace(LAUNCH, indices=8), hardware("cpu"), SETTINGS, 1, "[]")
    assert job["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] == "1"


def test_queues_priorities_and_spot_are_labels_and_selectors() -> None:
    labels = job_of("v5p-8")["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "tpu"
    assert labels["kueue.x-k8s.io/priority-class"] == "marin-batch"
    assert "kueue.x-k8s.io/queue-name" not in job_of("cpu")["metadata"]["labels"]
    spot = job_manifest(LAUNCH, hardware("v5p-8"), replace(SETTINGS, spot=True), 1, "[]")["spec"]["template"]["spec"]
    assert spot["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert "cloud.google.com/gke-spot" in {toleration["key"] for toleration in spot["tolerations"]}


def test_the_first_alternative_that_has_a_queue_is_chosen() -> None:
    shapes = tuple(hardware(name) for name in ("v6e-8", "v5p-8", "2xh100x8"))
    assert SETTINGS.choose(shapes).name == "v5p-8"
    assert replace(SETTINGS, queues={}).choose(shapes).name == "v6e-8"
    with pytest.raises(ValueError, match="none of v6e-8 has a queue on this cluster; queues: 2xh100x8, v4-512, v5p-8"):
        SETTINGS.choose(shapes[:1])


@given(st.text(max_size=300), st.text("0123456789abcdef", min_size=32, max_size=32))
def test_names_are_what_kubernetes_allows(name: str, digest: str) -> None:
    launch = replace(LAUNCH, name=name, digest=digest)
    made = object_name(launch)
    assert len(made) <= NAME_LENGTH and re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", made)
    assert made == object_name(replace(launch, module="evals", code="other", hardware=("v5p-8",)))
    other = "f" if digest[0] != "f" else "e"
    assert made != object_name(replace(launch, digest=other + digest[1:]))


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("image is empty", {"image": ""}),
        ("priorities name \\['urgent'\\]; known: production, interactive, batch", {"priorities": {"urgent": "x"}}),
    ],
)
def test_settings_that_cannot_be_are_refused_by_field(field: str, change: dict) -> None:
    with pytest.raises(ValueError, match=field):
        replace(SETTINGS, **change)


def test_a_mount_is_one_thing() -> None:
    with pytest.raises(ValueError, match="mount /data: host_path is '', claim is '' and secret is ''; give exactly one"):
        Mount("/data")
    with pytest.raises(ValueError, match=r"mount /data: .*claim is 'lab' and secret is 'key'; give exactly one"):
        Mount("/data", claim="lab", secret="key")


def test_a_key_file_of_a_cloud_without_workload_identity_is_a_secret_that_only_the_pods_user_reads() -> None:
    """Clusters outside Google read buckets by a file that GOOGLE_APPLICATION_CREDENTIALS names."""
    key = Mount("/etc/gcs", secret="gcs-credentials")
    settings = replace(SETTINGS, mounts=(key,), env={"GOOGLE_APPLICATION_CREDENTIALS": "/etc/gcs/key.json"})
    spec = job_manifest(LAUNCH, hardware("h100x8"), settings, 1, "[]")["spec"]
    hold(spec, JOB_SPEC)
    pod = spec["template"]["spec"]
    assert {"name": "mount-0", "secret": {"secretName": "gcs-credentials", "defaultMode": 0o440}} in pod["volumes"]
    assert {"name": "mount-0", "mountPath": "/etc/gcs", "readOnly": True} in pod["containers"][0]["volumeMounts"]


def test_the_manifests_are_the_reviewed_ones() -> None:
    """A changed manifest is a reviewed diff of the golden file: a preemptible TPU host, a slice of 64, two nodes of GPUs."""
    made = [job_of("v5p-8"), jobset_of("v4-512"), jobset_of("2xh100x8")]
    assert list(yaml.safe_load_all(GOLDEN.read_text())) == made
