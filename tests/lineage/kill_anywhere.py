"""Run a stage in forked children that die at the n-th file operation, resume it, and report the result.

    python kill_anywhere.py FOLDER SEED POINTS     # JSON, a line a kill point

A process of its own, so that it is single-threaded when it forks. Python's audit hooks tell of every open, rename, link and
removal before it happens; the child kills itself at the chosen one, in the shards and in the commit alike.
"""

import json
import os
import random
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.shards.run import SCRATCH_FOLDER
from lineage.writing.write import writing

SPEC = ArtifactSpec(("tests", "anywhere"), None, "tests.anywhere", "1", {})
NAMES = ("a", "b", "c", "d", "e", "f")
WATCHED = frozenset({"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"})


def first(folder: Path, name: str, log: str) -> Mapping[str, int]:
    note(log, name)
    (folder / SCRATCH_FOLDER).mkdir()
    (folder / SCRATCH_FOLDER / f"{name}.tmp").write_text(name * 50)
    return {"letters": 50}


def second(folder: Path, name: str, scratch: Path, log: str) -> Mapping[str, int]:
    note(log, name.upper())
    (folder / f"{name}.txt").write_text((scratch / f"{name}.tmp").read_text() * 2)
    return {"letters": 100}


def note(log: str, name: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{name} ".encode())
    os.close(descriptor)


def write(root: str, log: str) -> Artifact:
    """Two maps, the second over scratch files of the first, and a merge: the shape of datakit.normalize."""
    store = Store(root)
    artifact = store.find(SPEC)
    if artifact is not None:
        return artifact
    with writing(store, SPEC, "code") as out:
        out.map_shards(first, {name: (name, log) for name in NAMES})
        done = out.map_shards(second, {f"{name}-2": (name, out.folder / SCRATCH_FOLDER, log) for name in NAMES})
        (out.folder / "all.txt").write_text("".join(path.read_text() for path in sorted(out.folder.glob("?.txt"))))
        out.record(rows_in=sum(statistics["letters"] for statistics in done.values()))
    return out.artifact


def in_a_child(root: Path, log: Path, kill_at: int | None) -> tuple[int, int]:
    """Run the stage in a fork; its wait status, and how many watched operations there were."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        count = 0

        def watch(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal count
            if event in WATCHED and str(root) in str(arguments[0]):
                count += 1
                if count == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        write(str(root), str(log))
        os.write(writing, str(count).encode())
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    sent = os.read(reading, 20)
    os.close(reading)
    return status, int(sent or 0)


def main(folder: Path, seed: int, points: int) -> None:
    folder.mkdir(exist_ok=True)
    _, operations = in_a_child(folder / "whole", folder / "whole-log", None)
    whole = write(str(folder / "whole"), "").data_version
    chance = random.Random(seed)
    early = chance.sample(range(1, operations - 40), points // 2)
    late = chance.sample(range(operations - 40, operations + 1), points - points // 2)  # most of the commit
    for point in sorted(early + late):
        root, log = folder / f"root-{point}", folder / f"log-{point}"
        killed, _ = in_a_child(root, log, point)
        before = log.read_text().split() if log.exists() else []
        committed = Store(str(root)).find(SPEC) is not None
        resumed, _ = in_a_child(root, log, None)
        store = Store(str(root))
        made = write(str(root), str(log))
        made.verify()
        report = {
            "point": point,
            "operations": operations,
            "killed": os.WTERMSIG(killed),
            "resumed": resumed,
            "committed": committed,
            "before": before,
            "ran": log.read_text().split(),
            "equal": made.data_version == whole,
            "data_folders": sum(name.startswith("data-") for name in store.storage.folders(SPEC.address)),
        }
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
