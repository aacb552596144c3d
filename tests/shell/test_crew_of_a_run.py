"""One pool of workers serves all stages of a run in a process and ends with the run."""

import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import dagster as dg
import pytest

from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.stage import Stage
from lineage.writing.writer import Writer
from marin_assets.factory import AssetTemplate, family_asset
from resources.lab import LabResource

PIDS = "PIDS_FILE"


def write_pid(folder: Path, name: str, *_: object) -> Mapping[str, object]:
    (folder / name).write_text(name)
    return {"pid": os.getpid()}


def write_pids(out: Writer, config: str, **inputs: Artifact) -> None:
    """Two maps; the inputs cross to the workers. Writes down who worked before it ends as `config` says."""
    for step in "ab":
        done = out.map_shards(write_pid, {f"{step}-{n}": (f"{step}-{n}", *inputs.values()) for n in range(4)})
        with Path(os.environ[PIDS]).open("a") as lines:
            lines.write(f"{out.spec.key[0]} {' '.join(str(shard['pid']) for shard in done.values())}\n")
    if config == "fails":
        raise ValueError("a fault of the stage")
    if config == "cancelled":
        raise KeyboardInterrupt  # as a signal does


def run(root: Path, end: str) -> dict[str, set[int]]:
    """One run of two assets, `second` of `first`, in this process: who worked for which."""
    first = Node(("first",), None, Stage("tests.pids", "1", write_pids), "")
    second = Node(("second",), None, Stage("tests.pids", "1", write_pids), end, {"one": first})
    assets = [
        family_asset(
            AssetTemplate(node, lambda lab, _, node=node: node, lambda lab: lab.store, "documents", "Pids.", frozenset())
        )
        for node in (first, second)
    ]
    ends = pytest.raises({"fails": ValueError, "cancelled": KeyboardInterrupt}[end]) if end else nullcontext()
    with dg.instance_for_test() as instance, ends:
        dg.materialize(assets, resources={"lab": LabResource(root=str(root), workers=2)}, instance=instance)
    pids_of: dict[str, set[int]] = {}
    for line in Path(os.environ[PIDS]).read_text().splitlines():
        name, *pids = line.split()
        pids_of.setdefault(name, set()).update(map(int, pids))
    return pids_of


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "fails", "cancelled"])
def test_stages_of_one_process_share_workers_that_end_with_the_run(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PIDS, str(tmp_path / "pids"))
    pids_of = run(tmp_path, end)
    assert len(pids_of["first"] | pids_of["second"]) <= 2, "the second stage has the workers of the first"
    assert os.getpid() not in pids_of["first"]
    assert not [pid for pid in pids_of["first"] if Path(f"/proc/{pid}").exists()]
