"""A run of two hosts as a JobSet with bucket checkpoints: one host killed, one preempted, no bit lost."""

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from chaos_world import add_node, chaos_run, compiled_in, final, gang_of_processes, give_data, make_data, versions
from gcs_server import GcsServer
from jobset_controller import JobSetController
from kubelet import Kubelet
from launches import WAIT_SECONDS, launcher_of, until

from lineage.artifact.store import Store
from lineage.build.nodes import resolve, spec_of
from lineage.build.plan import build
from recipes.runs import checkpoint
from resources.cluster import JOBSETS, Cluster
from resources.cluster_settings import Mount
from resources.failures import PREEMPTION
from resources.manifests import ATTEMPT
from trainer.saving import rolling_store

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
STEPS = 600
RUN = chaos_run(STEPS)
GRACE_SECONDS = 15.0


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Return the store of a run by two undisturbed processes."""
    folder = tmp_path_factory.mktemp("plain")
    store = Store(str(folder / "store"), str(folder / "work"))
    make_data(RUN, store)
    build(store, final(RUN), launcher=partial(gang_of_processes, environment=compiled_in(folder / "compiled")))
    return store


def test_a_gang_that_loses_a_host_and_then_a_node_ends_with_the_same_checkpoints(
    plain: Store, cluster: Cluster, kubelet: Kubelet, jobsets: JobSetController, gcs: GcsServer, tmp_path: Path
) -> None:
    store = Store(f"{gcs.bucket(uuid.uuid4().hex)}/artifacts", str(tmp_path / "scratch"))
    give_data(RUN, plain, store)
    compiled = tmp_path / "compiled"
    compiled.mkdir()
    variables = {"STORAGE_EMULATOR_HOST": gcs.url, "MARIN_HEARTBEAT_SECONDS": "10", **compiled_in(compiled)}
    launcher = launcher_of(cluster, tmp_path)
    mounts = (Mount(str(compiled), host_path=str(compiled)),)  # the hosts share only the bucket and the compiled programs
    launcher = replace(launcher, settings=replace(launcher.settings, env=variables, mounts=mounts))
    for name in ("two-0", "two-1"):
        add_node(kubelet, name)
    first, third = (spec_of(store, checkpoint(RUN, RUN.spec.saved_steps()[index])) for index in (0, 2))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(build, store, final(RUN), launcher=launcher)
        until(lambda: store.find(first), "the first checkpoint")
        (jobset,) = cluster.find(JOBSETS)
        kubelet.running(jobset["metadata"]["name"])[1].kill()
        until(lambda: store.find(third), "a checkpoint of the second attempt")
        kubelet.reclaim_node(kubelet.running(jobset["metadata"]["name"])[0].node, GRACE_SECONDS)
        add_node(kubelet, "two-2")
        built = running.result(5 * WAIT_SECONDS)
    assert versions(RUN, store) == versions(RUN, plain), "the same bytes, whatever became of the hosts"
    assert built.launched is not None
    ends = [attempt.ended.partition(" ")[0] for attempt in built.launched.attempts]
    assert ends[0] in ("killed", "peer") and ends.count(PREEMPTION) >= 1 and ends[-2:] == ["done", "done"], ends
    (jobset,) = cluster.find(JOBSETS)
    assert jobset["metadata"]["annotations"][ATTEMPT] == "2", "a killed host costs an attempt"
    assert jobset["status"]["restarts"] == 1 and not jobset["status"].get("restartsCountTowardsMax"), "a warned one nothing"
    log = (store.scratch / "jobs" / built.artifact.spec.version / "log.txt").read_text()
    left = {int(step) for step in re.findall(r"asked to leave; checkpoint saved at step (\d+)", log)}
    resumed = [int(step) for step in re.findall(r"resuming chaos at step (\d+) from gs://", log)]
    assert len(left) == 1 and resumed[2:] == [*left, *left], "both hosts leave at one step, and go on from it"
    assert resumed[0] == resumed[1] >= RUN.spec.saved_steps()[0]

    left_over = [name for bucket in gcs.objects.buckets for name in gcs.names(bucket) if "/.work/parts/" in name]
    assert not left_over and not list(rolling_store(store).artifacts()), "nothing lies about in the bucket"
    assert resolve(store, final(RUN)).manifest.extra["checkpoint"]["mesh"]["processes"] == 2
