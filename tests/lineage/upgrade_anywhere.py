"""Kill -9 at every file operation of an upgrade, then run it again.

    python upgrade_anywhere.py OLD_STORE FOLDER STRIDE     # JSON, a line a kill point: every STRIDEth operation

A process of its own, so that it is single-threaded when it forks. An audit hook sees every open, rename, link and removal
before it happens; the child kills itself at the chosen one.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.graph.check_tables import every_manifest
from lineage.upkeep.upgrade import apply_upgrade
from lineage.upkeep.upgrade_plan import plan_upgrade

WATCHED = frozenset({"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"})


def key_today(spec: ArtifactSpec) -> tuple[str, ...]:
    """The old fixture's one key that has changed."""
    return ("datakit", "minhash-20x5") if spec.key == ("datakit", "minhash") and spec.config["bands"] == 20 else spec.key


def upgrade(root: Path) -> list[str]:
    """Upgrade a store; the names of what changed."""
    store = Store(str(root))
    return [change.name for change in apply_upgrade(store, plan_upgrade(store, key_today))]


def contents(root: Path) -> dict[str, str]:
    """Every file of a store as text, but for working files and the hidden files of a writer that was killed."""
    paths = sorted(path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    paths = [path for path in paths if ".work" not in path.relative_to(root).parts]
    return {path.relative_to(root).as_posix(): path.read_text() for path in paths}


def in_a_child(root: Path, kill_at: int | None) -> tuple[int, int]:
    """Upgrade in a fork: its wait status, and how many watched operations there were."""
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
        upgrade(root)
        os.write(writing, str(count).encode())
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    counted = os.read(reading, 20)
    os.close(reading)
    return status, int(counted or 0)


def main(old: Path, folder: Path, stride: int) -> None:
    shutil.copytree(old, folder / "whole")
    _, operations = in_a_child(folder / "whole", None)
    whole = contents(folder / "whole")
    versions = {m.data_version for m in every_manifest(Store(str(old))).sound.values()}
    for point in range(1, operations + 1, stride):
        root = folder / f"root-{point}"
        shutil.copytree(old, root)
        killed, _ = in_a_child(root, point)
        between = every_manifest(Store(str(root)))
        readable = {m.data_version for a, m in between.sound.items() if _is_whole(root / a / m.data_folder, m.files)}
        resumed, _ = in_a_child(root, None)
        answer = {
            "point": point,
            "killed": os.WTERMSIG(killed),
            "unsound": [str(finding) for finding in between.unsound],
            "lost": sorted(versions - readable),
            "resumed": resumed,
            "equal": contents(root) == whole,
        }
        print(json.dumps(answer), flush=True)
        shutil.rmtree(root)


def _is_whole(folder: Path, files: tuple) -> bool:
    return all((folder / entry.path).is_file() and (folder / entry.path).stat().st_size == entry.bytes for entry in files)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
