"""The trials of a sweep by one pod, which is killed: another one makes the rest, and all have the bytes of child processes.

Pods share the bucket and the lab's key, as on a cloud. What the first has compiled the second does not compile again.
"""

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from gcs_server import GcsServer
from kubelet import Kubelet
from launches import WAIT_SECONDS, launcher_of, until
from small_runs import small_run

from lineage.artifact.store import Store
from lineage.build.nodes import Node, ancestors_first, exists, resolve
from lineage.build.plan import Built, build, build_all
from lineage.build.together import build_together
from lineage.messages import ProgressMessage
from lineage.signing.keys import LocalKey
from lineage.upkeep.mirror import mirror
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.sweeps import result, trial
from resources.cluster import JOBS, Cluster
from resources.cluster_settings import Mount
from resources.manifests import ATTEMPT
from trainer.spec.schedules import WarmupStableDecay

pytestmark = pytest.mark.cluster


def small_sweep() -> Sweep:
    """Three rates."""

    def at(rate: float) -> Run:
        run = small_run(f"lr{rate:g}")
        schedule = WarmupStableDecay(rate, warmup_steps=1, decay_frac=0.0, min_lr_ratio=1.0)
        return replace(run, spec=replace(run.spec, schedule=schedule, num_steps=60, save_every_steps=None))

    return Sweep("pods", tuple(map(at, (1e-3, 2e-3, 4e-3))))


def signing(folder: Path) -> dict[str, str]:
    """A key of the lab and a policy that names it, as files; the variables that point a pod at them."""
    folder.mkdir()
    key = LocalKey.make()
    (folder / "pods.pem").write_bytes(key.pem)
    (folder / "pods.pem").chmod(0o600)
    (folder / "lab.yaml").write_text(f"keys:\n  pods: {{public: {key.public.text}, may: [make]}}\n")
    return {"MARIN_SIGNING_KEY": str(folder / "pods.pem"), "MARIN_POLICY": str(folder / "lab.yaml")}


def test_a_pod_makes_all_trials_and_another_all_results(
    cluster: Cluster, kubelet: Kubelet, gcs: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = signing(tmp_path / "keys")
    for name, value in keys.items():  # this process signs the data, which the pods would not read otherwise
        monkeypatch.setenv(name, value)
    runs = small_sweep().trials
    trials, results = ([node(run) for run in runs] for node in (trial, result))
    plain = Store(str(tmp_path / "plain"), str(tmp_path / "work"))
    for node in ancestors_first(results):
        if node.stage.job is None:
            build(plain, node)
    store = Store(f"{gcs.bucket(uuid.uuid4().hex)}/artifacts", str(tmp_path / "scratch"))
    for parent in ancestors_first([each for node in results for each in node.parents()]):
        if parent.stage.job is None:
            list(mirror(resolve(plain, parent), store, "test"))
    build_all(plain, results)
    launcher = launcher_of(cluster, tmp_path)
    mounts = (Mount(str(tmp_path / "keys"), host_path=str(tmp_path / "keys")),)
    launcher = replace(
        launcher, settings=replace(launcher.settings, env={"STORAGE_EMULATOR_HOST": gcs.url, **keys}, mounts=mounts)
    )
    ended: dict[str, Built | Exception] = {}
    heard: set[str] = set()

    def end(node: Node, built: Built | Exception) -> None:
        ended[node.name] = built

    def hear(node: Node, note: ProgressMessage) -> None:
        heard.add(f"{node.name} {note.work}")

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(build_together, store, trials, launcher, end, hear)
        until(lambda: exists(store, trials[0]) or running.done(), "the first trial")
        assert not running.done(), running.result()
        (job,) = cluster.find(JOBS)
        assert job["metadata"]["name"].startswith("sweeps-pods-trial-3-jobs-")
        kubelet.running(job["metadata"]["name"])[0].kill()
        running.result(WAIT_SECONDS)
    assert cluster.find(JOBS)[0]["metadata"]["annotations"][ATTEMPT] == "2"
    logs = [path.read_text() for path in Path(store.scratch, "jobs").glob("*/log.txt")]
    (log,) = [log for log in logs if f"{trials[0].name} is there already" in log]  # the second pod skips what the first made
    shared = re.findall(r"(\d+) compiled programs, .* (fetched|published)", log)
    assert shared[0] == ("0", "fetched") and shared[1][1] == "published", "the first pod compiles"
    assert {what for _, what in shared[2:]} == {"fetched"} and "0" not in {shared[2][0]}, shared
    build_together(store, results, launcher, end, hear)
    assert len(cluster.find(JOBS)) == 2, "two jobs for six artifacts"
    for node in (*trials, *results):
        assert isinstance(ended[node.name], Built), ended[node.name]
        assert resolve(store, node).data_version == resolve(plain, node).data_version
    assert {f"{node.name} training {node.partition}" for node in trials} <= heard
