"""What a second worker gives each stage of the data engine, and that no number of workers changes a byte.

    PYTHONPATH=. .venv/bin/python benchmarks/scaling.py --mb 400 --repeats 3
    PYTHONPATH=. .venv/bin/python benchmarks/scaling.py --mb 8 --part-mb 1 --repeats 1       # shows that it works

One source, built once; then each per-source stage again over the same inputs: with one worker, with two, and twice with one
worker side by side over two copies of the store, in turn and each time in fresh processes; and once each with eight workers and
with the shards in another order. A worker is a core: polars, Arrow and the tokenizers get one thread a process (`THREADS`),
as they would share the cores with other workers.

The clock covers the stage, from its first read to its manifest, in a process that is ready: modules imported, compiled loops
loaded, the fingerprint of their code taken, and two workers of a pool started that are as ready. That start does not grow with
the source, is paid once for all stages that a process makes, and stands beside it. Two runs side by side, each kept to a core
as two workers are (`lineage/shards/cores.py`), share nothing but the machine: what they do in the time of one, over one, is the
most that two workers can be here (`ceiling`; caches, memory, disk and a hypervisor take the rest). Linux alone. Peak memory is
the resident bytes of all processes of a stage together, sampled. Wall-clock ratios want an idle machine, and one that has both
cores to itself: on a shared host two processes that only count took twice as long as one for minutes on end (2026-11-23), so
the script prints what they do before and after. The bar of issue 3: two workers at least 1.7 times as fast as one, start
excluded; digests equal.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.data_line import line, write_source
from benchmarks.memory import measured
from benchmarks.shuffled_shards import shuffled
from benchmarks.worker_start import import_stage
from lineage.artifact.store import Store
from lineage.build.nodes import Node, exists, resolve
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.shards.worker_pool import WorkerPool
from lineage.trust.fingerprint import stage_code

PER_SOURCE = ("normalized", "minhash", "quality", "contamination", "corpus", "tokens")
THREADS = dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
BAR = 1.7
READY = "ready"
BESIDE = (0, 0)
COUNT = "import time; t = time.perf_counter(); sum(i * i for i in range(6_000_000)); print(time.perf_counter() - t)"


def start_seconds(pool: WorkerPool, module: str, workers: int) -> float:
    """How long it takes until every worker of a pool has imported a stage's module and said so; 0 for this process alone."""
    if workers == 1:
        return 0.0
    started = time.perf_counter()
    pool.map(import_stage, [(module,)] * workers, workers, None)
    return time.perf_counter() - started


def run_stage(arguments: argparse.Namespace) -> None:
    """In a separate process: make one node again and say how long that took and what came out, as JSON."""
    node = line(arguments.folder, arguments.part_bytes, arguments.container)[arguments.stage]
    with WorkerPool() as pool:
        store = Store(str(arguments.root))
        if exists(store, node):
            store.delete(resolve(store, node))
        stage_code(node.stage.module)
        import_stage(node.stage.module)
        start = start_seconds(pool, node.stage.module, arguments.workers)
        if arguments.seed:
            node = shuffled(node, arguments.seed, ancestors=False)
        if arguments.meet:
            print(READY, flush=True)
            sys.stdin.readline()
        started = time.perf_counter()
        artifact = build(store, node, execution=Execution(arguments.workers, pool=pool)).artifact
        use = {"wall": time.perf_counter() - started, "start": start, "cpu": artifact.manifest.resources.cpu_seconds}
    print(json.dumps(use | {"data_version": artifact.data_version}))


def side_by_side(commands: Sequence[Sequence[str]], log: Path) -> list[dict[str, Any]]:
    """Run commands that begin together once all are ready; what each said.

    Raises: RuntimeError naming the log when one fails.
    """
    pipe = subprocess.PIPE
    with log.open("w") as errors:
        environment = {**os.environ, **THREADS}
        processes = [
            subprocess.Popen([*command, "--meet"], stdin=pipe, stdout=pipe, stderr=errors, text=True, env=environment)
            for command in commands
        ]
        for core, process in zip(sorted(os.sched_getaffinity(0)), processes, strict=False):
            os.sched_setaffinity(process.pid, {core})  # its threads come later and take after it
        for process in processes:
            assert process.stdout is not None  # opened as a pipe
            if process.stdout.readline().strip() != READY:
                raise RuntimeError(f"{process.args} ended before it began; see {log}")
        for process in processes:
            assert process.stdin is not None  # opened as a pipe
            process.stdin.write("\n")
            process.stdin.flush()
        outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError(f"a run side by side failed; see {log}")
    return [json.loads(output.splitlines()[-1]) for output in outputs]


def cores_here() -> float:
    """What two processes that only count do in the time of one: 2 where both cores are ours."""

    def seconds(number: int) -> float:
        processes = [subprocess.Popen([sys.executable, "-c", COUNT], stdout=subprocess.PIPE, text=True) for _ in range(number)]
        return max(float(process.communicate()[0]) for process in processes)

    return 2 * seconds(1) / seconds(2)


def runs(repeats: int) -> Iterator[tuple[int, int]]:
    """(workers, seed of the order of shards) of every run of a stage; BESIDE, two with one worker each.

    One, two and side by side take turns, then eight, then shuffled.
    """
    for _ in range(repeats):
        yield from ((1, 0), (2, 0), BESIDE)
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
    size = write_source(folder, arguments.mb, arguments.container)
    print(f"{size / 1e6:.1f} MB of text in {folder}; counting alone, two processes do {cores_here():.2f} of one", flush=True)
    copy = root.with_name(f"{root.name}-beside")

    def command(stage: str, store: Path, workers: int, seed: int = 0) -> list[str]:
        own = [sys.executable, "-m", "benchmarks.scaling", "--folder", str(folder), "--root", str(store), "--stage", stage]
        own += ["--part-bytes", str(part_bytes), "--container", arguments.container]
        return [*own, "--workers", str(workers), "--seed", str(seed)]

    nodes = line(folder, part_bytes, arguments.container)
    needed = {parent.key[0] for stage in arguments.stages for parent in ancestors(nodes[stage])}
    for stage in (name for name in nodes if name in needed):
        if not exists(Store(str(root)), nodes[stage]):
            measured(command(stage, root, 2), THREADS)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy, copy_function=os.link)  # artifacts never change; a stage writes its own again
    columns = (
        "stage",
        "1 worker, s",
        "2 workers, s",
        "start, s",
        "speed-up",
        "with start",
        "ceiling",
        "MB/s of 1",
        "peak MiB of 1 and 2",
    )
    print("\n| " + " | ".join((*columns, "digests")) + " |\n" + "|---" * (len(columns) + 1) + "|")
    medians: list[tuple[float, float, float]] = []
    for stage in arguments.stages:
        times: dict[tuple[int, int], list[float]] = {}
        starts, digests = [], set()
        peaks: dict[int, int] = {}
        for workers, seed in runs(arguments.repeats):
            if (workers, seed) == BESIDE:
                pair = side_by_side([command(stage, store, 1) for store in (root, copy)], arguments.scratch / "beside.log")
                times.setdefault(BESIDE, []).append(max(use["wall"] for use in pair))
                digests |= {use["data_version"] for use in pair}
                continue
            use: dict[str, Any] = measured(command(stage, root, workers, seed), THREADS)
            times.setdefault((workers, seed), []).append(use["wall"])
            digests.add(use["data_version"])
            peaks[workers] = max(peaks.get(workers, 0), use["tree"])
            if workers == 2:
                starts.append(use["start"])
        one, two, pairs = times[1, 0], times[2, 0], times[BESIDE]
        start, equal = statistics.median(starts), "equal" if len(digests) == 1 else f"{len(digests)} different"
        bare, whole = (statistics.median(one) / (statistics.median(two) + s) for s in (0.0, start))
        ceiling = 2 * statistics.median(one) / statistics.median(pairs)
        held = "" if bare >= BAR else " (bar missed)"
        medians.append((statistics.median(one), statistics.median(two), statistics.median(pairs)))
        print(
            f"| {stage} | {_spread(one)} | {_spread(two)} | {start:.2f} | {bare:.2f}{held} | {whole:.2f} | {ceiling:.2f} | "
            f"{arguments.mb / statistics.median(one):.1f} | {peaks[1] >> 20} and {peaks[2] >> 20} | {equal} |",
            flush=True,
        )
    one, two, pairs = (sum(times) for times in zip(*medians, strict=True))
    print(f"| together | {one:.2f} | {two:.2f} | | {one / two:.2f} | | {2 * one / pairs:.2f} | | | |")
    print(f"\nafterwards, counting alone, two processes do {cores_here():.2f} of one")


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
    parser.add_argument("--meet", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stage is not None:
        run_stage(arguments)
    else:
        arguments.scratch = arguments.scratch.resolve()
        compare(arguments)


if __name__ == "__main__":
    main()
