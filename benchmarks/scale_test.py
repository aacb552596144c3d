"""Near-duplicates of one scope by this machine's workers, one of which is killed, and by a Ray cluster that loses a machine.

    PYTHONPATH=. .venv-extras/bin/python -m benchmarks.scale_test --mb 80        # or `make scale-test`
    PYTHONPATH=. .venv-extras/bin/python -m benchmarks.scale_test --mb 2000 --text generated

Digests are compared. A worker of this machine is killed after the first shuffle: a new one runs its shard again, and it is an
error if a shard that was finished by then runs again, too. The cluster is real: a head without cores and two raylets of one
core each, as processes of this machine. One raylet is killed after the first shuffle, so Ray makes again what it held, and a
third joins. Documents are pieces of the source files that are installed here, or generated with planted copies
(`generated_text.py`). Bytes are those of Arrow buffers: what the tasks of a shuffle handed to its ranges, and what the ranges
gave back. CPU seconds and memory are those of the stage's process and its descendants: shared pages count in each, what killed
processes had used is lost. Exit status 1 if the digests differ.
"""

import argparse
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table

from benchmarks.generated_text import SPEECHES, learnt, write
from benchmarks.given_files import GIVEN_FILES
from benchmarks.losing_local import LosingLocal
from benchmarks.ray_machines import RayMachines, ray_machines
from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig
from datakit.dedup.minhash import MINHASH, preset
from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.sources.source import Records
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.shards.run import SCRATCH_FOLDER
from lineage.shards.worker_pool import WorkerPool
from lineage.tables.local import LocalEngine
from lineage.tables.ray_tasks import RayEngine
from lineage.tables.shuffle import Moved, Part, Shards, Shuffle, TableEngine

PIECE_CHARS = 400
PART_BYTES, MOST_PARTS = 4 << 20, 64
SEED = 5
TEXTS = ("installed", "generated")


@dataclass
class LosingRay:
    """A Ray engine whose cluster loses a machine after the first shuffle."""

    machines: RayMachines
    victim: Any
    ray: RayEngine = field(init=False)

    def __post_init__(self) -> None:
        self.ray = RayEngine(self.machines.address)

    @property
    def moved(self) -> list[Moved]:
        return self.ray.moved

    def shuffle(self, out: Shards, step: Shuffle) -> tuple[Part, ...]:
        """Run a shuffle; after the first one kill a machine and start another."""
        parts = self.ray.shuffle(out, step)
        if len(self.moved) == 1:
            self.machines.kill(self.victim)
            self.machines.add()
        return parts

    def table(self, part: Part) -> Any:
        """Fetch one part."""
        return self.ray.table(part)


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
    """From the files of a folder to clusters, in order."""
    part_bytes = max(PART_BYTES, int(megabytes * 1e6) // MOST_PARTS)
    raw = Node(("scale", "raw"), None, GIVEN_FILES, {"from": str(folder), "below": "files"})
    config = NormalizeConfig("scale", Records("parquet"), "prose", target_part_bytes=part_bytes)
    documents = Node(("scale", "documents"), None, NORMALIZE, config, {"raw": raw})
    signatures = Node(("scale", "minhash"), None, MINHASH, preset("14x8"), {"normalized": documents})
    scope = {"normalized": (documents,), "minhash": (signatures,)}
    return [raw, documents, signatures, Node(("scale", "duplicates"), None, DUPLICATES, DuplicatesConfig(), scope)]


def deduplicated(
    root: Path, given: Path, clusters: Node, engine: TableEngine, workers: int, pool: WorkerPool | None = None
) -> Artifact:
    """Return the clusters that an engine finds in a copy of the store, whose tables are links."""
    shutil.copytree(given, root, copy_function=lambda source, target: link_table(Path(source), Path(target)))
    return build(Store(str(root)), clusters, execution=Execution(workers, tables=engine, pool=pool)).artifact


def link_table(source: Path, target: Path) -> None:
    """Link what nobody changes, copy the rest."""
    if source.suffix == ".parquet":
        target.hardlink_to(source)
    else:
        shutil.copy2(source, target)


def report(console: Console, title: str, moved: list[Moved], made: Artifact) -> str:
    """Print one engine's table; return the digest of all files that it made."""
    use = made.manifest.resources
    cost = f"{use.wall_seconds:.1f} s, {use.cpu_seconds:.1f} CPU s, {use.peak_rss_bytes / 2**20:,.0f} MiB"
    console.print(f"{title}: {cost}, {made.data_version}")
    table = Table("shuffle", "MB shuffled", "MB written")
    for name, shuffled, written in (*((one.name, one.shuffled, one.written) for one in moved), total(moved)):
        table.add_row(name, f"{shuffled / 1e6:.2f}", f"{written / 1e6:.2f}")
    console.print(table)
    return made.data_version


def total(moved: list[Moved]) -> tuple[str, int, int]:
    """Return the last row of a table."""
    return "all", sum(one.shuffled for one in moved), sum(one.written for one in moved)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the engines of shuffles while a machine dies.")
    parser.add_argument("--mb", type=float, default=80.0)
    parser.add_argument("--text", default=TEXTS[0], help=f"{', '.join(TEXTS)}, or a folder of Parquet files (`id`, `text`)")
    parser.add_argument("--folder", type=Path, help="where text and stores lie; the system's temporary folder by default")
    arguments = parser.parse_args()
    console = Console(width=140)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        folder = Path(scratch).resolve()
        given = folder / "given"
        *before, clusters = nodes(text_files(folder, arguments.text, arguments.mb), arguments.mb)
        for node in before:
            documents = build(Store(str(given)), node, execution=Execution(2)).artifact.manifest.statistics.get("rows_out")
        console.print(f"{documents:,} documents, {arguments.mb:g} MB of text")
        digests = set()
        for workers in (1, 2):
            local = LocalEngine(SCRATCH_FOLDER, workers)
            made = deduplicated(folder / f"local-{workers}", given, clusters, local, workers)
            digests.add(report(console, f"local, {workers} workers", local.moved, made))
        with WorkerPool() as pool:
            lost = LosingLocal(LocalEngine(SCRATCH_FOLDER, 2), pool)
            made = deduplicated(folder / "local-killed", given, clusters, lost, 2, pool)
        digests.add(report(console, "local, 2 workers, one killed", lost.moved, made))
        if lost.lost is None:
            raise RuntimeError("no worker was killed, because this process ran all shards: take more text (--mb)")
        console.print(f"killed in {lost.lost}; none of the {lost.kept} shards that were finished then ran again")
        with ray_machines() as machines:
            victim, _ = machines.add(), machines.add()
            losing = LosingRay(machines, victim)
            made = deduplicated(folder / "ray", given, clusters, losing, 1)
        digests.add(report(console, "Ray, two machines, one killed", losing.moved, made))
    console.print("digests are equal" if len(digests) == 1 else f"digests differ: {sorted(digests)}")
    sys.exit(len(digests) != 1)


if __name__ == "__main__":
    main()
