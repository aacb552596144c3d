"""Rows by document number: what a part reads, whatever the cut, and how much of a scope one process holds."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from in_folder import InFolder
from inputs import Texts, duplicates, edited, file_bytes, made, random_texts

from datakit.dedup.minhash import MinHashConfig
from datakit.dedup.numbered import numbered
from lineage.artifact.store import Store
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.shards.run import SCRATCH_FOLDER
from lineage.tables.local import LocalEngine
from lineage.tables.shuffle import Shuffle


def rows_of(numbers, first):
    order = np.arange(len(numbers), dtype=np.int64) + first
    return pa.table({"order": order, "number": pa.array(numbers, pa.int64())})


@example([7], 50, 0, 1 << 20)  # an empty part at the end of the scope
@given(st.lists(st.integers(0, 49), max_size=60), st.integers(0, 50), st.integers(0, 20), st.sampled_from([64, 1 << 20]))
def test_a_part_gets_its_own_rows_in_the_order_of_arrival(tmp_path_factory, numbers, start, size, range_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lineage.tables.shuffle.RANGE_BYTES", range_bytes)
        engine, out = LocalEngine(SCRATCH_FOLDER), InFolder(tmp_path_factory.mktemp("s"))
        given_rows = [(numbers[:30], 0), (numbers[30:], 30)]
        parts = engine.shuffle(out, Shuffle("given", rows_of, given_rows, "number", lambda rows: rows, 3, spread=True))
        found = numbered(out, engine, parts, ("number", "order"), 50, "rows")
    stop = min(start + size, 50)
    assert range_bytes > 64 or len(numbers) < 5 or len(found.paths) > 1
    wanted = sorted((number, order) for order, number in enumerate(numbers) if start <= number < stop)
    assert [tuple(row) for row in found.between(start, stop).tolist()] == wanted


@dataclass
class Watched(LocalEngine):
    """Remembers how many rows the process that runs the stage was given at once."""

    fetched: list[int] = field(default_factory=list)

    def table(self, out, part):
        self.fetched.append(part.rows)
        return super().table(out, part)


def test_the_process_that_runs_the_stage_holds_one_range_at_a_time(tmp_path, monkeypatch):
    """720 documents in 240 clusters of three, an exact copy among them: 240 copies, 480 candidates, 720 rows."""
    originals = random_texts(240, 80, seed=5)
    texts = [edited(text, seed=1, edits=1) for text in originals]
    sources = (Texts("a", tuple(originals), part_bytes=18_000), Texts("b", (*texts, *originals), part_bytes=18_000))
    node = duplicates(sources, signed=MinHashConfig(bands=24, rows=1))
    whole = made(tmp_path / "whole", node)
    monkeypatch.setattr("lineage.tables.shuffle.RANGE_BYTES", 2_400)
    store, engine = Store(str(tmp_path / "cut")), Watched(SCRATCH_FOLDER, 1)
    for parent in node.parents():
        made(tmp_path / "cut", parent)
    cut = build(store, node, execution=Execution(1, tables=engine)).artifact
    counts = cut.manifest.extra["duplicates"]
    assert counts["exact"] > 50 and counts["near"] > 200 and file_bytes(cut) == file_bytes(whole)
    assert cut.manifest.extra == whole.manifest.extra
    assert sum(engine.fetched) > 1_500 and max(engine.fetched) < 360
