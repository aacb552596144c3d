"""Near-duplicates, repeated paragraphs and contained documents of one scope by workers of this machine, one of which is
killed, and by a Ray cluster that loses a machine.

    PYTHONPATH=. .venv-extras/bin/python -m benchmarks.scale_test --mb 80        # or `make scale-test`
    PYTHONPATH=. .venv-extras/bin/python -m benchmarks.scale_test --mb 2000 --text generated

Digests are compared. In the largest shuffle of each stage a worker of this machine is killed: a new one runs its shard again,
and it is an error if a shard that was finished by then runs again, too. The cluster is real: a head without cores and two
raylets of one core each, as processes of this machine. In the same shuffle the raylet is killed that first has a quarter of the
reads, in its next one. Ray runs what it held and what it ran again, and then another raylet joins. Documents are pieces of the
source files that are installed here, or generated with planted copies (`generated_text.py`). Ranges are smaller below 400 MB of
text, so that there are several. Bytes are those of Arrow buffers: what the tasks of a shuffle handed to its ranges, and what
the ranges gave back. CPU seconds and memory are those of the stage's process and its descendants: shared pages count in each,
what killed processes had used is lost. Exit status 1 if the digests of a stage differ.
"""

import argparse
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import polars as pl
from rich.console import Console
from rich.table import Table

from benchmarks.generated_text import SPEECHES, learnt, write
from benchmarks.given_files import GIVEN_FILES
from benchmarks.losing_local import LosingLocal
from benchmarks.losing_ray import LosingRay
from benchmarks.ray_machines import ray_machines
from datakit.dedup.containment import CONTAINMENT
from datakit.dedup.containment_candidates import ContainmentConfig
from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig
from datakit.dedup.minhash import MINHASH, preset
from datakit.dedup.paragraphs import PARAGRAPHS, ParagraphsConfig
from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.sources.source import Records
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.shards.run import SCRATCH_FOLDER
from lineage.shards.worker_pool import WorkerPool
from lineage.tables import shuffle
from lineage.tables.local import LocalEngine
from lineage.tables.shuffle import Moved

PIECE_CHARS = 400
PART_BYTES, MOST_PARTS = 4 << 20, 64
FEWEST_RANGES = 24
"""How many all the text would fill. Of 40 MB a range of a task has more than the 100 kB that Ray keeps with the caller."""
SEED = 5
TEXTS = ("installed", "generated")
SHUFFLING = 3
"""Stages that shuffle, at the end of `nodes`."""

type Largest = dict[str, str]
"""Stage -> its largest shuffle, by the bytes that one worker moved."""

type Engine = LocalEngine | LosingLocal | LosingRay


def pieces(megabytes: float) -> Iterator[str]:
    """Yield pieces of installed source files, in the order of their names."""
    size = 0
    for path in sorted(Path(sysconfig.get_path("purelib")).rglob("*.py")):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for start in range(0, len(text), PIECE_CHARS):
            yield text[start : start + PIECE_CHARS]
        size += len(text)
        if size > megabytes * 1e6:
            return


def text_files(folder: Path, text: str, megabytes: float) -> Path:
    """Return the folder with the documents of `--text` as Parquet files; write them below `folder` if they are none."""
    if text not in TEXTS:
        return Path(text).resolve()
    if text == "generated":
        write(folder / text, learnt(SPEECHES), int(megabytes * 1e6), SEED)
    else:
        table = pl.DataFrame({"text": list(pieces(megabytes))}).with_row_index("id")
        (folder / text).mkdir()
        table.write_parquet(folder / text / "part-00000.parquet", row_group_size=2_048)
    return folder / text


def nodes(folder: Path, megabytes: float) -> list[Node]:
    """From the files of a folder to signatures, in order, and then `SHUFFLING` stages that shuffle."""
    part_bytes = max(PART_BYTES, int(megabytes * 1e6) // MOST_PARTS)
    raw = Node(("scale", "raw"), None, GIVEN_FILES, {"from": str(folder), "below": "files"})
    config = NormalizeConfig("scale", Records("parquet"), "prose", target_part_bytes=part_bytes)
    documents = Node(("scale", "documents"), None, NORMALIZE, config, {"raw": raw})
    signatures = Node(("scale", "minhash"), None, MINHASH, preset("14x8"), {"normalized": documents})
    scope = {"normalized": (documents,), "minhash": (signatures,)}
    duplicates = Node(("scale", "duplicates"), None, DUPLICATES, DuplicatesConfig(), scope)
    inputs = {"normalized": (documents,), "duplicates": duplicates}
    paragraphs = Node(("scale", "paragraphs"), None, PARAGRAPHS, ParagraphsConfig(), inputs)
    containment = Node(("scale", "containment"), None, CONTAINMENT, ContainmentConfig(), inputs)
    return [raw, documents, signatures, duplicates, paragraphs, containment]


def copied(given: Path, root: Path) -> Store:
    """Return a copy of a store, whose tables are links."""
    shutil.copytree(given, root, copy_function=lambda source, target: link_table(Path(source), Path(target)))
    return Store(str(root))


def link_table(source: Path, target: Path) -> None:
    """Link what nobody changes, copy the rest."""
    if source.suffix == ".parquet":
        target.hardlink_to(source)
    else:
        shutil.copy2(source, target)


def shuffled(console: Console, side: str, store: Store, node: Node, engine: Engine, execution: Execution) -> str:
    """Run a stage, print what its engine took, and return the digest of all files that it made."""
    made = build(store, node, execution=replace(execution, tables=engine)).artifact
    moved, use = engine.moved, made.manifest.resources
    cost = f"{use.wall_seconds:.1f} s, {use.cpu_seconds:.1f} CPU s, {use.peak_rss_bytes / 2**20:,.0f} MiB"
    console.print(f"{node.key[-1]}, {side}: {cost}, {made.data_version}")
    table = Table("shuffle", "MB shuffled", "MB written")
    for name, given, written in (*((one.name, one.shuffled, one.written) for one in moved), total(moved)):
        table.add_row(name, f"{given / 1e6:.2f}", f"{written / 1e6:.2f}")
    console.print(table)
    return made.data_version


def total(moved: list[Moved]) -> tuple[str, int, int]:
    """Return the last row of a table."""
    return "all", sum(one.shuffled for one in moved), sum(one.written for one in moved)


def by_workers(console: Console, store: Store, stages: Sequence[Node], largest: Largest, workers: int) -> list[str]:
    """Run stages by workers of this machine; return a digest of each, and note its largest shuffle."""
    made = []
    for node in stages:
        engine = LocalEngine(SCRATCH_FOLDER, workers)
        made.append(shuffled(console, f"local, {workers} workers", store, node, engine, Execution(workers)))
        largest.setdefault(node.key[-1], max(engine.moved, key=lambda moved: moved.shuffled).name)
    return made


def by_lost_worker(console: Console, store: Store, stages: Sequence[Node], largest: Largest) -> list[str]:
    """Run stages by two workers, of which one is killed in each. Raises: RuntimeError if none was."""
    made = []
    for node in stages:
        with WorkerPool() as pool:
            losing = LosingLocal(LocalEngine(SCRATCH_FOLDER, 2), pool, largest[node.key[-1]])
            execution = Execution(2, pool=pool)
            made.append(shuffled(console, "local, 2 workers, one killed", store, node, losing, execution))
        if losing.lost is None:
            raise RuntimeError(f"{losing.killed_in}: no worker was killed, because this process ran all shards: more --mb")
        console.print(f"killed in {losing.lost}; none of the {losing.kept} shards that were finished then ran again")
    return made


def by_lost_machine(console: Console, store: Store, stages: Sequence[Node], largest: Largest, marks: Path) -> list[str]:
    """Run stages by two machines of a Ray cluster, of which one is killed in each, and another one joins."""
    made = []
    with ray_machines() as machines:
        running = [machines.add(), machines.add()]
        for node in stages:
            name = node.key[-1]
            losing = LosingRay(machines, running, marks / name, largest[name])
            made.append(shuffled(console, "Ray, two machines, one killed", store, node, losing, Execution(1)))
            console.print(f"a machine was killed in {losing.killed_in}; {losing.again} of its reads ran again")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the engines of shuffles while a machine dies.")
    parser.add_argument("--mb", type=float, default=80.0)
    parser.add_argument("--text", default=TEXTS[0], help=f"{', '.join(TEXTS)}, or a folder of Parquet files (`id`, `text`)")
    parser.add_argument("--folder", type=Path, help="where text and stores lie; the system's temporary folder by default")
    arguments = parser.parse_args()
    console = Console(width=140)
    range_bytes = min(shuffle.RANGE_BYTES, int(arguments.mb * 1e6) // FEWEST_RANGES)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch, patch.object(shuffle, "RANGE_BYTES", range_bytes):
        folder = Path(scratch).resolve()
        given = folder / "given"
        every = nodes(text_files(folder, arguments.text, arguments.mb), arguments.mb)
        before, stages = every[:-SHUFFLING], every[-SHUFFLING:]
        *_, signed = [build(Store(str(given)), node, execution=Execution(2)).artifact for node in before]
        documents = signed.manifest.statistics["rows_out"]
        console.print(f"{documents:,} documents, {arguments.mb:g} MB of text, ranges of {range_bytes / 2**20:.2g} MiB")
        lost_machine = partial(by_lost_machine, marks=folder / "marks")
        sides = (partial(by_workers, workers=1), partial(by_workers, workers=2), by_lost_worker, lost_machine)
        stores = [copied(given, folder / f"side-{index}") for index in range(len(sides))]
        largest: Largest = {}
        made = [side(console, store, stages, largest) for side, store in zip(sides, stores, strict=True)]
    digests = {node.key[-1]: set(of_stage) for node, of_stage in zip(stages, zip(*made, strict=True), strict=True)}
    for name, found in digests.items():
        console.print(f"{name}: digests are equal" if len(found) == 1 else f"{name}: digests differ: {sorted(found)}")
    sys.exit(any(len(found) != 1 for found in digests.values()))


if __name__ == "__main__":
    main()
