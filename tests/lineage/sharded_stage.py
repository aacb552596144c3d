"""A stage of two shard maps, words and their lengths, in a module that other processes can import."""

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lineage.build.nodes import Node
from lineage.shards.run import SCRATCH_FOLDER
from lineage.stage import Stage
from lineage.writing.writer import Writer

NAMES = tuple("abcdefg")


@dataclass(frozen=True)
class Words:
    """One shard a word. A file `<root>/die-<word>` (of a bucket: in its scratch folder) makes the shard that finds it take it
    away and kill its process; `bad-<word>` makes it fail, and while there is a `wait-<word>` it waits."""

    words: tuple[str, ...] = NAMES


def write_word(folder: Path, word: str, root: Path) -> Mapping[str, int]:
    with (root / "log").open("a") as stream:
        stream.write(f"{word}\n")
    (folder / SCRATCH_FOLDER).mkdir()
    (folder / SCRATCH_FOLDER / f"{word}.txt").write_text(word * 1000)
    while (root / f"wait-{word}").exists():
        time.sleep(0.05)
    if (root / f"bad-{word}").exists():
        raise ValueError(f"{word} cannot be read")
    deadly = root / f"die-{word}"
    if deadly.exists():
        deadly.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"letters": 1000}


def measure(folder: Path, word: str, scratch: Path, root: Path) -> Mapping[str, int]:
    with (root / "log").open("a") as stream:
        stream.write(f"{word.upper()}\n")
    (folder / f"{word}.txt").write_text(str(len((scratch / f"{word}.txt").read_text())))
    return {"letters": 1000}


def write_lengths(out: Writer, config: Words) -> None:
    root = Path(out.store.root) if out.store.storage.is_local else out.store.scratch
    written = out.map_shards(write_word, {f"write-{w}": (w, root) for w in config.words}, omittable=True)
    words = [name.removeprefix("write-") for name in written]
    done = out.map_shards(measure, {f"measure-{w}": (w, out.folder / SCRATCH_FOLDER, root) for w in words})
    out.record(rows_in=len(done), rows_out=len(done), drops={})


LENGTHS = Stage("tests.lengths", "1", write_lengths)


def lengths() -> Node:
    return Node(("tests", "lengths"), "p", LENGTHS, Words())
