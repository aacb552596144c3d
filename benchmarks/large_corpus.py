"""A corpus of any size through the lab's stages with two workers: time, memory, disk, bytes moved, and whether it judged right.

    PYTHONPATH=. .venv/bin/python -m benchmarks.large_corpus --mb 5000 --workers 2 --folder F     # a folder that is not there
    PYTHONPATH=. .venv/bin/python -m benchmarks.large_corpus --mb 5000 --until normalized         # judges nothing
    PYTHONPATH=. .venv-extras/bin/python -m benchmarks.large_corpus --mb 5000 --ray --folder F    # joins on a Ray cluster

The text is generated, a quarter of its documents are planted copies (`generated_text.py`). Each stage runs in a fresh process
with workers of its own. Printed for each of them:

- CPU seconds of all its processes, imports included; megabytes of text that the source has (copies included) for each.
- Peak memory: the largest process by the kernel's mark, and all processes at one moment, looked at every 50 ms.
- Bytes read and written by calls of all its processes (`/proc/self/io`), over the bytes of its input files, which are
  compressed, and over the text in brackets. What the cache served counts, and so do libraries, the benchmark items' index, and
  the digests of what was written. Pages of mapped files do not: those are rows of shuffles, which stand beside it (Arrow
  buffers that tasks handed to ranges), flat arrays of `datakit.duplicates`, and small tables that polars maps.

With `--ray` each stage has a cluster of two machines of one core each, as processes of this machine, which count.

Disk is everything below the folder, looked at every two seconds. What was found is judged by a counter of its own
(`large_corpus_truth.py`). Exit status 1 if a bar is missed.
"""

import argparse
import json
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.generated_text import SPEECHES, learnt, write
from benchmarks.large_corpus_truth import POOLED_FROM, REPEATS_FROM, UNRELATED_BELOW, Judged, judge, off_theory, recall_table
from benchmarks.memory import measured
from benchmarks.plan_data import MEGABYTE, prepare, stage_nodes
from benchmarks.process_use import bytes_passed, cpu_seconds
from benchmarks.ray_machines import ray_machines
from datakit.compile_ahead import compile_ahead
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.shards.run import SCRATCH_FOLDER
from lineage.tables.local import LocalEngine
from lineage.tables.ray_tasks import RayEngine

STAGES = ("normalized", "minhash", "duplicates", "contamination", "corpus", "tokens")
SEED = 11
LOOK_SECONDS = 2.0
WALL_MINUTES, MEMORY_GB, DISK_GB, MOST_MOVED = 60, 12, 30, 3
KEPT, FOUND, STANDARD_ERRORS = 0.6, 0.99, 4
type Bar = tuple[str, float, float, float]
"""What, its value, the least and the most that it may be."""


@dataclass(frozen=True)
class StageUse:
    """What one stage took; sizes in bytes."""

    name: str
    wall: float
    cpu: float
    largest: int
    together: int
    given: int
    """Files of its inputs that grow with the text."""

    read: int
    written: int
    shuffled: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=5_000, help="megabytes of text")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--pairs", type=int, default=20_000, help="planted pairs and removed documents that are judged, at most"
    )
    parser.add_argument("--folder", type=Path, default=Path(".marin/benchmarks/large_corpus"), help="deleted at the end")
    parser.add_argument("--root", default=".marin", help="store with the default suite, which is made where it is missing")
    parser.add_argument("--ray", action="store_true", help="shuffles by a Ray cluster of two machines on this one")
    parser.add_argument("--until", choices=STAGES, default=STAGES[-1], help="the last stage that runs")
    parser.add_argument("--stage", choices=("raw", *STAGES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.stage:
        with ray_of_two() if options.ray else nullcontext(LocalEngine(SCRATCH_FOLDER)) as engine:
            print(json.dumps(run_stage(folder, options.stage, options.workers, engine)))
        return
    folder.mkdir(parents=True)
    with disk_used(folder) as disk:
        given, uses, judged = run(folder, options)
    shutil.rmtree(folder)
    sys.exit(not report(options, given, uses, judged, disk.bytes))


def run(folder: Path, options: argparse.Namespace) -> tuple[int, list[StageUse], Judged | None]:
    """Make the text, run the stages over it, and judge if all of them ran."""
    compile_ahead()
    model = learnt(SPEECHES)
    prepare(folder, model, options.root)
    started, size = time.monotonic(), int(options.mb * MEGABYTE)
    given = write(folder / "documents", model, size, SEED, truth=folder / "truth")
    print(f"{given / 1e6:,.0f} MB of text in {time.monotonic() - started:.0f} s", flush=True)
    del model
    in_a_process(folder, "raw", options)
    shutil.rmtree(folder / "documents")
    uses = []
    for name in STAGES[: STAGES.index(options.until) + 1]:
        uses.append(in_a_process(folder, name, options))
        print(f"{name}: {uses[-1].wall:.1f} s, {uses[-1].cpu:.1f} CPU s", flush=True)
    if options.until != STAGES[-1]:
        return given, uses, None
    started = time.monotonic()
    judged = judge(folder / "truth", artifacts(folder), options.pairs)
    print(f"judged in {time.monotonic() - started:.0f} s", flush=True)
    return given, uses, judged


def in_a_process(folder: Path, name: str, options: argparse.Namespace) -> StageUse:
    """Run a stage in a fresh process. Raises: RuntimeError with the end of what it said."""
    command = [sys.executable, "-m", "benchmarks.large_corpus", "--stage", name, "--folder", str(folder)]
    command += ["--workers", str(options.workers), *(["--ray"] if options.ray else [])]
    started = time.monotonic()
    use: dict[str, Any] = measured(command, {})
    largest, together = use.pop("largest"), use.pop("tree")
    del use["processes"]
    return StageUse(name, time.monotonic() - started, largest=largest, together=together, **use)


@contextmanager
def ray_of_two() -> Iterator[RayEngine]:
    """Yield the engine of a cluster of two machines."""
    with ray_machines() as machines:
        machines.add()
        machines.add()
        yield RayEngine(machines.address)


def run_stage(folder: Path, name: str, workers: int, engine: LocalEngine | RayEngine) -> dict[str, float]:
    """Build one stage over what the earlier ones made, in the store of the folder."""
    store, node = Store(str(folder / "base")), nodes(folder)[name]
    given = sum(sum_bytes(resolve(store, parent)) for parent in node.parents() if parent.key[0] in ("raw", *STAGES))
    read, written = bytes_passed()
    spent = build(store, node, execution=Execution(workers, tables=engine)).artifact.manifest.resources.cpu_seconds
    now_read, now_written = bytes_passed()
    return {
        "cpu": max(cpu_seconds(), spent),  # the processes of a cluster have not ended
        "given": given,
        "read": now_read - read,
        "written": now_written - written,
        "shuffled": sum(moved.shuffled for moved in engine.moved),
    }


def nodes(folder: Path) -> Mapping[str, Node]:
    """The stages of `plan_data.py` by name."""
    return {node.key[0]: node for node in stage_nodes(folder)}


def artifacts(folder: Path) -> Mapping[str, Artifact]:
    """What the stages made, by name."""
    store, every = Store(str(folder / "base")), nodes(folder)
    return {name: resolve(store, every[name]) for name in ("raw", *STAGES)}


def sum_bytes(artifact: Artifact) -> int:
    return sum(entry.bytes for entry in artifact.manifest.files)


@dataclass
class Most:
    """The largest value so far."""

    bytes: int = 0


@contextmanager
def disk_used(folder: Path) -> Iterator[Most]:
    """Look at what lies below a folder during the block."""
    most, stop = Most(), threading.Event()

    def watch() -> None:
        while not stop.wait(LOOK_SECONDS):
            most.bytes = max(most.bytes, blocks_below(str(folder)))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        stop.set()
        thread.join()


def blocks_below(folder: str) -> int:
    """Return the bytes on disk of every file that is still there when it is looked at."""
    total = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                total += blocks_below(entry.path) if entry.is_dir() else entry.stat().st_blocks * 512
    return total


def report(options: argparse.Namespace, given: int, uses: Sequence[StageUse], judged: Judged | None, disk: int) -> bool:
    """Print the tables; return whether every bar is met."""
    print(f"\n{given / 1e6:,.0f} MB of text, {options.workers} workers, load {os.getloadavg()[0]:.1f}\n")
    print("| stage | wall s | CPU s | MB a core-second | largest process | together | input | read | written | shuffled |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for use in uses:
        memory = f"{use.largest / 2**20:.0f} MiB | {use.together / 2**20:.0f} MiB"
        moved = " | ".join(f"{x / use.given:.2f} ({x / given:.2f})" for x in (use.read, use.written, use.shuffled))
        costs = f"{use.wall:.1f} | {use.cpu:.1f} | {given / 1e6 / use.cpu:.1f} | {memory}"
        print(f"| {use.name} | {costs} | {use.given / 1e6:,.1f} MB | {moved} |")
    wall, cpu = sum(use.wall for use in uses), sum(use.cpu for use in uses)
    print(f"| all | {wall:.1f} | {cpu:.1f} | {given / 1e6 / cpu:.1f} | | | | | | |\n")
    rows = bars(uses, wall, disk)
    if judged is not None:
        print_judged(judged)
        rows += judged_bars(judged, given)
    print("| what | value | bar | |\n|---|---|---|---|")
    for what, value, least, most in rows:
        bar = f"at least {least:g}" if most == math.inf else f"at most {most:g}"
        print(f"| {what} | {value:.4g} | {bar} | {'met' if least <= value <= most else '**missed**'} |")
    return all(least <= value <= most for _, value, least, most in rows)


def print_judged(judged: Judged) -> None:
    """Print pairs by similarity, and what was planted."""
    print("\n".join(recall_table(judged.pairs)))
    small = (judged.sizes <= 3).mean()
    print(
        f"\n{judged.documents:,} documents, {judged.kept:,} kept. Planted: {judged.sizes.sum():,} copies of "
        f"{judged.sizes.len():,} documents, at most {judged.sizes.max():,} of one, at most 3 of {small:.0%} of them. "
        f"{judged.strangers:,} removed for a document of another family.\n"
    )


def bars(uses: Sequence[StageUse], wall: float, disk: int) -> list[Bar]:
    """Return what the stages took beside what they may."""
    moved = {
        "read": max(use.read / use.given for use in uses),
        "written": max(use.written / use.given for use in uses),
        "shuffled": max(use.shuffled / use.given for use in uses),
    }
    return [
        ("stages, minutes", wall / 60, 0, WALL_MINUTES),
        ("all processes of a stage, GB", max(use.together for use in uses) / 1e9, 0, MEMORY_GB),
        ("disk, GB", disk / 1e9, 0, DISK_GB),
        *((f"bytes {name} by a stage, times its input", value, 0, MOST_MOVED) for name, value in moved.items()),
    ]


def judged_bars(judged: Judged, given: int) -> list[Bar]:
    """Return how well the stages judged beside how well they must."""
    return [
        ("kept share of the text", judged.kept_bytes / given, KEPT, math.inf),
        (f"recall of planted pairs of [{POOLED_FROM:g}, 1)", judged.recall(), FOUND, math.inf),
        ("shares of a band off the theory, standard errors", off_theory(judged.pairs), 0, STANDARD_ERRORS),
        (f"precision: removed with a kept text of at least {REPEATS_FROM:g}", judged.precision(), FOUND, math.inf),
        ("exact copies left", judged.exact_left, 0, 0),
        ("similarity of unrelated documents", max(judged.unrelated), 0, UNRELATED_BELOW),
    ]


if __name__ == "__main__":
    main()
