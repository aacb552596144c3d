"""The Dockerfile, checked by hadolint's rules (there is no Docker daemon to build it), and its lock."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


class Instruction(NamedTuple):
    name: str
    text: str


def instructions() -> list[Instruction]:
    """Instructions with their continuation lines joined; comments dropped."""
    text = (REPOSITORY / "deploy" / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Instruction(*line.split(" ", 1)) for line in joined.splitlines() if line.strip()]


def texts(name: str) -> list[str]:
    return [each.text for each in instructions() if each.name == name]


def locked(path: Path) -> dict[str, str]:
    pins = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+) ;", path.read_text(), re.MULTILINE)
    return dict(pins)


def test_bases_are_pinned_and_equal() -> None:
    bases = [text.split(" ")[0] for text in texts("FROM")]
    assert bases == ["${BASE}", "${BASE}"], "the environment is compiled by the Python that runs it"
    assert texts("ARG")[0] == "BASE", "no default: it is given by digest"
    (check,) = [text for text in texts("RUN") if "${BASE}" in text]
    for base, is_let_in in {
        f"python:3.12.12-slim-bookworm@sha256:{'0' * 64}": True,
        "python:3.12.12-slim-bookworm": False,
        f"python:3.13.1-slim-bookworm@sha256:{'0' * 64}": False,
    }.items():
        assert (subprocess.run(["bash", "-c", check], env={"BASE": base}, check=False).returncode == 0) is is_let_in, base


def test_the_process_is_not_root() -> None:
    assert texts("USER")[-1] == "10001:10001", "DL3002, and by number: Kubernetes checks runAsNonRoot by number"
    names = [each.name for each in instructions()]
    assert names.index("USER") > max(i for i, name in enumerate(names) if name in ("RUN", "COPY"))
    assert "sudo" not in " ".join(texts("RUN")), "DL3004"


def test_everything_is_installed_by_hash() -> None:
    installs = [text for text in texts("RUN") if "pip install" in text]
    assert len(installs) == 2
    for install in installs:
        assert {"--no-cache-dir", "--require-hashes", "--no-deps"} <= set(install.split()), "DL3042, nothing outside the locks"
    assert not [text for text in texts("RUN") if "apt-get" in text or "curl" in text], "nothing that has no hash"
    assert texts("SHELL")[0] == '["/bin/bash", "-o", "pipefail", "-c"]', "DL4006"


def test_the_commit_is_baked_in_and_must_be_given() -> None:
    final = instructions()[max(i for i, each in enumerate(instructions()) if each.name == "FROM") :]
    assert Instruction("ARG", "GIT_SHA") in final, "no default"
    assert Instruction("RUN", 'test -n "${GIT_SHA}"') in final
    assert any('MARIN_GIT_SHA="${GIT_SHA}"' in each.text for each in final if each.name == "ENV")
    assert any("org.opencontainers.image.revision" in each.text for each in final if each.name == "LABEL")


def test_plain_forms() -> None:
    assert not texts("ADD"), "DL3020"
    assert not texts("MAINTAINER"), "DL4000"
    assert all(text.startswith("[") for text in texts("CMD") + texts("ENTRYPOINT")), "DL3025"
    assert all(text.startswith("/") for text in texts("WORKDIR")), "DL3000"
    assert not re.search(r"(?i)password|secret|token", " ".join(texts("ENV") + texts("ARG")))
    assert len(texts("CMD")) == 1, "DL4003"


def test_what_is_copied_is_what_runs() -> None:
    """The context includes every package of the project, and no history, artifacts or environments."""
    rules = (REPOSITORY / ".dockerignore").read_text().split()
    let_in = {rule.removeprefix("!").split("/")[0] for rule in rules if rule.startswith("!")}
    include = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {"lineage", "datakit", "marin_assets"} < {name.rstrip("*") for name in include} <= let_in
    assert rules[rules.index("*") :][0] == "*"
    assert not let_in & {".git", ".venv", ".marin", "tests"}


def test_the_image_has_the_versions_that_the_tests_ran_with() -> None:
    image, tested = locked(REPOSITORY / "deploy" / "requirements.lock"), locked(REPOSITORY / "requirements.lock")
    assert {name: tested[name] for name in image.keys() & tested.keys()} == {n: image[n] for n in image.keys() & tested.keys()}
    assert {"dagster-k8s", "dagster-gcp", "dagster-postgres", "psycopg2-binary", "google-cloud-storage", "jax"} <= image.keys()
    assert {"wandb", "tensorboardx"} <= image.keys(), "a run may ask for a tracker"
    assert not {"pytest", "playwright", "ruff"} & image.keys()
    assert not [name for name in image if name.startswith(("torch", "nvidia-"))]


@pytest.mark.parametrize("name", ["tpu", "cuda12", "ray"])
def test_an_accelerators_packages_are_the_images_own_but_for_its_plugin(name: str) -> None:
    """Installed on top, by hash: what the image has may not move."""
    lock = REPOSITORY / "deploy" / "accelerators" / f"{name}.lock"
    pinned = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", lock.read_text(), re.MULTILINE))
    image = locked(REPOSITORY / "deploy" / "requirements.lock")
    assert {package: image[package] for package in pinned.keys() & image.keys()} == {
        package: pinned[package] for package in pinned.keys() & image.keys()
    }
    assert name == "ray" or pinned["jax"] == image["jax"]
    assert {"tpu": "libtpu", "cuda12": "jax-cuda12-pjrt", "ray": "ray"}[name] in pinned
    blocks = re.split(r"^(?=[A-Za-z0-9_.-]+==)", lock.read_text(), flags=re.MULTILINE)
    assert all("--hash=sha256:" in block for block in blocks if "==" in block)
