"""Near-duplicates of one scope by this machine's workers and by a Ray cluster that loses a machine; digests compared.

    PYTHONPATH=. .venv-extras/bin/python -m benchmarks.scale_test --mb 80        # or `make scale-test`

The cluster is real: a head without cores and two raylets of one core each, as processes of this machine. One raylet is
killed after the first shuffle, so Ray makes again what it held, and a third joins. Documents are pieces of the source
files that are installed here. Bytes are those of Arrow buffers: what the tasks of a shuffle handed to its ranges, and
what the ranges gave back. Exit status 1 if the digests differ.
"""

import argparse
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table

from benchmarks.ray_machines import RayMachines, ray_machines
from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig, find_duplicates
from datakit.dedup.minhash import MINHASH, preset, sign_documents
from datakit.documents.parts import DOCUMENTS, write_sorted_parts
from datakit.documents.schemas import DUPLICATES_FILE
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, spec_of
from lineage.shards.execution import Execution
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.tables.local import LocalEngine
from lineage.tables.ray_tasks import RayEngine
from lineage.tables.shuffle import Moved, Part, Shards, Shuffle, TableEngine
from lineage.writing.working_folder import SCRATCH_FOLDER
from lineage.writing.write import writing
from lineage.writing.writer import Writer

PIECE_CHARS = 400
PART_BYTES = 4 << 20


def no_documents(out: Writer, config: str) -> None:
    """The documents lie in the store already."""
    raise AssertionError(f"the documents of {config} are missing from {out.store.root}")


DOCUMENTS_OF = Node(("scale", "documents"), None, Stage("benchmarks.documents", "1", no_documents), "installed")
SIGNATURES = Node(("scale", "minhash"), None, MINHASH, preset("14x8"), {"normalized": DOCUMENTS_OF})
CLUSTERS = Node(
    ("scale", "duplicates"),
    None,
    DUPLICATES,
    DuplicatesConfig(),
    {"normalized": (DOCUMENTS_OF,), "minhash": (SIGNATURES,)},
)


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


def prepare(store: Store, megabytes: float) -> tuple[Artifact, Artifact]:
    """Write documents and their signatures."""
    texts = pl.DataFrame({"text": list(pieces(megabytes))}).unique()
    ids = pl.Series("id", [text_digest(text) for text in texts["text"]], pl.String)
    table = texts.with_columns(ids, source=pl.lit("installed"), metadata=pl.lit('{"source_id": ""}'))
    with writing(store, spec_of(store, DOCUMENTS_OF)) as documents:
        write_sorted_parts(documents.folder, DOCUMENTS, table.sort("id").select("id", "text", "source", "metadata"), PART_BYTES)
        documents.record(rows_in=table.height, rows_out=table.height)
    with writing(store, spec_of(store, SIGNATURES)) as signatures:
        sign_documents(signatures, preset("14x8"), documents.artifact)
    return documents.artifact, signatures.artifact


def deduplicated(root: Path, given: Path, engine: TableEngine, workers: int) -> tuple[str, float]:
    """Return the digest of the clusters that an engine finds in a copy of the store, and the seconds."""
    store = Store(str(shutil.copytree(given, root)))
    documents, signatures = (next(store.artifacts("scale", name)) for name in ("documents", "minhash"))
    start = time.monotonic()
    with writing(store, spec_of(store, CLUSTERS), execution=Execution(workers, tables=engine)) as out:
        find_duplicates(out, DuplicatesConfig(), (documents,), (signatures,))
    (file,) = (file for file in out.artifact.manifest.files if file.path == DUPLICATES_FILE)
    return file.digest, time.monotonic() - start


def report(console: Console, title: str, moved: list[Moved], seconds: float, digest: str) -> None:
    """Print one engine's table."""
    table = Table("shuffle", "MB shuffled", "MB written", title=f"{title}: {seconds:.1f} s, {digest[:24]}")
    for one in moved:
        table.add_row(one.name, f"{one.shuffled / 1e6:.2f}", f"{one.written / 1e6:.2f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the engines of shuffles while a machine dies.")
    parser.add_argument("--mb", type=float, default=80.0)
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        documents, _ = prepare(Store(str(folder / "given")), arguments.mb)
        console.print(f"{documents.manifest.statistics['rows_out']:,} documents, {arguments.mb:g} MB of text")
        digests = set()
        for workers in (1, 2):
            local = LocalEngine(SCRATCH_FOLDER, workers)
            digest, seconds = deduplicated(folder / f"local-{workers}", folder / "given", local, workers)
            report(console, f"local, {workers} workers", local.moved, seconds, digest)
            digests.add(digest)
        with ray_machines() as machines:
            victim, _ = machines.add(), machines.add()
            losing = LosingRay(machines, victim)
            digest, seconds = deduplicated(folder / "ray", folder / "given", losing, 1)
        report(console, "Ray, two machines, one killed", losing.moved, seconds, digest)
        digests.add(digest)
    console.print("digests are equal" if len(digests) == 1 else f"digests differ: {sorted(digests)}")
    sys.exit(len(digests) != 1)


if __name__ == "__main__":
    main()
