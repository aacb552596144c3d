"""Images of other projects' manifests and charts get their digests, and nothing goes to the cluster by a tag."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy" / "pin_images.sh"
DIGEST = "sha256:" + "a1" * 32
KUEUE = "registry.k8s.io/kueue/kueue:v0.14.1"
LOCK = f"# read on 2026-11-26\n{KUEUE} {DIGEST}\nbusybox:1.28 {DIGEST}  # the chart's init container\n"
CONTROLLER = {"containers": [{"name": "m", "image": KUEUE}], "initContainers": [{"name": "wait", "image": "busybox:1.28"}]}
FORMS = {
    "Pod": {"kind": "Pod", "spec": CONTROLLER},
    "Deployment": {"kind": "Deployment", "spec": {"template": {"spec": CONTROLLER}}},
    "CronJob": {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": CONTROLLER}}}}},
    "JobSet": {"kind": "JobSet", "spec": {"replicatedJobs": [{"template": {"spec": {"template": {"spec": CONTROLLER}}}}]}},
    "List": {"kind": "List", "items": [{"kind": "Pod", "spec": CONTROLLER}]},
}


def pinned(manifests: str, lock: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "images.lock").write_text(lock)
    environment = {**os.environ, "IMAGES_LOCK": str(folder / "images.lock")}
    return subprocess.run([SCRIPT], input=manifests, capture_output=True, text=True, env=environment, check=False)


def test_every_container_of_every_kind_gets_its_digest_and_nothing_else_changes(tmp_path: Path) -> None:
    config = {"kind": "ConfigMap", "data": {"image": "not:an-image", "containers": "x"}}
    documents = [*FORMS.values(), config]
    done = pinned("---\n".join(yaml.safe_dump(document) for document in documents), LOCK, tmp_path)
    assert done.returncode == 0, done.stderr
    text = yaml.safe_dump(documents).replace(KUEUE, f"{KUEUE}@{DIGEST}").replace("busybox:1.28", f"busybox:1.28@{DIGEST}")
    assert list(yaml.safe_load_all(done.stdout)) == yaml.safe_load(text)


def test_the_rest_of_the_text_is_as_it_was(tmp_path: Path) -> None:
    text = f"# a note\nkind: Pod\nmode: 0644\noperator: =\non: yes\nspec:\n  containers:\n  - image: '{KUEUE}'   # ours\n"
    done = pinned(text, LOCK, tmp_path)
    assert done.stdout == text.replace(f"'{KUEUE}'", f"{KUEUE}@{DIGEST}")
    done = pinned(f"kind: Pod\nspec: {{containers: [{{image: '{KUEUE}'}}]}}\n", LOCK, tmp_path)
    assert (done.returncode, done.stdout) == (1, "") and "is not on a line of its own" in done.stderr


def test_an_image_that_has_a_digest_keeps_it(tmp_path: Path) -> None:
    text = yaml.safe_dump(FORMS["Pod"]).replace(KUEUE, f"{KUEUE}@sha256:{'b2' * 32}")
    done = pinned(text, LOCK, tmp_path)
    assert f"{KUEUE}@sha256:{'b2' * 32}" in done.stdout


@pytest.mark.parametrize(
    ("image", "lock", "why"),
    [
        ("other/controller:v1", LOCK, "other/controller:v1  (ask: docker buildx imagetools inspect other/controller:v1"),
        ("busybox", LOCK, "  busybox  (ask"),
        ("busybox:1.29", LOCK, "  busybox:1.29  (ask"),
        ("busybox@latest", LOCK, "has a digest of another form"),
        (KUEUE, f"{KUEUE} latest\n", "line 1 of the lock is"),
        (KUEUE, f"{KUEUE}\n", "line 1 of the lock is"),
        (KUEUE, f"{KUEUE} {DIGEST[:-1]}\n", "line 1 of the lock is"),
        (KUEUE, f"{LOCK}{KUEUE} sha256:{'c3' * 32}\n", "line 4 of the lock gives"),
    ],
)
def test_what_has_no_digest_stops_all_and_says_how_to_ask(image: str, lock: str, why: str, tmp_path: Path) -> None:
    done = pinned(yaml.safe_dump(FORMS["Pod"]) + "---\n" + yaml.safe_dump(FORMS["List"]).replace(KUEUE, image), lock, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert why in done.stderr
