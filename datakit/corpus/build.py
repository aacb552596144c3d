"""The stage `datakit.corpus`: documents that pass the declared filters, split into train and held-out.

This join is the only full rewrite of text. Each filter is an attribute table keyed by id (`filters.py`), so a threshold
or a policy may change without recomputing its input. A hash of the duplicate cluster chooses held-out documents, so
copies are never on both sides. docs/design/splits.md says which documents move when others are added, and what is
dropped together with a kept copy.

There are two passes, each with one shard a part and one row group at a time. The first decides on every document of an
input part; the second writes an output part. Between them the counts are added, so that output parts have their target
size. No output depends on the number of workers, and memory does not grow with the source. Held-out documents are few
and come from every input part, so the first pass, which has read them, copies them; otherwise the second would read all
texts again for them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import xxhash

from datakit.corpus.filters import Attributes, CorpusConfig, reasons
from datakit.corpus.parts import (
    CUT_COUNTS,
    HELDOUT,
    SPLITS,
    TRAIN,
    chosen,
    cut_counts,
    layout,
    spans_of,
    with_spans,
    write_split_part,
)
from datakit.corpus.removals import Removed, read_removed
from datakit.dedup.paragraph_cuts import cut_table, emptied, repeated_shares
from datakit.documents.parts import as_frame, has_long_texts, iterate_part, text_bytes, writing_part
from datakit.documents.parts_of_tasks import parts_beside, parts_of_tasks, source_of
from datakit.documents.schemas import CORPUS_DROPPED_SCHEMA, DOCUMENT_SCHEMA, SPANS_FOLDER
from datakit.quality.cutoff import Cutoff, read_cutoff
from lineage.artifact.store import Artifact
from lineage.shards.reads import Folder
from lineage.shards.run import SCRATCH_FOLDER
from lineage.stage import Stage
from lineage.writing.writer import Writer

HASH_RANGE = 1 << 64
SMALL_BYTES = 32 << 20
"""Text below which both splits are written in this process: a worker's start takes seconds, the writing a tenth of one."""
FATES_SCHEMA = pa.schema([("id", pa.string()), ("reason", pa.string()), ("split", pa.string())])
"""Result of the first pass for every document: the drop reason, or the split."""


def build_corpus(
    out: Writer,
    config: CorpusConfig,
    normalized: Artifact,
    contamination: Artifact,
    duplicates: Artifact,
    **optional: Artifact,
) -> None:
    """Write `train/` and `heldout/` parts and `dropped.parquet` (every drop).

    `optional` holds what the config's filters read: `quality`, `rules`, `scores`, `cutoff`, `removals`, `paragraphs`
    (cut out of the texts that stay).

    Raises: ValueError if nothing is left, if an attribute table was made from other documents, if an input that a
    filter reads is missing, or if an input that no filter reads is given.
    """
    if optional.keys() != config.reads:
        raise ValueError(
            f"{out.spec.name}: its filters read {sorted(config.reads)}, its optional inputs are {sorted(optional)}"
        )
    parts = parts_of_tasks(out, normalized)
    names, source = [part.name for part in parts], source_of(normalized)
    cutoff = read_cutoff(optional.pop("cutoff"), source) if config.best_scores else None
    removed = read_removed(optional.pop("removals"), duplicates) if config.remove_listed else None
    spans = None
    if "paragraphs" in config.reads:
        spans = parts_beside(out, optional.pop("paragraphs"), f"{SPANS_FOLDER}/{source}", names)
    attributes = Attributes.of(out, names, source, duplicates, config, contamination=contamination, **optional)
    decisions = {
        f"decide-{part.stem}": (part, config, attributes.reading(part.name), cutoff, removed, spans_of(spans, [part]))
        for part in parts
    }
    decided = out.map_shards(decide_part, decisions, lazy=True)
    totals = sum((Counter(_counts(statistics)) for statistics in decided.values()), Counter())
    drops = {name.removeprefix("drop:"): count for name, count in sorted(totals.items()) if name.startswith("drop:")}
    if not totals[f"rows:{TRAIN}"]:
        raise ValueError(f"{out.spec.name}: no document of {totals['rows']} is left to train on; dropped: {drops}")
    fates = [out.folder / SCRATCH_FOLDER / part.name for part in parts]
    cuts = spans if config.cut_paragraphs else None
    tasks = _write_tasks(out.folder, config, parts, fates, decided, totals, cuts)
    written = out.map_shards(write_split_part, tasks, workers=None if totals["bytes"] > SMALL_BYTES else 1, lazy=True)
    cut = sum((_counts(statistics) for statistics in (*decided.values(), *written.values())), Counter())
    out.bring(*fates)
    _write_dropped(out.folder / "dropped.parquet", fates)
    out.facts["corpus"] = {"source": source, "domain": normalized.manifest.extra["documents"]["domain"]}
    out.record(
        rows_in=totals["rows"],
        rows_out=totals[f"rows:{TRAIN}"] + totals[f"rows:{HELDOUT}"],
        rows_train=totals[f"rows:{TRAIN}"],
        rows_heldout=totals[f"rows:{HELDOUT}"],
        drops=drops,
        bytes_in=totals["bytes"],
        bytes_out=totals[f"bytes:{TRAIN}"] + totals[f"bytes:{HELDOUT}"],
        **{name: cut[name] for name in CUT_COUNTS if cut[name]},
    )


CORPUS = Stage(
    "datakit.corpus",
    "2",
    build_corpus,
    description="Documents that survive the filters, split into train and held-out (duplicate clusters stay on one side).",
    checks=("rows_conserved", "file_set", "corpus_valid"),
)
"""Without a version of its own since 2026-11-27: parts that come from one with a text of 16 MiB have no statistics of text, and
this text is a row group by itself. All other parts keep their bytes.
"""


def decide_part(
    folder: Path,
    part: Path,
    config: CorpusConfig,
    attributes: Attributes,
    cutoff: Cutoff | None,
    removed: Removed | None,
    spans: Folder | None,
) -> Mapping[str, int]:
    """Decide for every document of a part the drop reason or the split; return counts of rows, bytes and drops."""
    ids = pl.concat([pl.Series("id", [], pl.String), *(as_frame(table)["id"] for table in iterate_part(part, ["id"]))])
    joined = attributes.of_part(part.name, ids)
    counts, first = Counter({"rows": ids.len()}), 0
    copied = _heldout_file(folder, part.name)
    with (
        writing_part(folder / SCRATCH_FOLDER / part.name, FATES_SCHEMA) as fates,
        writing_part(copied, long_texts=has_long_texts(part)) as heldout,
    ):
        for table, repeated in with_spans(part, DOCUMENT_SCHEMA.names, spans):
            spans_of_rows = repeated if config.cut_paragraphs else []
            left = cut_table(table, spans_of_rows)
            is_emptied = emptied(left) if config.cut_paragraphs else np.zeros(left.num_rows, dtype=bool)
            sizes, shares = text_bytes(left), repeated_shares(table, repeated)
            frame = joined[first : first + left.num_rows].with_columns(
                is_emptied=is_emptied, repeated_share=shares, bytes=sizes
            )
            decided = _with_fates(frame, config, cutoff, removed)
            fates.write(decided.select(FATES_SCHEMA.names).to_arrow().cast(FATES_SCHEMA))
            is_mine = decided["split"] == HELDOUT
            own_rows = left.filter(is_mine.to_arrow())
            heldout.write(own_rows)
            counts["bytes"] += int((text_bytes(table) if spans_of_rows else sizes).sum())
            counts += _tallied(decided) + cut_counts(table.filter(is_mine.to_arrow()), own_rows, chosen(spans_of_rows, is_mine))
            first += left.num_rows
    return dict(counts)


def _write_tasks(
    folder: Path,
    config: CorpusConfig,
    parts: Sequence[Path],
    fates: Sequence[Path],
    decided: Mapping[str, Mapping[str, Any]],
    totals: Mapping[str, int],
    spans: Path | None,
) -> dict[str, tuple]:
    """Return the arguments of `write_split_part` for every output part of both splits."""
    survivors: dict[str, list[tuple[Path, Path | None]]] = {
        TRAIN: list(zip(parts, fates, strict=True)),
        HELDOUT: [(_heldout_file(folder, part.name), None) for part in parts],
    }
    tasks = {}
    for split in SPLITS:
        counts = [_counts(decided[f"decide-{part.stem}"])[f"rows:{split}"] for part in parts]
        outputs = layout(split, survivors[split], counts, totals[f"bytes:{split}"], config.target_part_bytes)
        tasks |= {
            f"write-{split}-{index:05d}": (name, slices, spans_of(spans, [piece.part for piece in slices if piece.fates]))
            for index, (name, slices) in enumerate(outputs)
        }
    return tasks


def _heldout_file(folder: Path, part: str) -> Path:
    """Return where the first pass copies a part's held-out documents to."""
    return folder / SCRATCH_FOLDER / HELDOUT / part


def _with_fates(frame: pl.DataFrame, config: CorpusConfig, cutoff: Cutoff | None, removed: Removed | None) -> pl.DataFrame:
    """Return documents with their attributes, and either `reason`, why each is dropped, or its `split`."""
    key = pl.coalesce("cluster_id", "id")
    frame = frame.with_columns(reason=pl.coalesce(*reasons(config, cutoff, removed), pl.lit("")), key=key)
    split = ["" if reason else split_of(key, config) for reason, key in frame.select("reason", "key").iter_rows()]
    return frame.with_columns(pl.Series("split", split, pl.String))


def _tallied(decided: pl.DataFrame) -> Counter[str]:
    """Count rows and bytes by split, and drops by reason."""
    counts = Counter[str]()
    for split, rows, size in decided.filter(pl.col("split") != "").group_by("split").agg(pl.len(), pl.sum("bytes")).iter_rows():
        counts[f"rows:{split}"], counts[f"bytes:{split}"] = rows, size
    dropped = decided.filter(pl.col("reason") != "").group_by("reason").len()
    return counts + Counter({f"drop:{reason}": count for reason, count in dropped.iter_rows()})


def split_of(split_key: str, config: CorpusConfig) -> str:
    """Return the split of a cluster (or of a document without one)."""
    return HELDOUT if is_heldout(split_key, config) else TRAIN


def is_heldout(split_key: str, config: CorpusConfig) -> bool:
    """Whether a cluster is held out: a salted hash below the share."""
    return xxhash.xxh3_64_intdigest(f"{config.split_salt}:{split_key}") < config.heldout_frac * HASH_RANGE


def _write_dropped(path: Path, fates: list[Path]) -> None:
    with writing_part(path, CORPUS_DROPPED_SCHEMA) as out:
        for fate in fates:
            dropped = pl.read_parquet(fate, columns=["id", "reason"]).filter(pl.col("reason") != "")
            out.write(dropped.to_arrow().cast(CORPUS_DROPPED_SCHEMA))


def _counts(statistics: Mapping[str, Any]) -> Counter[str]:
    return Counter({name: int(str(value)) for name, value in statistics.items()})
