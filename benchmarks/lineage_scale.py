"""Lineage at scale: seconds for the tables and walks of a store with many artifacts and edges.

    PYTHONPATH=. .venv/bin/python benchmarks/lineage_scale.py --artifacts 100000 --inputs 10

Writes that many manifests (no data files) in layers of a tenth, every one with inputs drawn from the layer before. The bars
(issue 6): ancestors of one checkpoint in 1 s, everything from manifests on a local store in 60 s. "first query" lists, reads
every manifest and saves the tables; "next query" lists and finds nothing new; walks include building the graph.
"""

import argparse
import datetime
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lineage.artifact.manifest import MANIFEST_NAME, Manifest, ResourceUse, content_version, to_json
from lineage.artifact.spec import ArtifactSpec, InputRef
from lineage.artifact.store import Store
from lineage.graph.edges import lineage_tables, read_tables
from lineage.graph.walk import LineageGraph

LAYERS = 10
FIRST = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifacts", type=int, default=100_000)
    parser.add_argument("--inputs", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lineage-bench-") as root:
        last = write_manifests(Path(root), options.artifacts, options.inputs)
        store = Store(root)
        tables = timed("first query, from manifests alone", lambda: lineage_tables(store))
        print(f"{tables.artifacts.height:,} artifacts, {tables.edges.height:,} edges")
        timed("next query, nothing new", lambda: lineage_tables(store))
        saved = timed("reading the saved tables", lambda: read_tables(store))
        assert saved is not None
        graph = LineageGraph(saved)
        up = timed("ancestors of one artifact, graph included", lambda: graph.walk(last, "up"))
        print(f"{len(up):,} ancestors")
        timed("ancestors of one artifact, again", lambda: graph.walk(last, "up"))
        down = timed("descendants of its oldest ancestor", lambda: graph.walk(up[-1], "down"))
        print(f"{len(down):,} descendants")
        timed("all of them, oldest first", lambda: graph.oldest_first(down))


def timed[T](what: str, work: Callable[[], T]) -> T:
    started, cpu = time.perf_counter(), time.process_time()
    result = work()
    print(f"{time.perf_counter() - started:8.2f} s {time.process_time() - cpu:8.2f} CPU s  {what}", flush=True)
    return result


def write_manifests(root: Path, count: int, inputs: int) -> str:
    """Manifests as the store would leave them; the address of the last."""
    chance, layer, refs, above = random.Random(7), max(1, count // LAYERS), list[InputRef](), list[InputRef]()
    for number in range(count):
        if number % layer == 0:
            above = refs[-layer:]
        chosen = chance.sample(above, min(inputs, len(above)))
        named = tuple(InputRef(f"inputs.{i}", r.key, r.partition, r.data_version, r.address) for i, r in enumerate(chosen))
        manifest = _manifest(number, named)
        spec = manifest.spec
        folder = root / spec.address
        folder.mkdir(parents=True)
        (folder / MANIFEST_NAME).write_text(to_json(manifest))
        refs.append(InputRef("", spec.key, spec.partition, manifest.data_version, spec.address))
    return refs[-1].address


def _manifest(number: int, inputs: tuple[InputRef, ...]) -> Manifest:
    return Manifest(
        spec=ArtifactSpec(("bench", f"k{number % 100}"), f"p{number}", "bench.stage", "1", {"number": number}, inputs),
        data_version=content_version(()),
        data_folder="data-0",
        files=(),
        statistics={},
        extra={},
        resources=ResourceUse(1.0, 1.0, 1),
        code_fingerprint="",
        created=(FIRST + datetime.timedelta(seconds=number)).isoformat(timespec="milliseconds"),
        run_id="",
        packages={},
    )


if __name__ == "__main__":
    main()
