"""The stage `datakit.duplicates`: verified duplicate clusters across the sources of a scope.

A document is removed only for a verified match with a document that stays, so nothing is removed through a chain of
similar documents (unverified, transitive clusters wiped whole sources out: marin#6854). Documents are visited in the
order of their ids. Each is compared with the *kept* documents that share a band with it
(`datakit.dedup.near_duplicates`). The result depends only on the texts and on the declared order of the sources. A
cluster of a million copies costs a million comparisons, not a million squared.

The scope is never in memory: equal ids and shared bands meet in shuffles (`lineage.tables`), which this machine's
workers run or a cluster's engine. Every step survives a kill. No process holds all copies, candidates, matches or rows of
the result: each has a range of them, 16 MiB at first and at most 1 GiB (`range_count`). What grows is 40 bytes a part and
the names of the tasks.

A scope may have earlier ones, whose artifacts are inputs and stay as they are. Its documents are compared among themselves
and with what those scopes kept, which always stays (`datakit.dedup.earlier`). The earlier documents come first in the walk
and among equal texts. The tables then name the new documents that leave, and the earlier ones that they repeat.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path

import pyarrow as pa

from datakit.dedup.band_join import (
    ID_BYTES,
    PAIR_BYTES,
    Spilled,
    band_rows,
    copies_of_range,
    id_rows,
    links_of_range,
    members_of_range,
    signature_files,
    spill_part,
)
from datakit.dedup.duplicates_table import CLUSTER_COLUMNS, cluster_parts, write_clusters, write_part_clusters
from datakit.dedup.earlier import FILTER_FILE, links_to_new, spill_kept, write_filter
from datakit.dedup.near_duplicates import spill_shingles, walk_bytes, walk_range, walk_rows
from datakit.dedup.numbered import Numbered, numbered
from datakit.dedup.scope_parts import NO_DOCUMENT, ScopePart, scope_parts, tables_of_scope
from datakit.documents.schemas import CLUSTERS_FOLDER, DUPLICATES_FILE
from lineage.artifact.store import Artifact
from lineage.shards.run import SCRATCH_FOLDER
from lineage.stage import Stage
from lineage.tables.components import components
from lineage.tables.local import LocalEngine
from lineage.tables.shuffle import LARGEST_IN_PLACE_BYTES, Part, Shuffle, TableEngine, grouped, joined, range_count, tasks_of
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
    out: Writer,
    config: DuplicatesConfig,
    normalized: tuple[Artifact, ...],
    minhash: tuple[Artifact, ...],
    earlier_normalized: tuple[Artifact, ...] = (),
    earlier_minhash: tuple[Artifact, ...] = (),
    earlier_duplicates: tuple[Artifact, ...] = (),
) -> None:
    """Write `duplicates.parquet`: a row for every document of a cluster, the kept one included; singletons have none.

    `clusters/<source>/part-*.parquet` has the same documents for each part, so that a part's reader opens one small file.
    The earlier artifacts are those of all earlier scopes together, of which only kept documents have rows in the table.

    Raises: ValueError for signatures of several presets, or over other runs of words than those that are compared.
    """
    if (signed := minhash[0].spec.config["ngram_words"]) != config.ngram_words:
        raise ValueError(
            f"duplicates.ngram_words is {config.ngram_words}, {minhash[0].name} was signed over {signed}; give both one number"
        )
    every = *earlier_normalized, *normalized
    parts, documents = scope_parts(out, every)
    signatures = signature_files(out, (*earlier_minhash, *minhash), every, parts)
    names = list(dict.fromkeys(part.source for part in parts))
    earlier, own_names = names[: len(earlier_normalized)], names[len(earlier_normalized) :]
    workers = 1 if parts[-1].end < SMALL_SCOPE_ROWS else None
    width = int(str(minhash[0].spec.config["bands"]))
    spilled = _spilled(out, parts, signatures, earlier, earlier_duplicates, width, workers)
    engine = out.execution.tables or LocalEngine(SCRATCH_FOLDER, workers)
    copies = _exact_copies(out, engine, spilled)
    candidates = _candidates(out, config, engine, spilled, copies, width)
    matches, compared = _near_matches(out, config, engine, spilled, documents, candidates, width, workers)
    clusters = cluster_parts(out, engine, spilled, copies, matches)
    tables = (engine.table(out, part) for part in clusters)
    num_clusters, by_source = write_clusters(out.folder / DUPLICATES_FILE, tables, spilled, names)
    by_number = numbered(out, engine, clusters, CLUSTER_COLUMNS, spilled.rows, "clusters")
    own = [part for part in spilled.parts if part.source in own_names]
    tasks = {f"clusters-{p.index:06d}": (spilled.reading(("ids",), [p]), p, by_number) for p in own}
    out.map_shards(write_part_clusters, tasks, workers, lazy=True)
    by_source = {name: by_source[name] for name in own_names}
    dropped = {kind: sum(counts[kind] for counts in by_source.values()) for kind in ("exact", "near")}
    out.extra["duplicates"] = {
        "clusters": num_clusters,
        **dropped,
        **compared,
        "sources": by_source,
    }
    drops = {f"{kind}_duplicate": count for kind, count in dropped.items() if count}
    rows = spilled.rows - spilled.settled
    out.record(rows_in=rows, rows_out=rows - sum(drops.values()), drops=drops)


DUPLICATES = Stage(
    "datakit.duplicates",
    "5",
    find_duplicates,
    description="Verified duplicate clusters across the sources; a document is dropped only for a match with a kept one.",
    checks=("file_set", "rows_conserved", "removal_rates"),
)
"""5: clusters by part. 4: words are folded (`datakit.text.folding`). 3: words are those of any script
(`datakit.text.word_kinds`).
"""


def _spilled(
    out: Writer,
    parts: Sequence[ScopePart],
    signatures: Sequence[Path],
    earlier: Sequence[str],
    duplicates: Sequence[Artifact],
    width: int,
    workers: int | None,
) -> Spilled:
    """Spill the parts. Those of the sources `earlier` come first, and keep only documents that a new one may repeat."""
    spilled = Spilled(out.folder / SCRATCH_FOLDER, tuple(parts))
    old, new = ([p for p in parts if (p.source in earlier) == is_old] for is_old in (True, False))
    spills = {f"spill-{p.index:06d}": (p, signatures[p.index], width) for p in new}
    signed = out.map_shards(spill_part, spills, workers, lazy=True)
    if not old:
        return spilled
    keys = sum(int(str(done["keys"])) for done in signed.values())
    out.map_shards(write_filter, {"keys": (spilled.reading(("ids", "bands", "signed"), new), new, keys)}, 1, lazy=True)
    scope_of = {name: artifact for artifact in duplicates for name in artifact.manifest.extra["duplicates"]["sources"]}
    if missing := [name for name in earlier if name not in scope_of]:
        raise ValueError(f"{out.spec.name}: no earlier scope has looked for duplicates in {missing[0]}; give its duplicates")
    clusters = dict[ScopePart, Path]()
    for scope in duplicates:
        of_scope = [part for part in old if scope_of[part.source] is scope]
        clusters |= zip(of_scope, tables_of_scope(out, scope, CLUSTERS_FOLDER, of_scope), strict=True)
    given = width, spilled.folder / FILTER_FILE
    tasks = {f"kept-{p.index:06d}": (p, signatures[p.index], clusters[p], *given) for p in old}
    kept = out.map_shards(spill_kept, tasks, workers, lazy=True)
    found = [int(str(done["documents"])) for done in kept.values()]
    rows = [*found, *(part.rows for part in new)]
    firsts = [0, *accumulate(rows)]
    numbered_again = (replace(p, first=first, rows=count) for p, first, count in zip(parts, firsts, rows, strict=False))
    out.extra["earlier"] = {"documents": sum(part.rows for part in old), "looked_at": sum(found)}
    return Spilled(spilled.folder, tuple(numbered_again), sum(found))


def _exact_copies(out: Writer, engine: TableEngine, spilled: Spilled) -> Numbered:
    """Return every copy and the first document of its text."""
    size = spilled.rows * ID_BYTES
    tasks = [(spilled.reading(("ids",), group), group) for group in grouped(spilled.parts, size)]
    step = Shuffle("copies", id_rows, tasks, "high", copies_of_range, range_count(size))
    return numbered(out, engine, engine.shuffle(out, step), ("number", "first"), spilled.rows, "copies")


def _candidates(
    out: Writer, config: DuplicatesConfig, engine: TableEngine, spilled: Spilled, copies: Numbered, width: int
) -> tuple[Part, ...]:
    """Return the components of documents that share bands: `root` and `number`, whole components in each part."""
    size = spilled.rows * width * PAIR_BYTES
    tasks = [(spilled.reading(("signed", "bands"), group), copies, group) for group in grouped(spilled.parts, size)]
    all_ids = spilled.reading(("ids",))
    links = partial(links_to_new, all_ids, config.max_band_documents) if spilled.settled else links_of_range
    step = Shuffle("links", band_rows, tasks, "band", links, range_count(size))
    stars = components(out, engine, engine.shuffle(out, step))
    count = range_count(2 * sum(part.bytes for part in stars))
    return engine.shuffle(out, Shuffle("members", joined, tasks_of(stars), "root", members_of_range, count, spread=True))


def _near_matches(
    out: Writer,
    config: DuplicatesConfig,
    engine: TableEngine,
    spilled: Spilled,
    documents: Sequence[Path],
    stars: tuple[Part, ...],
    width: int,
    workers: int | None,
) -> tuple[tuple[Part, ...], dict[str, int]]:
    """Return every verified match (`walk_range`), how many documents were candidates, and how many shingles they have."""
    out.extra["full_bands"] = 0
    if not sum(part.rows for part in stars):
        return (), {"verified_candidates": 0, "compared_shingles": 0}
    candidates = numbered(out, engine, stars, ("number", "root"), spilled.rows, "candidates")
    given = candidates, config.ngram_words
    spills = {f"shingles-{p.index:06d}": (_own(spilled, p), p, documents[p.index], *given) for p in spilled.parts}
    shingled = out.map_shards(spill_shingles, spills, workers, lazy=True)
    shingles = sum(int(str(done["shingles"])) for done in shingled.values())
    size, largest = walk_bytes(candidates.rows, shingles, width), LARGEST_IN_PLACE_BYTES
    arrays = "ids", "bands", "bounds", "shingles"
    tasks = [(spilled.reading(arrays, group), candidates, group) for group in grouped(spilled.parts, size, largest)]
    walk = partial(
        walk_range,
        settled=spilled.settled,
        min_jaccard=config.min_jaccard,
        max_band_documents=config.max_band_documents,
    )
    matches = engine.shuffle(out, Shuffle("walk", walk_rows, tasks, "root", walk, range_count(size, largest), spread=True))
    if full := sum(_full_bands(engine.table(out, part)) for part in matches):
        log.warning("bands were full %d times (max_band_documents %d): recall is lower", full, config.max_band_documents)
    out.extra["full_bands"] = full
    return matches, {"verified_candidates": candidates.rows, "compared_shingles": shingles}


def _full_bands(matches: pa.Table) -> int:
    """Return what the first row of `walk_range` says."""
    assert matches["number"][0].as_py() == NO_DOCUMENT
    return int(matches["kept"][0].as_py())


def _own(spilled: Spilled, part: ScopePart) -> Spilled:
    """Return what the shingles of a part are made with: its ids, and the rows of the documents that an earlier scope kept."""
    return spilled.reading(("ids", "rows") if part.first < spilled.settled else ("ids",), [part])
