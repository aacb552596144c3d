"""Memory of the tasks of each join: the peak of a process above its start, over the bytes of the range that it handles.

    PYTHONPATH=. .venv/bin/python -m benchmarks.reduce_memory --mib 256

A range is the unit of a shuffle's memory (`lineage.tables.shuffle`). For each join one process reads so many bytes of rows and
writes them into `RANGES` ranges, another one does the same with rows that arrive from `TASKS` tasks (a second level of splits),
and a third one reduces a range that arrives from so many: the functions of the stages, run by those of the local engine. A
share of the rows repeats an earlier key, or in a graph comes back to an earlier document: .25 is much, .9 is next to the worst.
Pages of mapped files count in the peak.
"""

import argparse
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.pipeline import ONE_THREAD
from benchmarks.process_use import cpu_seconds, peak_mib
from datakit.dedup.band_join import Spilled, band_rows, copies_of_range, id_rows, links_of_range
from datakit.dedup.containment_candidates import pairs_of_range, sample_rows
from datakit.dedup.containment_pairs import compared_rows, verified_of_range
from datakit.dedup.near_duplicates import walk_bytes, walk_range, walk_rows, words
from datakit.dedup.numbered import Numbered
from datakit.dedup.paragraphs import paragraph_rows, repeats_of_range
from datakit.dedup.part_files import PartFiles, new_stream, save_part
from datakit.dedup.scope_parts import ScopeFiles, ScopePart
from datakit.text.arrays import save
from lineage.shards.run import SCRATCH_FOLDER
from lineage.tables.local import reduce_range, write_ranges, write_rows
from lineage.tables.ranges import from_both_ends, large_stars
from lineage.tables.shuffle import Shuffle, saved
from lineage.tables.stars import stars

TASKS, RANGES, BANDS, SAMPLES, SHINGLES, FEW_SHINGLES = 64, 1_024, 14, 128, 400, 40
SHARES = (0.25, 0.9)
type Columns = dict[str, Any]
"""Arrays of numpy, or of Arrow for bytes."""
type Task = tuple[Callable[..., pa.Table], tuple[object, ...]]


@dataclass(frozen=True)
class Join:
    """A shuffle of which one task and one range are measured."""

    row_bytes: int
    rows: Callable[[int, float], Columns]
    """Returns so many rows of a range, of which a share repeats an earlier key."""

    task: Callable[[Path, Columns], Task]
    """Writes what a task of these rows reads; returns its function and arguments."""

    reduce: Callable[[pa.Table], pa.Table]
    key: str


def joins() -> Mapping[str, Join]:
    """Return the measured joins by name."""
    containers = partial(pairs_of_range, hash_documents=16)
    verified = partial(verified_of_range, ngram_words=5, min_containment=0.7)
    walk = partial(walk_range, settled=0, min_jaccard=0.8, max_band_documents=256)
    return {
        "copies": Join(24, rows_of_ids, ids_task, copies_of_range, "high"),
        "links": Join(16, rows_of_bands, bands_task, links_of_range, "band"),
        "components-large": Join(16, rows_of_neighbours, neighbours_task, large_stars, "number"),
        "components-last": Join(16, rows_of_edges, edges_task, stars, "member"),
        "repeats": Join(40, rows_of_paragraphs, paragraphs_task, repeats_of_range, "high"),
        "samples": Join(24, rows_of_samples, samples_task, containers, "hash"),
        "contained-verified": Join(24 + 8 * SHINGLES, rows_of_pairs, pairs_task, verified, "container"),
        "walk": candidates_join(walk, SHINGLES),
        "walk of short documents": candidates_join(walk, FEW_SHINGLES),
    }


def candidates_join(walk: Callable[[pa.Table], pa.Table], shingles: int) -> Join:
    """Return the walk over documents that have so many shingles."""
    rows, task = (partial(each, shingles=shingles) for each in (rows_of_candidates, candidates_task))
    return Join(walk_bytes(1, shingles, BANDS), rows, task, walk, "root")


def hashes(rows: int, share: float) -> np.ndarray:
    """Return uint64 [rows]: a share of them, at the end, repeats one at random."""
    rng = np.random.default_rng(5)
    keys = rng.integers(0, 1 << 64, rows, np.uint64)
    first = int(rows * (1 - share))
    keys[first:] = keys[rng.integers(0, first, rows - first)]
    return keys


def rows_of_ids(rows: int, share: float) -> Columns:
    high = hashes(rows, share)
    return {"high": high, "low": high, "number": np.arange(rows)}


def rows_of_bands(rows: int, share: float) -> Columns:
    """Each band is of another document: the largest graph that a range can have."""
    return {"band": hashes(rows, share), "number": np.arange(rows)}


def rows_of_edges(rows: int, share: float) -> Columns:
    """A random graph: at .9 nearly all edges are of one component, at .25 most are of trees."""
    ends = np.sort(np.random.default_rng(5).integers(0, int(rows / share), (rows, 2)), axis=1)
    return {"root": ends[:, 0].copy(), "member": ends[:, 1].copy()}


def rows_of_neighbours(rows: int, share: float) -> Columns:
    edges = rows_of_edges(rows // 2, share)
    ends = [edges["root"], edges["member"]]
    return {"number": np.concatenate(ends), "neighbour": np.concatenate(ends[::-1])}


def rows_of_paragraphs(rows: int, share: float) -> Columns:
    high, start = hashes(rows, share), np.arange(rows)
    return {"high": high, "low": high, "document": start // 8, "start": start, "end": start + 100}


def rows_of_samples(rows: int, share: float) -> Columns:
    """A document of 512 words has `SAMPLES` and asks with 48."""
    place = np.arange(rows)
    asked = np.where(place % SAMPLES < 48, 48, 0).astype(np.int32)
    numbers = {"number": place // SAMPLES, "words": np.full(rows, 512, np.int32)}
    return {"hash": hashes(rows, share), **numbers, "asked": asked}


def rows_of_candidates(rows: int, share: float, shingles: int) -> Columns:
    """A repeated document has the bands and shingles of an earlier one."""
    rng = np.random.default_rng(5)
    first = int(rows * (1 - share))
    root = np.concatenate([np.arange(first), rng.integers(0, first, rows - first)])
    bands = rng.integers(0, 1 << 64, (first, BANDS), np.uint64)[root]
    sets = np.sort(rng.integers(0, 1 << 64, (first, shingles), np.uint64), axis=1)[root]
    ids = {"high": hashes(rows, 0.01), "low": hashes(rows, 0.01)}
    of_row = np.arange(rows + 1)
    packed = {"bands": words(bands, BANDS * of_row), "shingles": words(sets, shingles * of_row)}
    return {"root": root, "number": np.arange(rows), **ids, **packed}


def rows_of_pairs(rows: int, share: float) -> Columns:
    """A container and the documents that lie in it: a share of all rows."""
    rng = np.random.default_rng(5)
    container = np.arange(rows) // round(1 / (1 - share)) * round(1 / (1 - share))
    sets = rng.integers(0, 1 << 64, (rows, SHINGLES), np.uint64)[container]
    return {"container": container, "number": np.arange(rows), "shingles": words(sets, SHINGLES * np.arange(rows + 1))}


def pairs_task(folder: Path, rows: Columns) -> Task:
    count = rows["number"].size
    part = ScopePart(0, "a", "a.parquet", 0, count)
    np.frombuffer(rows["shingles"].buffers()[2], np.uint64).tofile(new_stream(folder, "shingles", part))
    save_part(folder, part, spilled=np.arange(count), bounds=SHINGLES * np.arange(count + 1))
    is_pair = rows["number"] != rows["container"]
    save(folder / "pairs.npy", np.stack([rows["number"], rows["container"]], axis=1)[is_pair])
    save(folder / "containers.npy", rows["number"][~is_pair][:, None])
    pairs, containers = (Numbered((folder / f"{name}.npy",), count, count) for name in ("pairs", "containers"))
    return compared_rows, (ScopeFiles(folder / SCRATCH_FOLDER, (part,)), pairs, containers, (part,))


def candidates_task(folder: Path, rows: Columns, shingles: int) -> Task:
    count = rows["number"].size
    part = ScopePart(0, "a", "a.parquet", 0, count)
    sets, bands = (np.frombuffer(rows[name].buffers()[2], np.uint64) for name in ("shingles", "bands"))
    sets.tofile(new_stream(folder, "shingles", part))
    ids, bounds = np.stack([rows["high"], rows["low"]], axis=1), shingles * np.arange(count + 1)
    save_part(folder, part, ids=ids, bands=bands.reshape(count, BANDS), bounds=bounds)
    save(folder / "candidates.npy", np.stack([rows["number"], rows["root"]], axis=1))
    candidates = Numbered((folder / "candidates.npy",), count, count)
    return walk_rows, (Spilled(folder / SCRATCH_FOLDER, (part,)), candidates, (part,))


def ids_task(folder: Path, rows: Columns) -> Task:
    part = ScopePart(0, "a", "a.parquet", 0, rows["number"].size)
    save_part(folder, part, ids=np.stack([rows["high"], rows["low"]], axis=1))
    return id_rows, (Spilled(folder / SCRATCH_FOLDER, (part,)), (part,))


def bands_task(folder: Path, rows: Columns) -> Task:
    documents = rows["band"].size // BANDS
    part = ScopePart(0, "a", "a.parquet", 0, documents)
    bands = rows["band"][: documents * BANDS].reshape(documents, BANDS)
    save_part(folder, part, bands=bands, signed=np.ones(documents, bool))
    save(folder / "copies.npy", np.zeros((0, 2), np.int64))
    copies = Numbered((folder / "copies.npy",), documents, 0)
    return band_rows, (Spilled(folder / SCRATCH_FOLDER, (part,)), copies, (part,))


def paragraphs_task(folder: Path, rows: Columns) -> Task:
    part = ScopePart(0, "a", "a.parquet", 0, rows["high"].size)
    places = np.stack([rows[name] for name in ("document", "start", "end")], axis=1)
    save_part(folder, part, digests=np.stack([rows["high"], rows["low"]], axis=1), places=places)
    return paragraph_rows, (PartFiles(folder / SCRATCH_FOLDER), (part,))


def samples_task(folder: Path, rows: Columns) -> Task:
    documents = rows["hash"].size // SAMPLES
    part = ScopePart(0, "a", "a.parquet", 0, documents)
    rows["hash"][: documents * SAMPLES].tofile(new_stream(folder, "hashes", part))
    save_part(folder, part, sampled=np.full(documents, SAMPLES, np.int32), words=np.full(documents, 512, np.int32))
    return sample_rows, (PartFiles(folder / SCRATCH_FOLDER), 48, (part,))


def neighbours_task(folder: Path, rows: Columns) -> Task:
    half = rows["number"].size // 2
    saved(folder / "edges.arrow", [pa.table({"root": rows["number"][:half], "member": rows["neighbour"][:half]})])
    return neighbours, (folder / "edges.arrow",)


def neighbours(path: Path) -> pa.Table:
    """Return the edges of a file from both ends."""
    return from_both_ends(mapped(path))


def edges_task(folder: Path, rows: Columns) -> Task:
    saved(folder / "edges.arrow", [pa.table(dict(rows))])
    return mapped, (folder / "edges.arrow",)


def mapped(path: Path) -> pa.Table:
    """Map the table of a file."""
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def prepared(join: Join, folder: Path, mib: float, share: float) -> tuple[Shuffle, list[Path], int]:
    """Write what a task and a range of so many MiB read; return the step, the range's files and its bytes."""
    rows = join.rows(int(mib * 2**20) // join.row_bytes, share)
    folder.mkdir(parents=True)
    read, arguments = join.task(folder, rows)
    whole = pa.table(dict(rows))
    paths, bounds = [], [whole.num_rows * i // TASKS for i in range(TASKS + 1)]
    for index, (start, stop) in enumerate(pairwise(bounds)):
        paths.append(folder / "range" / f"{index:03d}.arrow")
        saved(paths[-1], [whole.slice(start, stop - start)])
    return Shuffle("measured", read, (arguments,), join.key, join.reduce, RANGES, spread=True), paths, whole.nbytes


def used(kind: str, folder: Path, step: Shuffle, paths: list[Path], warm: Shuffle, few: list[Path]) -> tuple[float, float]:
    """Return the MiB above the start, and the CPU seconds, of the `task`, `split` or `range` of a step, after a small one."""

    def run(step: Shuffle, paths: list[Path], name: str) -> None:
        without, edges = replace(step, tasks=((),)), range(step.ranges + 1)
        if kind == "task":
            write_rows(folder, step, Path("rows"), name, step.tasks[0], edges)
        elif kind == "split":
            write_ranges(folder, without, Path("rows"), name, paths, 0, edges)
        else:
            reduce_range(folder, without, Path("reduced"), name, paths, 0)

    run(warm, few, "warm")
    peak, cpu = peak_mib(), cpu_seconds()
    run(step, paths, "measured")
    return peak_mib() - peak, cpu_seconds() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=float, default=256.0, help="MiB of rows of the measured range")
    parser.add_argument("--joins", nargs="+", choices=list(joins()), default=list(joins()))
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES), help="of rows that repeat an earlier key")
    parser.add_argument("--folder", type=Path, help="where rows lie; the system's temporary folder by default")
    options = parser.parse_args()
    os.environ |= ONE_THREAD
    print("| join | share | MiB | task, times its bytes | split | range | CPU s of each |\n|---|---|---|---|---|---|---|")
    for name in options.joins:
        for share in options.shares:
            with TemporaryDirectory(dir=options.folder) as scratch:
                folder, small = Path(scratch, "measured"), Path(scratch, "small")
                warm, few, _ = prepared(joins()[name], small, 0.1, share)
                step, paths, size = prepared(joins()[name], folder, options.mib, share)
                times, cpu = [], []
                for kind in ("task", "split", "range"):
                    with ProcessPoolExecutor(1, get_context("spawn")) as process:
                        above, seconds = process.submit(used, kind, folder, step, paths, warm, few).result()
                    times.append(f"{above * 2**20 / size:.1f}")
                    cpu.append(f"{seconds:.1f}")
            cells = (name, str(share), f"{size / 2**20:.0f}", *times, ", ".join(cpu))
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
