"""The launcher that a lab has, and that nobody else tries again."""

from pathlib import Path

import dagster as dg
import pytest
import yaml

from lineage.child_processes import run_subprocess
from resources.kubernetes_launcher import KubernetesLauncher
from resources.lab import PRIORITY_TAG, Lab, LabResource

ROOT = Path(__file__).resolve().parents[2]
KUBECONFIG = {
    "current-context": "lab",
    "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
    "clusters": [{"name": "lab", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [
        {"name": "lab", "user": {"exec": {"apiVersion": "v1", "command": "echo", "args": ['{"status": {"token": "t"}}']}}}
    ],
}


def settings_file(folder: Path, **settings: object) -> str:
    (folder / "kubeconfig").write_text(yaml.safe_dump(KUBECONFIG))
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"kubeconfig": str(folder / "kubeconfig"), **settings}))
    return str(folder / "cluster.yaml")


def test_jobs_are_child_processes_unless_a_cluster_is_named(tmp_path: Path) -> None:
    assert LabResource(root=str(tmp_path)).lab().launcher is run_subprocess
    queues = {"v5p-8": "tpu"}
    mounts = [{"path": "/data", "claim": "lab"}]
    named = settings_file(
        tmp_path, image="marin@sha256:1", namespace="lab", queues=queues, priority="production", mounts=mounts
    )
    launcher = LabResource(root=str(tmp_path), cluster=named).lab().launcher
    assert isinstance(launcher, KubernetesLauncher)
    assert (launcher.settings.queues, launcher.settings.mounts[0].claim) == (queues, "lab")
    assert (launcher.cluster.server, launcher.cluster.token) == ("https://127.0.0.1:1", "t")
    assert launcher.settings.priority == "production"
    launcher.cluster.close()


def test_a_runs_tag_gives_its_jobs_their_priority(tmp_path: Path) -> None:
    named = settings_file(tmp_path, image="marin@sha256:1")
    seen: list[str] = []

    @dg.op
    def look(lab: dg.ResourceParam[Lab]) -> None:
        assert isinstance(lab.launcher, KubernetesLauncher)
        seen.append(lab.launcher.settings.priority)
        lab.launcher.cluster.close()

    @dg.job(resource_defs={"lab": LabResource(root=str(tmp_path), cluster=named)})
    def looking() -> None:
        look()

    for tags in ({}, {PRIORITY_TAG: "production"}):
        assert looking.execute_in_process(tags=tags).success
    assert seen == ["batch", "production"]
    with pytest.raises(ValueError, match="priority is 'urgent'; allowed: 'production', 'interactive', 'batch'"):
        LabResource(root=str(tmp_path), cluster=named).lab(priority="urgent")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "lacks the field 'image'"),
        ({"image": "x", "queue": {}}, "has no field 'queue'; ClusterSettings allows: env, grace_seconds, host_network, image"),
        ({"image": "x", "priority": "urgent"}, "priority is 'urgent'; allowed: 'production', 'interactive', 'batch'"),
    ],
)
def test_a_wrong_settings_file_names_the_field(tmp_path: Path, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LabResource(root=str(tmp_path), cluster=settings_file(tmp_path, **settings)).lab()


def test_dagster_tries_nothing_again(real_definitions: dg.Definitions) -> None:
    """One owner of retries: a retry of Dagster's would multiply with the launcher's."""
    assert yaml.safe_load((ROOT / "dagster.yaml").read_text())["run_retries"]["max_retries"] == 0
    ops = [op for job in real_definitions.resolve_all_job_defs() for op in job.all_node_defs]
    assert [op.name for op in ops if isinstance(op, dg.OpDefinition) and op.retry_policy] == []
