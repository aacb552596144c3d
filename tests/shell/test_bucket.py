"""A line with its root in a bucket: every artifact up to the checkpoint equals the local one.

Stages run in worker processes and training in a job process of its own; all of them reach the bucket over HTTP.
"""

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from gcs_server import GcsServer
from small import FinishedFerry
from small_runs import DAY

from lineage.artifact.store import Store
from lineage.build.nodes import resolve
from lineage.build.plan import build
from lineage.shards.execution import Execution
from recipes import ferry as recipe
from trainer.checkpoint import read_spec

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_line_in_a_bucket_is_equal_to_the_local_one(finished_ferry: FinishedFerry, gcs: GcsServer, tmp_path: Path) -> None:
    store = Store(gcs.bucket(uuid.uuid4().hex) + "/ttl-7d", scratch_folder=str(tmp_path / "scratch"))
    build(store, recipe.roster(finished_ferry.ferry, DAY, reachable=True))
    run = finished_ferry.ferry.run(DAY, reachable=True)
    nodes = recipe.nodes(run)
    last = max(index for index, node in enumerate(nodes) if node.stage.name == "trainer.checkpoint")
    for node in nodes[: last + 1]:
        made, local = build(store, node, execution=Execution(2)).artifact, resolve(finished_ferry.lab.ferry_store, node)
        files = tuple(replace(entry, crc32c=None) for entry in made.manifest.files)  # only a bucket keeps these
        assert files == local.manifest.files, node.name
        assert (made.spec, made.data_version) == (local.spec, local.data_version), node.name
    assert read_spec(made) == run.spec
    earlier = [a.spec.config["step"] for a in store.artifacts(*made.spec.key) if a.spec.stage == "trainer.checkpoint"]
    assert sorted(earlier) == [20, 40], "the job wrote its checkpoints through the store"
    build(store, nodes[last])
    gcs.counts.clear()
    assert build(store, nodes[last]).reused
    ancestors = len(list(store.walk_up(made)))
    print(f"reuse of a checkpoint with {ancestors - 1} ancestors: {dict(gcs.counts)}")
    assert gcs.counts["list"] == 0
    assert gcs.counts["read"] <= 5 * ancestors
