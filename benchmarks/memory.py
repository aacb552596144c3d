"""Peak memory of every stage of the data engine at two sizes of one source: it must not grow with the source.

    PYTHONPATH=. .venv/bin/python benchmarks/memory.py --sizes 200 2000
    PYTHONPATH=. .venv/bin/python benchmarks/memory.py --sizes 20 100 --part-mb 4        # a minute or two
    PYTHONPATH=. .venv/bin/python benchmarks/memory.py --sizes 200 2000 --workers 1 --stages duplicates   # these again

Every stage runs in a separate process, its shards in `--workers` worker processes. Two peaks: `tree`, resident bytes of the
process and all its workers at one moment, as /proc says every 50 ms (pages that processes share count in each, spikes
between two looks are missed), and `largest`, the largest single process by the kernel's own mark (`VmHWM`), which remembers
what happened between the looks. Parts are small (`--part-mb`) so that both sizes keep all workers busy: with more parts
than workers, a stage's memory is that of its workers. The bar of issue 3: within 20 % from 200 MB to 2 GB. A stage that
starts workers for the large size only (duplicates: above `SMALL_SCOPE_ROWS`) has more processes there, not larger ones: it is
judged by its largest, the verdict names it, and `--workers 1` asks it again.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.data_line import MEASURED, Container, line, write_source
from lineage.artifact.store import Store
from lineage.build.nodes import exists, resolve
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.shards.measure import process_tree, rss_bytes

LOOK_SECONDS = 0.05
BAR = 1.20
MIB = 1 << 20


def run_stage(stage: str, folder: Path, root: Path, workers: int, part_bytes: int, container: Container) -> None:
    """In a separate process: build one node and say what it took, as JSON."""
    node = line(folder, part_bytes, container)[stage]
    store = Store(str(root))
    if exists(store, node):
        store.delete(resolve(store, node))
    started = time.perf_counter()
    artifact = build(store, node, execution=Execution(workers)).artifact
    use = {"wall": time.perf_counter() - started, "cpu": artifact.manifest.resources.cpu_seconds}
    print(json.dumps(use | {"data_version": artifact.data_version}))


def measured(command: list[str], environment: Mapping[str, str]) -> dict[str, float]:
    """Run a command; what it printed last, as JSON, and the peaks of its processes.

    Raises: RuntimeError with the end of its error output when it fails.
    """
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        peaks = {"tree": 0, "largest": 0, "processes": 0}
        looking = threading.Thread(target=_watch, args=(process.pid, lambda: process.returncode is not None, peaks))
        looking.start()
        output, errors = process.communicate()
        looking.join()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {errors[-2000:]}")
    return json.loads(output.splitlines()[-1]) | peaks


def _watch(pid: int, has_ended: Callable[[], bool], peaks: dict[str, int]) -> None:
    while not has_ended():
        tree = list(process_tree(pid))
        peaks["tree"] = max(peaks["tree"], sum(map(rss_bytes, tree)))
        peaks["processes"] = max(peaks["processes"], len(tree))
        peaks["largest"] = max(peaks["largest"], *map(_high_water_bytes, tree))
        time.sleep(LOOK_SECONDS)


def _high_water_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(row.split()[1]) * 1024 for row in status.splitlines() if row.startswith("VmHWM")), 0)


def stage_command(stage: str, folder: Path, root: Path, workers: int, part_bytes: int, container: Container) -> list[str]:
    """The command that builds one stage in a fresh process."""
    own = [sys.executable, "-m", "benchmarks.memory", "--stage", stage, "--folder", str(folder), "--root", str(root)]
    return [*own, "--workers", str(workers), "--part-bytes", str(part_bytes), "--container", container]


def compare(arguments: argparse.Namespace) -> None:
    """Build every stage at every size, print a table and whether the bar is held."""
    part_bytes = round(arguments.part_mb * 1e6)
    sizes: dict[float, dict[str, dict[str, float]]] = {}
    for size in arguments.sizes:
        folder, root = (arguments.scratch / f"{kind}-{size:g}-{arguments.container}" for kind in ("files", "store"))
        print(f"{size:g} MB: {write_source(folder, size, arguments.container) / 1e6:.1f} MB of text", flush=True)
        sizes[size] = {}
        nodes = line(folder, part_bytes, arguments.container)
        for stage in nodes:
            if stage not in arguments.stages and exists(Store(str(root)), nodes[stage]):
                continue
            command = stage_command(stage, folder, root, arguments.workers, part_bytes, arguments.container)
            use = measured(command, {})
            sizes[size][stage] = use
            print(
                f"  {stage:<14} tree {use['tree'] / MIB:7.0f} MiB, largest process {use['largest'] / MIB:6.0f} MiB, "
                f"{use['wall']:7.1f} s, {use['cpu']:7.1f} CPU s",
                flush=True,
            )
    small, large = min(arguments.sizes), max(arguments.sizes)
    judge({name: (sizes[small][name], sizes[large][name]) for name in MEASURED if name in arguments.stages}, small, large)


def judge(stages: Mapping[str, tuple[Mapping[str, float], Mapping[str, float]]], small: float, large: float) -> None:
    """Print the table of peaks at both sizes, and whether the bar is held."""
    print(f"\n| stage | processes | tree at {small:g} MB, MiB | {large:g} MB | ratio | largest process | ratio |")
    print("|---|---|---|---|---|---|---|")
    judged, grown = {}, []
    for stage, (low, high) in stages.items():
        tree, largest = high["tree"] / low["tree"], high["largest"] / low["largest"]
        more = high["processes"] > low["processes"]
        judged[stage] = largest if more else tree
        if more:
            grown.append(f"{stage} by its largest process: {low['processes']:.0f}, then {high['processes']:.0f} at work")
        cells = f"{low['tree'] / MIB:.0f} | {high['tree'] / MIB:.0f} | {tree:.2f}"
        alone = f"{low['largest'] / MIB:.0f}, {high['largest'] / MIB:.0f} | {largest:.2f}"
        print(f"| {stage} | {low['processes']:.0f}, {high['processes']:.0f} | {cells} | {alone} |")
    worst = max(judged, key=lambda stage: judged[stage])
    verdict = f"bar {BAR:.2f}: {'held' if judged[worst] <= BAR else 'missed'}"
    print(f"\nworst ratio {judged[worst]:.2f} ({worst}) from {small:g} to {large:g} MB; {verdict}", *grown, sep="; ")


def main() -> None:
    parser = argparse.ArgumentParser(description="Peak memory of every data stage at two sizes of one source.")
    parser.add_argument("--sizes", type=float, nargs="+", default=[200, 2000], help="MB of text")
    parser.add_argument("--part-mb", type=float, default=16, help="text of one part")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--stages", nargs="+", choices=MEASURED, default=list(MEASURED), help="made again where they are there")
    parser.add_argument("--container", choices=("jsonl", "parquet"), default="jsonl")
    parser.add_argument("--scratch", type=Path, default=Path(".marin/benchmarks/memory"))
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part-bytes", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stage is not None:
        where = arguments.stage, arguments.folder.resolve(), arguments.root.resolve()
        run_stage(*where, arguments.workers, arguments.part_bytes, arguments.container)
    else:
        arguments.scratch = arguments.scratch.resolve()
        compare(arguments)


if __name__ == "__main__":
    main()
