"""The cost of adding sources to a scope (`Scope.earlier`), beside searching everything together again.

    PYTHONPATH=. .venv/bin/python -m benchmarks.incremental_duplicates --mb 400 --added .01 .05 .2 --rounds 2

Generated text with planted copies (`generated_text.py`) is cut into an old and a new source, whose documents copy the same
first ones. The stage `datakit.duplicates` runs in this process, in turns: all together, and the new source against what the
old one kept. Printed: CPU seconds; bytes read by calls; bytes of shuffled rows and of mapped texts of candidates in none of
them; documents looked at; and the signatures of the old documents, which are what an addition reads of each of them.
"""

import argparse
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from benchmarks.generated_text import SPEECHES, learnt, write
from benchmarks.given_files import GIVEN_FILES
from benchmarks.process_use import bytes_passed, cpu_seconds
from datakit.compile_ahead import compile_ahead
from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig
from datakit.dedup.minhash import MINHASH, MinHashConfig
from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.documents.schemas import DUPLICATES_FILE
from datakit.sources.source import Records
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build, build_all
from lineage.shards.execution import Execution
from lineage.shards.run import SCRATCH_FOLDER
from lineage.tables.local import LocalEngine

SEED, MEGABYTE = 11, 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=400, help="megabytes of text")
    parser.add_argument("--added", type=float, nargs="+", default=[0.01, 0.05, 0.2], help="shares of the text that are new")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where text and stores lie; the system's temporary folder by default")
    options = parser.parse_args()
    compile_ahead()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder = Path(scratch)
        size = int(options.mb * MEGABYTE)
        given = write(folder / "text", learnt(SPEECHES), size, SEED, part_bytes=size // 200)
        print(f"{given / 1e6:,.0f} MB of text, load {os.getloadavg()[0]:.1f}\n")
        print("| new | search | CPU s | read, MB | shuffled, MB | candidates | new removed | old looked at | load |")
        print("|---|---|---|---|---|---|---|---|---|")
        for share in options.added:
            measure(folder, share, options.rounds)


def measure(folder: Path, share: float, rounds: int) -> None:
    """Print a line for each search and round, and what the signatures of an old document take."""
    files = sorted((folder / "text").iterdir())
    count = max(1, round(share * len(files)))
    inputs = {}
    for name, chosen in (("old", files[:-count]), ("new", files[-count:])):
        below = folder / f"{name}-{share}"
        below.mkdir()
        for path in chosen:
            (below / path.name).symlink_to(path)
        inputs[name] = signed(below, f"{name}-{share:g}")
    store = Store(str(folder / "store"))
    old = searched("old", share, {name: (node,) for name, node in inputs["old"].items()})
    build_all(store, [old, *inputs["new"].values()])
    together = {name: (node, inputs["new"][name]) for name, node in inputs["old"].items()}
    added = {name: (node,) for name, node in inputs["new"].items()}
    added |= {f"earlier_{name}": (node,) for name, node in inputs["old"].items()} | {"earlier_duplicates": (old,)}
    for turn in range(rounds):
        for name, given in (("together", together), ("added", added)):
            print_one(store, share, name, searched(f"{name}-{turn}", share, given))
    signatures = build(store, inputs["old"]["minhash"]).artifact
    rows = int(signatures.manifest.statistics["rows_out"])
    taken = sum(entry.bytes for entry in signatures.manifest.files)
    print(f"\n{rows:,} old documents, {taken / rows:.0f} bytes of signatures for each\n", flush=True)


def signed(below: Path, source: str) -> dict[str, Node]:
    """Return the documents of a folder and their signatures."""
    raw = Node(("raw",), source, GIVEN_FILES, {"from": str(below), "below": "files"})
    config = NormalizeConfig(source=source, format=Records("parquet"), domain="prose")
    normalized = Node(("normalized",), source, NORMALIZE, config, {"raw": raw})
    return {
        "normalized": normalized,
        "minhash": Node(("minhash",), source, MINHASH, MinHashConfig(), {"normalized": normalized}),
    }


def searched(name: str, share: float, inputs: Mapping[str, tuple[Node, ...]]) -> Node:
    return Node(("duplicates", f"{name}-{share:g}"), None, DUPLICATES, DuplicatesConfig(max_removed_share=1.0), dict(inputs))


def print_one(store: Store, share: float, name: str, node: Node) -> None:
    engine, started, (read, _) = LocalEngine(SCRATCH_FOLDER, 1), cpu_seconds(), bytes_passed()
    made = build(store, node, execution=Execution(1, tables=engine)).artifact
    spent, now_read, shuffled = cpu_seconds() - started, bytes_passed()[0], sum(moved.shuffled for moved in engine.moved)
    earlier = made.manifest.extra.get("earlier", {}).get("looked_at", "")
    print(
        f"| {share:.0%} | {name} | {spent:.2f} | {(now_read - read) / 1e6:,.1f} | {shuffled / 1e6:,.1f} | "
        f"{made.manifest.extra['duplicates']['verified_candidates']:,} | {removed(made, f'new-{share:g}'):,} | {earlier} | "
        f"{os.getloadavg()[0]:.1f} |",
        flush=True,
    )


def removed(made: Artifact, source: str) -> int:
    """Return how many documents of a source leave."""
    rows = pl.scan_parquet(made.file(DUPLICATES_FILE)).filter(~pl.col("is_kept"), source=source)
    return int(rows.select(pl.len()).collect().item())


if __name__ == "__main__":
    main()
