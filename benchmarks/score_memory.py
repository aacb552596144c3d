"""Peak memory and time of counting scores into deciles, as the parent of `datakit.scores` does, by the number of documents.

    PYTHONPATH=. .venv/bin/python benchmarks/score_memory.py --documents 1000000 6000000

Tables of random scores are written once; each number is counted in a separate process. `held` is the plain way beside it: all
scores and ids in memory, sorted. Resident memory is that of the whole process, imports included.
"""

import argparse
import resource
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from datakit.documents.parts import writing_part
from datakit.quality.score_counts import DECIMALS, ScoreCounts, first_of_groups

PARTS, BATCH, SHOWN = 4, 1 << 16, 3


def write_tables(folder: Path, documents: int) -> list[Path]:
    """Write tables of ascending ids and random scores. Existing tables stay."""
    generator, paths = np.random.default_rng(0), [folder / f"part-{index}.parquet" for index in range(PARTS)]
    for index, path in enumerate(paths):
        if path.exists():
            continue
        with writing_part(path, pa.schema([("id", pa.string()), ("score", pa.float64())])) as out:
            for low in range(0, documents // PARTS, BATCH):
                rows = range(low, min(low + BATCH, documents // PARTS))
                ids = [f"{index * documents // PARTS + row:032x}" for row in rows]
                out.write(pa.table({"id": ids, "score": generator.random(len(rows)).round(DECIMALS)}))
    return paths


def first_of_deciles(way: str, tables: list[Path]) -> list[list[str]]:
    """The first documents of every decile."""
    if way == "counted":
        counts = ScoreCounts.of(tables)
        return first_of_groups(tables, counts, [counts.total * i // 10 for i in range(11)], SHOWN)
    rows = pl.concat([pl.read_parquet(path) for path in tables]).sort("score", "id")
    bounds = [rows.height * i // 10 for i in range(11)]
    return [rows[low:high]["id"].bottom_k(SHOWN).sort().to_list() for low, high in pairwise(bounds)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Peak memory of deciles, counted and held.")
    parser.add_argument("--documents", type=int, nargs="+", default=[1_000_000, 6_000_000])
    parser.add_argument("--scratch", type=Path, default=Path(".marin/benchmarks/score_memory"))
    parser.add_argument("--way", choices=("counted", "held"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way is not None:
        tables, started = write_tables(given.scratch / str(given.documents[0]), given.documents[0]), time.perf_counter()
        deciles = first_of_deciles(given.way, tables)
        seconds, peak = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"| {given.documents[0]:,} | {given.way} | {seconds:.1f} | {peak >> 10} | {deciles[3][0][-8:]} |")
        return
    print("| documents | way | s | peak MiB | first of the fourth decile |\n|---|---|---|---|---|")
    for documents in given.documents:
        (given.scratch / str(documents)).mkdir(parents=True, exist_ok=True)
        write_tables(given.scratch / str(documents), documents)
        for way in ("counted", "held"):
            own = [sys.executable, __file__, "--documents", str(documents), "--scratch", str(given.scratch), "--way", way]
            print(subprocess.run(own, check=True, capture_output=True, text=True).stdout, end="", flush=True)


if __name__ == "__main__":
    main()
