"""How many bytes of a shuffle in two levels runners fetch, over a bucket that counts them."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from gcs_server import GcsServer

from lineage.artifact.store import Store
from lineage.build.nodes import Node, spec_of
from lineage.build.plan import build
from lineage.build.shard_runner import Share, run_share
from lineage.jobs.job import Job
from lineage.shards.run import SCRATCH_FOLDER
from lineage.shards.shared import RECORD_NAME, SHARED_FOLDER
from lineage.stage import Stage
from lineage.tables.local import LocalEngine
from lineage.tables.ranges import sorted_by
from lineage.tables.shuffle import Shuffle
from lineage.trust.fingerprint import stage_code
from lineage.writing.writer import Writer

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
TASKS, RANGES, ROWS, RUNNERS = 36, 36, 400, 3


def rows_of(seed: int) -> pa.Table:
    return pa.table({"key": np.random.default_rng(seed).integers(0, 1 << 64, ROWS, np.uint64)})


def in_order(rows: pa.Table) -> pa.Table:
    return sorted_by(rows, "key")


def sort_numbers(out: Writer, config: str) -> None:
    engine = LocalEngine(SCRATCH_FOLDER)
    parts = engine.shuffle(out, Shuffle("sorted", rows_of, [(i,) for i in range(TASKS)], "key", in_order, RANGES))
    (out.folder / "digests.txt").write_text("\n".join(part.digest for part in parts))


NODE = Node(("tests", "sorted"), None, Stage("tests.sorted", "1", sort_numbers), "", {})


def test_each_runner_fetches_its_share_of_the_rows_in_each_level(
    server: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lineage.tables.shuffle.MOST_OPENS", 100)
    bucket = Store(server.bucket(uuid.uuid4().hex), scratch_folder=str(tmp_path / "scratch"))
    code = stage_code(NODE.stage.module)
    rounds, sizes, more = list[list[int]](), list[dict[str, int]](), True
    while more:
        fetched = list[int]()
        for index in range(RUNNERS):
            machine = replace(bucket, scratch_folder=str(tmp_path / f"{len(rounds)}-{index}"))
            job = Job(machine, spec_of(machine, NODE), {}, code.fingerprint, "", packages=tuple(code.packages))
            before = server.bytes_read
            more = run_share(NODE.stage, NODE.config, job, Share(index, RUNNERS)) is not None
            fetched.append(server.bytes_read - before)
        rounds.append(fetched)
        sizes.append(bucket.storage.sizes(SHARED_FOLDER))
    assert len(rounds) == 4, "rows, splits, ranges, and a round that finds all done"
    of_tasks, of_splits = (sum_of(size, ".arrow") - sum_of(before, ".arrow") for before, size in pairwise([{}, *sizes[:2]]))
    for fetched, rows, there in ((rounds[1], of_tasks, sizes[0]), (rounds[2], of_splits, sizes[1])):
        own = [each - sum_of(there, RECORD_NAME) for each in fetched]
        assert sum(own) == rows and max(own) < 1.1 * rows / RUNNERS
    whole = build(Store(str(tmp_path / "whole")), NODE).artifact
    assert build(bucket, NODE).artifact.data_version == whole.data_version


def sum_of(sizes: Mapping[str, int], ending: str) -> int:
    return sum(size for name, size in sizes.items() if name.endswith(ending))
