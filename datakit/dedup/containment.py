"""The stage `datakit.containment`: documents most of whose text lies inside another, longer document of the scope.

The Jaccard similarity of a short document and a long one is small whatever they share, and equal paragraphs
(`datakit.paragraphs`) miss a quotation with an edited word. Here a document is contained if at least `min_containment` of
its words stand in the container too, in runs of `ngram_words` words (folded, as near-duplicates compare them).

**Words, not runs, are counted.** An edited word takes five runs with it: with 10 % of the words edited, 59 % of the runs
are left and 83 % of the words stand in one of them; with 12 %, 53 % and 78 %. A document of which a half is new has 50 %
of both. So a threshold of 70 % of the words separates edited quotations from half quotations, and no threshold of the
runs does.

**The order** is: more words first, then by declared source, then by id. Only a document that comes first in the order can
contain another one, so there are no circles: of two documents that contain each other the first stays. Documents are
decided in this order, and one is removed only for a container that stays. So every removed document lies in one that
stays, and no document that stays lies in another one that stays (of the candidates). In a chain, a document that lies
only in removed ones stays. Documents that `datakit.duplicates` removes neither contain nor are contained. Later filters
do not count here: a document whose container is dropped for its quality is lost to that corpus.

**Candidates** share sampled runs. A short document cannot be helped by more samples of its own (a bottom-k sketch): its
container, which is long, would have to keep them too. So all documents are sampled at the same rate, which the shortest
document fixes: 26 runs of 30 words give 6.5 samples. A template that thousands of documents have would make millions of
pairs. Each sample therefore lists its first `hash_documents` documents as containers, and the others only ask. Skipping
such samples would lose a licence that stands whole in a thousand files. How many samples were full is reported.

Nothing in memory grows with the scope. A sample is 24 bytes in a shuffle (`lineage.tables`), about one byte a byte of
text.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datakit.dedup.containment_candidates import (
    PAIR_BYTES,
    SAMPLE_BYTES,
    ContainmentConfig,
    candidates_of_range,
    pairs_of_range,
    sample_part,
    sample_rows,
)
from datakit.dedup.containment_pairs import compared_rows, removals, spill_compared, verified_of_range
from datakit.dedup.duplicates import SMALL_SCOPE_ROWS
from datakit.dedup.duplicates_table import hex_ids
from datakit.dedup.numbered import Numbered, numbered
from datakit.dedup.scope_parts import NO_DOCUMENT, ScopeFiles, ScopePart, scope_parts, tables_of_scope
from datakit.documents.parts import writing_part
from datakit.documents.schemas import CLUSTERS_FOLDER, CONTAINED_FOLDER
from lineage.artifact.store import Artifact
from lineage.shards.run import SCRATCH_FOLDER
from lineage.stage import Stage
from lineage.tables.local import LocalEngine
from lineage.tables.shuffle import LARGEST_IN_PLACE_BYTES, Part, Shuffle, TableEngine, grouped, joined, range_count, tasks_of
from lineage.writing.writer import Writer

SCHEMA = pa.schema([("id", pa.string()), ("container", pa.string()), ("containment", pa.float64())])
"""One row for each document, in the documents' order: the id of the document that stays and holds it, or "", and the share
of its words that stand there, or 0."""


def find_contained(out: Writer, config: ContainmentConfig, normalized: tuple[Artifact, ...], duplicates: Artifact) -> None:
    """Write `contained/<source>/part-*.parquet` beside the documents' parts: same names, same ids, same order."""
    parts, documents = scope_parts(out, normalized)
    clusters = tables_of_scope(out, duplicates, CLUSTERS_FOLDER, parts)
    sampled = ScopeFiles(out.folder / SCRATCH_FOLDER, parts)
    rows = sampled.rows
    workers = 1 if rows < SMALL_SCOPE_ROWS else None
    engine = out.execution.tables or LocalEngine(SCRATCH_FOLDER, workers)
    samplings = {f"sample-{p.index:06d}": (p, documents[p.index], clusters[p.index], config) for p in parts}
    samples = out.map_shards(sample_part, samplings, workers, lazy=True)
    candidates, full = _candidates(out, config, engine, sampled, sum(int(str(s["samples"])) for s in samples.values()))
    by_contained = numbered(out, engine, candidates, ("contained", "container"), rows, "candidates")
    containers = numbered(out, engine, candidates, ("container",), rows, "containers")
    given = by_contained, containers, config.ngram_words
    spills = {f"shingles-{p.index:06d}": (p, documents[p.index], *given) for p in parts}
    spilled = out.map_shards(spill_compared, spills, workers, lazy=True)
    size, largest = sum(int(str(s["bytes"])) for s in spilled.values()), LARGEST_IN_PLACE_BYTES
    arrays = "spilled", "bounds", "shingles"
    groups = grouped(parts, size, largest)
    tasks = [(sampled.reading(arrays, group), by_contained, containers, group) for group in groups]
    reduce = partial(verified_of_range, ngram_words=config.ngram_words, min_containment=config.min_containment)
    count = range_count(size, largest)
    step = Shuffle("contained-verified", compared_rows, tasks, "container", reduce, count, spread=True)
    verified = engine.shuffle(out, step)
    columns = ("number", "container", "containment")
    removed = numbered(out, engine, removals(out, engine, verified), columns, rows, "removed")
    reads = [sampled.reading(("words",), [p], ["ids"]) for p in parts]
    writes = {f"write-{p.index:06d}": (reads[p.index], p, documents[p.index], removed) for p in parts}
    written = out.map_shards(write_contained, writes, workers, lazy=True)
    sources = _by_source(sampled, written)
    out.extra["containment"] = {
        "contained": sum(counts["contained"] for counts in sources.values()),
        "candidate_pairs": by_contained.rows,
        "compared_bytes": size,
        "verified_pairs": sum(part.rows for part in verified),
        "full_samples": full,
        "sources": sources,
    }
    out.record(rows_in=rows, rows_out=rows)


CONTAINMENT = Stage(
    "datakit.containment",
    "1",
    find_contained,
    description="Documents most of whose text lies inside another, longer document, edited or not.",
    checks=("rows_conserved", "file_set", "contained_rates"),
)


def write_contained(folder: Path, sampled: ScopeFiles, part: ScopePart, documents: Path, removed: Numbered) -> dict[str, int]:
    """Write the table of one part, and count its documents and words."""
    ids = pq.read_table(documents, columns=["id"], use_threads=False)["id"].combine_chunks()
    number, containers, shares = removed.between(part.first, part.end).T
    names, values = np.full(part.rows, "", object), np.zeros(part.rows)
    names[number - part.first] = hex_ids(*sampled.ids(containers).T)
    values[number - part.first] = np.ascontiguousarray(shares).view(np.float64)
    table = pa.Table.from_arrays([ids, pa.array(names, pa.string()), pa.array(values)], schema=SCHEMA)
    with writing_part(folder / CONTAINED_FOLDER / part.source / part.name, SCHEMA) as out:
        out.write(table)
    words = int(sampled.load("words", part)[number - part.first].sum())
    return {"documents": part.rows, "contained": int(number.size), "words": words}


def _candidates(
    out: Writer, config: ContainmentConfig, engine: TableEngine, sampled: ScopeFiles, samples: int
) -> tuple[tuple[Part, ...], int]:
    """Return pairs to verify, and how many samples more documents have than are listed."""
    size = samples * SAMPLE_BYTES
    arrays = "hashes", "sampled", "words"
    tasks = [(sampled.reading(arrays, group), config.asked_hashes, group) for group in grouped(sampled.parts, size)]
    reduce = partial(pairs_of_range, hash_documents=config.hash_documents)
    step = Shuffle("samples", sample_rows, tasks, "hash", reduce, range_count(size), spread=True)
    pairs = engine.shuffle(out, step)
    full = sum(_full_samples(engine.table(out, part)) for part in pairs)
    count = range_count(sum(part.rows for part in pairs) * PAIR_BYTES)
    reduce = partial(candidates_of_range, min_shared=config.min_shared)
    step = Shuffle("contained-pairs", joined, tasks_of(pairs), "contained", reduce, count, spread=True)
    return engine.shuffle(out, step), full


def _full_samples(pairs: pa.Table) -> int:
    """Return what the first row of `pairs_of_range` says."""
    assert pairs["contained"][0].as_py() == NO_DOCUMENT
    return int(pairs["shared"][0].as_py())


def _by_source(sampled: ScopeFiles, written: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return source -> its documents, how many are contained, and their words."""
    sources: dict[str, dict[str, int]] = {}
    for part, counts in zip(sampled.parts, written.values(), strict=True):
        of_source = sources.setdefault(part.source, {"documents": 0, "contained": 0, "words": 0})
        for name in of_source:
            of_source[name] += int(str(counts[name]))
    return sources
