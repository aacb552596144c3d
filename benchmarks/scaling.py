"""What a second worker gives each stage of the data engine, and that no number of workers changes a byte.

    PYTHONPATH=. .venv/bin/python benchmarks/scaling.py --mb 400 --repeats 3
    PYTHONPATH=. .venv/bin/python benchmarks/scaling.py --mb 8 --part-mb 1 --repeats 1       # shows that it works

One source, built once; then each per-source stage again over the same inputs with one and with two workers, alternating, each
time in a fresh process, and once each with eight workers and with the shards in another order. A worker is a core here: polars,
Arrow and the tokenizers get one thread a process (`THREADS`), as they would share a machine's cores with other workers. The
clock covers the stage, from its first read to its manifest, worker processes' start included; that start is measured beside
it (a pool whose workers import the stage's module and return), because it does not grow with the source. Peak memory is the
resident bytes of all processes of a stage together, sampled. Wall-clock ratios want an idle machine. The bar of issue 3: two
workers at least 1.7 times as fast as one, start excluded; digests all equal.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.data_line import line, write_source
from benchmarks.memory import measured
from benchmarks.shuffled_shards import shuffled
from lineage.plan import Node, build, exists, resolve
from lineage.shards import ShardFolder, run_shards
from lineage.store import Store

PER_SOURCE = ("normalized", "minhash", "quality", "contamination", "corpus", "tokens")
THREADS = dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
BAR = 1.7


def import_stage(folder: Path, module: str) -> Mapping[str, Any]:
    """A shard that does nothing but what every worker does first."""
    import_module(module)
    return {}


def start_seconds(module: str, workers: int) -> float:
    """How long it takes until every worker of a pool has imported a stage's module and said so; 0 without a pool."""
    if workers == 1:
        return 0.0
    with TemporaryDirectory() as folder:
        started = time.perf_counter()
        tasks = {f"{i}": (module,) for i in range(workers)}
        run_shards(ShardFolder(Path(folder)), import_stage, tasks, workers=workers, title="start")
        return time.perf_counter() - started


def run_stage(arguments: argparse.Namespace) -> None:
    """In a process of its own: make one node again and say how long that took and what came out, as JSON."""
    node = line(arguments.folder, arguments.part_bytes, arguments.container)[arguments.stage]
    store = Store(str(arguments.root), workers=arguments.workers)
    if exists(store, node):
        store.delete(resolve(store, node))
    start_seconds(node.stage.module, arguments.workers)  # the first pool starts the server that workers are forked from
    start = start_seconds(node.stage.module, arguments.workers)
    if arguments.seed:
        node = shuffled(node, arguments.seed, ancestors=False)
    started = time.perf_counter()
    artifact = build(store, node).artifact
    use = {"wall": time.perf_counter() - started, "start": start, "cpu": artifact.manifest.resources.cpu_seconds}
    print(json.dumps(use | {"data_version": artifact.data_version}))


def runs(repeats: int) -> Iterator[tuple[int, int]]:
    """(workers, seed of the order of shards) of every run of a stage: one and two alternate, then eight, then shuffled."""
    for _ in range(repeats):
        yield from ((1, 0), (2, 0))
    yield from ((8, 0), (1, 1))


def ancestors(node: Node) -> Iterator[Node]:
    """All that a node is made of."""
    for parent in node.parents():
        yield parent
        yield from ancestors(parent)


def compare(arguments: argparse.Namespace) -> None:
    """Build the line once, then each stage again and again; print a table."""
    part_bytes = round(arguments.part_mb * 1e6)
    folder, root = (arguments.scratch / f"{kind}-{arguments.mb:g}-{arguments.container}" for kind in ("files", "store"))
    print(f"{write_source(folder, arguments.mb, arguments.container) / 1e6:.1f} MB of text in {folder}", flush=True)
    own = [sys.executable, "-m", "benchmarks.scaling", "--folder", str(folder), "--root", str(root)]
    own += ["--part-bytes", str(part_bytes), "--container", arguments.container, "--stage"]
    nodes = line(folder, part_bytes, arguments.container)
    needed = {parent.key[0] for stage in arguments.stages for parent in ancestors(nodes[stage])}
    for stage in (name for name in nodes if name in needed):
        if not exists(Store(str(root)), nodes[stage]):
            measured([*own, stage, "--workers", "2"], THREADS)
    columns = (
        "stage",
        "1 worker, s",
        "2 workers, s",
        "of it start",
        "speed-up",
        "without start",
        "MB/s of 1",
        "peak MiB of 1 and 2",
    )
    print("\n| " + " | ".join((*columns, "digests")) + " |\n" + "|---" * (len(columns) + 1) + "|")
    for stage in arguments.stages:
        times: dict[tuple[int, int], list[float]] = {}
        starts, digests = [], set()
        peaks: dict[int, int] = {}
        for workers, seed in runs(arguments.repeats):
            use: dict[str, Any] = measured([*own, stage, "--workers", str(workers), "--seed", str(seed)], THREADS)
            times.setdefault((workers, seed), []).append(use["wall"])
            digests.add(use["data_version"])
            peaks[workers] = max(peaks.get(workers, 0), use["tree"])
            if workers == 2:
                starts.append(use["start"])
        one, two = times[1, 0], times[2, 0]
        start, equal = statistics.median(starts), "equal" if len(digests) == 1 else f"{len(digests)} different"
        whole, bare = (statistics.median(one) / (statistics.median(two) - s) for s in (0.0, start))
        held = "" if bare >= BAR else " (bar missed)"
        print(
            f"| {stage} | {_spread(one)} | {_spread(two)} | {start:.2f} | {whole:.2f} | {bare:.2f}{held} | "
            f"{arguments.mb / statistics.median(one):.1f} | {peaks[1] >> 20} and {peaks[2] >> 20} | {equal} |",
            flush=True,
        )


def _spread(seconds: list[float]) -> str:
    """Median, and the fastest and slowest."""
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed-up of two workers by stage, and digests for any number of workers.")
    parser.add_argument("--mb", type=float, default=400)
    parser.add_argument("--part-mb", type=float, default=16, help="text of one part")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--stages", nargs="+", choices=PER_SOURCE, default=list(PER_SOURCE))
    parser.add_argument("--container", choices=("jsonl", "parquet"), default="jsonl")
    parser.add_argument("--scratch", type=Path, default=Path(".marin/benchmarks/scaling"))
    for name, kind in (("stage", str), ("folder", Path), ("root", Path), ("workers", int), ("seed", int), ("part-bytes", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stage is not None:
        run_stage(arguments)
    else:
        arguments.scratch = arguments.scratch.resolve()
        compare(arguments)


if __name__ == "__main__":
    main()
