"""Clusters that `lab.yaml` names: what one sets, what holds before it, and what a mistake says."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.signing.policy import policy_from
from lineage.writing.write import writing
from marin_assets.cli.app import app
from resources.cluster import connect
from resources.lab import lab_from_environment
from resources.named_clusters import NamedCluster, chosen, named_cluster

VARIABLES = ("MARIN_CLUSTER", "MARIN_ROOT", "MARIN_SCRATCH", "MARIN_REGION", "MARIN_WORKERS", "MARIN_DATA_RUNNERS")
LAB_YAML = """
clusters:
  tpu: {settings: tpu.yaml, root: "gs://lab/root", scratch: /scratch, region: us-central1, workers: 4, data_runners: 8}
  here: {root: store}
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a lab that names two clusters; what a command sets in the environment is removed after the test."""
    (tmp_path / "lab.yaml").write_text(LAB_YAML)
    (tmp_path / "tpu.yaml").write_text("image: marin@sha256:1\n")
    monkeypatch.setenv("MARIN_LAB", str(tmp_path))
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield tmp_path


def test_a_cluster_sets_what_the_environment_variables_set(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = chosen("tpu", named_cluster("tpu", lab), {})
    assert choice.kept == () and set(choice.variables) == set(VARIABLES)
    for name, value in choice.variables.items():
        monkeypatch.setenv(name, value)
    configured = lab_from_environment()
    assert (configured.root, configured.cluster) == ("gs://lab/root", str(lab / "tpu.yaml"))
    assert (configured.scratch, configured.workers, configured.data_runners) == ("/scratch", 4, 8)
    assert os.environ["MARIN_REGION"] == "us-central1"


def test_a_variable_that_is_set_holds_and_a_line_says_so() -> None:
    choice = chosen("here", NamedCluster(root="store", workers=4), {"MARIN_ROOT": "/mine", "MARIN_WORKERS": "4"})
    assert choice.variables == {"MARIN_WORKERS": "4"}
    assert choice.kept == ("MARIN_ROOT=/mine of the environment holds, not store of cluster here",)


@pytest.mark.parametrize("option", [["--cluster", "here"], ["--cluster=here"]])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_command_reads_the_store_of_the_cluster(lab: Path, option: list[str], is_first: bool) -> None:
    with writing(Store(str(lab / "store" / "artifacts")), ArtifactSpec(("thing",), None, "tests.thing", "1", {}, ())) as out:
        (out.folder / "data").write_bytes(b"1")
    command = ["list", "--json"]
    answer = CliRunner().invoke(app, [*option, *command] if is_first else [*command, *option])
    assert answer.exit_code == 0 and '"thing"' in answer.stdout, answer.output


def test_a_command_says_which_variable_holds_before_its_cluster(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_ROOT", str(lab / "mine"))
    answer = CliRunner().invoke(app, ["list", "--json", "--cluster", "here"])
    assert answer.exit_code == 0
    assert f"marin: MARIN_ROOT={lab / 'mine'} of the environment holds, not store of cluster here" in answer.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clusters: {tpu: {rot: gs://b}}", "has no field 'rot'; NamedCluster allows: data_runners, region, root"),
        ("clusters: {tpu: {workers: many}}", r"clusters\.tpu\.workers is 'many'; it must be int"),
        ("clusters: {tpu: {workers: 0}}", r"clusters\.tpu\.workers is 0; it must be at least 1"),
        ("clusters: {tpu: {data_runners: -1}}", r"clusters\.tpu\.data_runners is -1; 0 \(none\) or more is allowed"),
        ("clusters: {tpu: {}}", r"clusters\.tpu sets nothing; set at least one of settings, root"),
        ("clusters: {tpu: {settings: gone.yaml}}", r"clusters\.tpu\.settings is 'gone\.yaml', but there is no file"),
        ("clusters: {cpu: {root: x}}", "names no such cluster; it names cpu"),
        ("clusters: [tpu]", r"clusters is \['tpu'\]; it must be"),
        ("clusters: {tpu: ", "lab.yaml cannot be read"),
        ("", "lab.yaml"),
    ],
)
def test_a_mistake_names_the_file_the_field_and_what_is_allowed(lab: Path, text: str, message: str) -> None:
    (lab / "lab.yaml").write_text(text)
    with pytest.raises(ValueError, match=message) as refusal:
        named_cluster("tpu", lab)
    assert "lab.yaml" in str(refusal.value)


@pytest.mark.parametrize("arguments", [["list", "--cluster"], ["--cluster", "--json", "list"], ["list", "--cluster="]])
def test_a_forgotten_name_is_one_line(lab: Path, arguments: list[str]) -> None:
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 1
    assert answer.stderr == "marin: --cluster needs the name of a cluster of lab.yaml, such as --cluster tpu\n"


def test_clusters_are_no_policy_of_signatures(lab: Path) -> None:
    assert policy_from().strangers == "allow", "a lab that names clusters alone is judged as one without the file"
    (lab / "lab.yaml").write_text(LAB_YAML + "unsigned: refuse\n")
    policy = policy_from()
    assert (policy.unsigned, policy.strangers) == ("refuse", "refuse")
    assert named_cluster("here", lab).root == "store"


def test_settings_choose_a_context_of_the_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kubeconfig"
    both = "".join(
        f"{kind}s: [{{name: a, {kind}: {{{value % 'a'}}}}}, {{name: b, {kind}: {{{value % 'b'}}}}}]\n"
        for kind, value in (("cluster", "server: 'https://%s'"), ("user", "token: %s"))
    )
    contexts = "contexts: [{name: a, context: {cluster: a, user: a}}, {name: b, context: {cluster: b, user: b}}]\n"
    path.write_text(f"{both}{contexts}current-context: a\n")
    assert connect(str(path), "lab").server == "https://a"
    chosen_cluster = connect(str(path), "lab", context="b")
    assert (chosen_cluster.server, chosen_cluster.token) == ("https://b", "b")
    with pytest.raises(ValueError, match="context is 'c'; contexts: a, b"):
        connect(str(path), "lab", context="c")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(ValueError, match="context is 'b', but there is no kubeconfig"):
        connect("", "lab", context="b")
