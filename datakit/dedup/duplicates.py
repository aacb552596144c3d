"""The stage `datakit.duplicates`: verified duplicate clusters across the sources of a scope.

A document is removed only for a verified match with a document that stays, so nothing is removed through a chain of
similar documents (unverified, transitive clusters wiped whole sources out: marin#6854). Documents are visited in the
order of their ids. Each is compared with the *kept* documents that share a band with it
(`datakit.dedup.near_duplicates`). The result depends only on the texts and on the declared order of the sources. A
cluster of a million copies costs a million comparisons, not a million squared.

The scope is never in memory: equal ids and shared bands meet in shuffles (`lineage.tables`), which this machine's
workers run or a cluster's engine. Every step survives a kill. What grows is 16 bytes a candidate and 80 bytes a row of
the result.
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from datakit.dedup.band_join import (
    ID_BYTES,
    PAIR_BYTES,
    Spilled,
    band_rows,
    copies_of_range,
    id_rows,
    links_of_range,
    scope_parts,
    spill_part,
)
from datakit.dedup.duplicates_table import cluster_rows, counts_by_source, write_clusters
from datakit.dedup.near_duplicates import DOCUMENT_BYTES, MATCHES, TASK_BYTES, spill_shingles, walk_task
from datakit.documents.parts import document_paths, iterate_part
from datakit.documents.schemas import DUPLICATES_FILE
from datakit.text.arrays import load, save
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.tables.components import components
from lineage.tables.local import LocalEngine
from lineage.tables.shuffle import Shuffle, TableEngine, grouped, range_count
from lineage.writing.working_folder import SCRATCH_FOLDER
from lineage.writing.writer import Writer

log = logging.getLogger(__name__)

SMALL_SCOPE_ROWS = 50_000
"""Below this many documents a pool of workers costs more than it saves (a second of imports for each of five steps)."""


@dataclass(frozen=True)
class DuplicatesConfig:
    """The word n-gram similarity at which documents are duplicates, and limits against giant bands and wiped-out
    sources.
    """

    min_jaccard: float = 0.8
    ngram_words: int = 5
    max_band_documents: int = 256
    max_removed_share: float = field(default=0.75, metadata={"added_later": True})
    """A source that loses more than this share is wiped out: a blocking check stops what builds on it
    (`removal_rates.py`).
    """

    def __post_init__(self) -> None:
        if not 0 < self.min_jaccard <= 1:
            raise ValueError(f"duplicates.min_jaccard is {self.min_jaccard}; it must be in (0, 1]")
        for name in ("ngram_words", "max_band_documents"):
            if getattr(self, name) < 1:
                raise ValueError(f"duplicates.{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 < self.max_removed_share <= 1:
            raise ValueError(f"duplicates.max_removed_share is {self.max_removed_share}; it must be in (0, 1]")


def find_duplicates(
    out: Writer, config: DuplicatesConfig, normalized: tuple[Artifact, ...], minhash: tuple[Artifact, ...]
) -> None:
    """Write `duplicates.parquet`: a row for every document of a cluster, the kept one included; singletons have none.

    Raises: ValueError for signatures of several presets, or over other runs of words than those that are compared.
    """
    if (signed := minhash[0].spec.config["ngram_words"]) != config.ngram_words:
        raise ValueError(
            f"duplicates.ngram_words is {config.ngram_words}, {minhash[0].name} was signed over {signed}; give both one number"
        )
    names = [document_source(artifact) for artifact in normalized]
    spilled = Spilled(out.folder / SCRATCH_FOLDER, scope_parts(normalized, minhash))
    workers = 1 if spilled.rows < SMALL_SCOPE_ROWS else None
    width = int(str(minhash[0].spec.config["bands"]))
    out.map_shards(spill_part, {f"spill-{p.index:06d}": (p, width) for p in spilled.parts}, workers)
    engine = out.execution.tables or LocalEngine(SCRATCH_FOLDER, workers)
    copies = _exact_copies(out, engine, spilled)
    candidates = _candidates(out, engine, spilled, copies, width)
    matches, num_candidates = _near_matches(out, config, spilled, candidates, workers)
    rows = cluster_rows(spilled, names, load(copies), matches)
    write_clusters(out.folder / DUPLICATES_FILE, rows, spilled, names)
    by_source = counts_by_source(rows, spilled, names)
    dropped = {kind: sum(counts[kind] for counts in by_source.values()) for kind in ("exact", "near")}
    out.extra["duplicates"] = {
        "clusters": rows.num_clusters,
        **dropped,
        "verified_candidates": num_candidates,
        "sources": by_source,
    }
    drops = {f"{kind}_duplicate": count for kind, count in dropped.items() if count}
    out.record(rows_in=spilled.rows, rows_out=spilled.rows - sum(drops.values()), drops=drops)


DUPLICATES = Stage(
    "datakit.duplicates",
    "4",
    find_duplicates,
    description="Verified duplicate clusters across the sources; a document is dropped only for a match with a kept one.",
    checks=("file_set", "rows_conserved", "removal_rates"),
)
"""4: words are folded (`datakit.text.folding`). 3: words are those of any script (`datakit.text.word_kinds`)."""


def document_source(normalized: Artifact) -> str:
    """Return the source whose documents an artifact holds."""
    for part in document_paths(normalized):
        for table in iterate_part(part, ["source"], 0, 1):
            return str(table["source"][0].as_py())
    raise ValueError(f"{normalized.name} has no documents")


def _exact_copies(out: Writer, engine: TableEngine, spilled: Spilled) -> Path:
    """Return the file of every (copy, first copy), sorted."""
    size = spilled.rows * ID_BYTES
    tasks = [(spilled, group) for group in grouped(spilled.parts, size)]
    step = Shuffle("copies", id_rows, tasks, "high", copies_of_range, range_count(size))
    found = pa.concat_tables([engine.table(part) for part in engine.shuffle(out, step)])
    copies = np.stack([found["number"].to_numpy(), found["first"].to_numpy()], axis=1)
    return _saved(spilled.folder / "copies.npy", copies[np.argsort(copies[:, 0])])


def _candidates(out: Writer, engine: TableEngine, spilled: Spilled, copies: Path, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return every document that a chain of shared bands links to another, sorted, and the first one of its chain."""
    size = spilled.rows * width * PAIR_BYTES
    tasks = [(spilled, copies, group) for group in grouped(spilled.parts, size)]
    step = Shuffle("links", band_rows, tasks, "band", links_of_range, range_count(size))
    found = components(out, engine, engine.shuffle(out, step))
    stars = pa.concat_tables([engine.table(part) for part in found])
    roots, members = stars["root"].to_numpy(), stars["member"].to_numpy()
    own = np.unique(roots)
    numbers, firsts = np.concatenate([members, own]), np.concatenate([roots, own])
    order = np.argsort(numbers)
    return numbers[order], firsts[order]


def _near_matches(
    out: Writer, config: DuplicatesConfig, spilled: Spilled, found: tuple[np.ndarray, np.ndarray], workers: int | None
) -> tuple[np.ndarray, int]:
    """Return every verified match, and how many documents were candidates."""
    candidates, roots = found
    out.extra["full_bands"] = 0
    if not candidates.size:
        return np.zeros(0, MATCHES), 0
    listed = _saved(spilled.folder / "candidates.npy", candidates)
    spans = _spill_candidates(out, config, spilled, candidates, workers)
    placed = _saved(spilled.folder / "spans.npy", spans)
    tasks = _tasks(spilled.folder, candidates, roots, spans[:, 1])
    arguments = config.min_jaccard, config.max_band_documents
    walks = {f"walk-{i:06d}": (spilled, listed, placed, path, i, *arguments) for i, path in enumerate(tasks)}
    done = out.map_shards(walk_task, walks, workers)
    if full := sum(int(str(s["not_listed"])) for s in done.values()):
        log.warning("bands were full %d times (max_band_documents %d): recall is lower", full, config.max_band_documents)
    out.extra["full_bands"] = full
    return np.concatenate([load(spilled.folder / f"matches-{i:06d}.npy") for i in range(len(walks))]), int(candidates.size)


def _spill_candidates(
    out: Writer, config: DuplicatesConfig, spilled: Spilled, candidates: np.ndarray, workers: int | None
) -> np.ndarray:
    """Return int64 [candidates, 2]: where the shingles of each begin in the file of its part, and how many bytes they
    are.
    """
    shards = {}
    for part in spilled.parts:
        start, stop = np.searchsorted(candidates, [part.first, part.first + part.rows])
        if start < stop:
            rows = candidates[start:stop] - part.first
            shards[f"shingles-{part.index:06d}"] = (spilled, part, rows, config.ngram_words)
    out.map_shards(spill_shingles, shards, workers)
    bounds = [load(spilled.folder / f"bounds-{part.index:06d}.npy") for _, part, *_ in shards.values()]
    return 8 * np.concatenate([np.stack([b[:-1], np.diff(b)], axis=1) for b in bounds])


def _tasks(folder: Path, candidates: np.ndarray, roots: np.ndarray, held: np.ndarray) -> list[Path]:
    """Return files of the candidates of whole components, about `TASK_BYTES` of them each; a larger component is a task
    of its own.
    """
    order = np.argsort(roots, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], np.diff(roots[order]) > 0]))
    before = np.concatenate([[0], np.cumsum(held[order] + DOCUMENT_BYTES)])
    cuts = [0]
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), order.size], strict=True):
        if before[end] - before[cuts[-1]] > TASK_BYTES and start > cuts[-1]:
            cuts.append(start)
    bounds = zip(cuts, [*cuts[1:], order.size], strict=True)
    return [_saved(folder / f"members-{i:06d}.npy", candidates[order[a:b]]) for i, (a, b) in enumerate(bounds)]


def _saved(path: Path, values: np.ndarray) -> Path:
    save(path, values)
    return path
