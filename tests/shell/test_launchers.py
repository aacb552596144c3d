"""Which launcher a lab has; Dagster itself retries nothing."""

import base64
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import dagster as dg
import pytest
import requests
import yaml

from lineage.jobs.child_processes import run_subprocess
from resources.cluster import PODS, ApiError, Cluster, from_kubeconfig
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
    assert launcher.cluster.server == "https://127.0.0.1:1" and launcher.cluster.plugin is not None
    assert launcher.cluster.plugin.token() == "t"
    assert launcher.settings.priority == "production"
    launcher.cluster.close()


class Answers:
    """A session whose server answers with these statuses, one after the other; it notes the tokens that it was shown."""

    def __init__(self, *statuses: int, body: bytes = b'{"items": []}', **headers: str):
        self.statuses, self.tokens, self.body = list(statuses), [], body
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def request(self, method: str, url: str, headers: dict[str, str], **options: object) -> requests.Response:
        self.tokens.append(headers["Authorization"])
        answer = requests.Response()
        answer.status_code, answer._content = self.statuses.pop(0), self.body
        answer.headers.update(self.headers)
        return answer


def test_a_server_that_asks_for_patience_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """429 is Kubernetes' own way to say "later" (priority and fairness): no reason to leave a job unwatched."""
    waits: list[float] = []
    monkeypatch.setattr("resources.cluster.time.sleep", waits.append)
    session = Answers(429, 503, 200)
    assert (
        Cluster("https://lab", "lab", token="t", patience_seconds=60, session=cast(requests.Session, session)).find(PODS) == []
    )
    assert len(waits) == 2
    with pytest.raises(ApiError, match="403"):
        Cluster("https://lab", "lab", token="t", patience_seconds=60, session=cast(requests.Session, Answers(403))).find(PODS)


def patient(session: Answers) -> Cluster:
    return Cluster("https://lab", "lab", token="t", patience_seconds=600, session=cast(requests.Session, session))


def test_a_server_that_says_when_to_retry_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a minute, whatever it says."""
    waits: list[float] = []
    monkeypatch.setattr("resources.cluster.time.sleep", waits.append)
    for retry_after in ("17", "86400", "Wed, 21 Oct 2026 07:28:00 GMT"):
        assert patient(Answers(429, 200, Retry_After=retry_after)).find(PODS) == []
    assert waits == [17.0, 60.0, 1.0]


def test_an_answer_that_is_no_json_is_named() -> None:
    """A proxy's login page, for example."""
    with pytest.raises(ApiError, match=r"GET .*pods: https://lab answers 200 with no JSON.*<html>sign in"):
        patient(Answers(200, body=b"<html>sign in</html>")).find(PODS)


def test_key_files_go_with_the_process(tmp_path: Path) -> None:
    """A kubeconfig that holds its key needs a file for the TLS library."""
    key = base64.b64encode(b"a key").decode()
    script = f"from resources.credentials import file_of; print(file_of({{'client-key-data': {key!r}}}, 'client-key'))"
    env = {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "PATH": os.environ["PATH"]}
    output = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True).stdout
    assert Path(output.strip()).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_a_token_that_has_expired_is_asked_for_again(tmp_path: Path) -> None:
    """A credential plugin's lives an hour, a run that is watched from a workstation days."""
    script = """
        n=$(cat asked 2>/dev/null || echo 0); echo $((n+1)) > asked
        echo "{\\"status\\": {\\"token\\": \\"t$n\\"}}"
    """
    user = {"exec": {"apiVersion": "v1", "command": "sh", "args": ["-c", f"cd {tmp_path}; {script}"]}}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(KUBECONFIG | {"users": [{"name": "lab", "user": user}]}))
    session = Answers(200, 200, 401, 200, 401, 401)
    cluster = replace(from_kubeconfig(tmp_path / "kubeconfig", "lab"), session=cast(requests.Session, session))
    for _ in range(3):
        assert cluster.find(PODS) == []
    with pytest.raises(ApiError, match="401"):
        cluster.find(PODS)
    assert session.tokens == [f"Bearer t{n}" for n in (0, 0, 0, 1, 1, 2)], "once a request, and not without end"


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
        ({"image": "x", "queue": {}}, "has no field 'queue'; ClusterSettings allows: context, env, grace_seconds, "),
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
