"""The stage `datakit.corpus`: documents that survive the declared filters, split into train and held-out.

This join is the only full rewrite of text. Each filter is an attribute table keyed by id (`corpus_filters.py`), so a threshold
or a policy may change without recomputing what it reads. Held-out documents are chosen by a hash of their duplicate cluster,
so copies never stand on both sides.

Two passes, each a shard a part and a row group at a time: the first decides on every document of a part of the input, the
second writes a part of the output. Between them stand the counts, so that output parts have their target size; no output
depends on how many workers there were, and memory does not grow with the source.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import xxhash

from datakit.corpus_filters import Attributes, CorpusConfig, reasons
from datakit.cutoff import Cutoff, read_cutoff
from datakit.documents import (
    as_frame,
    document_paths,
    iterate_part,
    part_bounds,
    part_name,
    text_bytes,
    writing_part,
)
from datakit.paragraph_cuts import Span, cut_table, emptied, read_spans
from datakit.schemas import CORPUS_DROPPED_SCHEMA, DOCUMENT_SCHEMA, SPANS_FOLDER
from lineage.stage import Stage
from lineage.store import Artifact, Writer
from lineage.working_folder import SCRATCH_FOLDER

TRAIN = "train"
HELDOUT = "heldout"
SPLITS = (TRAIN, HELDOUT)
HASH_RANGE = 1 << 64
SMALL_BYTES = 32 << 20
"""Text below which both splits are written in this process: a worker's start takes seconds, the writing a tenth of one."""
FATES_SCHEMA = pa.schema([("id", pa.string()), ("reason", pa.string()), ("split", pa.string())])
"""What the first pass says of every document: the reason why it goes, or the split it stays in."""


def build_corpus(
    out: Writer,
    config: CorpusConfig,
    normalized: Artifact,
    contamination: Artifact,
    duplicates: Artifact,
    **optional: Artifact,
) -> None:
    """Write `train/` and `heldout/` parts and `dropped.parquet` (every drop).

    `optional` are what the config's filters read: `quality`, `rules`, `scores`, `cutoff`, `paragraphs` (cut out of the texts
    that stay).

    Raises: ValueError when nothing is left, an attribute table was made from other documents, or an input that a filter reads
    is not given, or one is given that no filter reads.
    """
    if optional.keys() != config.reads:
        raise ValueError(
            f"{out.spec.name}: its filters read {sorted(config.reads)}, its optional inputs are {sorted(optional)}"
        )
    parts = document_paths(normalized)
    source = _source(parts)
    cutoff = read_cutoff(optional.pop("cutoff"), source) if config.best_scores else None
    spans = optional.pop("paragraphs").folder() / SPANS_FOLDER / source if config.cut_paragraphs else None
    attributes = Attributes.of(source, duplicates, config, contamination=contamination, **optional)
    arguments = config, attributes, cutoff, spans
    decided = out.map_shards(decide_part, {f"decide-{part.stem}": (part, *arguments) for part in parts})
    totals = sum((Counter(_counts(statistics)) for statistics in decided.values()), Counter())
    drops = {name.removeprefix("drop:"): count for name, count in sorted(totals.items()) if name.startswith("drop:")}
    if strangers := attributes.num_clustered() - totals["clustered"]:
        raise ValueError(f"{duplicates.name} names {strangers} documents of {source} that are not there; it is stale")
    if not totals[f"rows:{TRAIN}"]:
        raise ValueError(f"{out.spec.name}: no document of {totals['rows']} is left to train on; dropped: {drops}")
    fates = [out.folder / SCRATCH_FOLDER / part.name for part in parts]
    counts = {split: [_counts(decided[f"decide-{part.stem}"])[f"rows:{split}"] for part in parts] for split in SPLITS}
    tasks = {
        f"write-{split}-{index:05d}": (name, split, slices, spans)
        for split in reversed(SPLITS)  # held out first: few documents from every part of the input take longest
        for index, (name, slices) in enumerate(
            layout(split, parts, fates, counts[split], totals[f"bytes:{split}"], config.target_part_bytes)
        )
    }
    written = out.map_shards(write_split_part, tasks, workers=None if totals["bytes"] > SMALL_BYTES else 1)
    cut = sum((Counter({n: c for n, c in _counts(s).items() if n.startswith("cut_")}) for s in written.values()), Counter())
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
        **cut,
    )


CORPUS = Stage("datakit.corpus", "2", build_corpus)


def decide_part(
    folder: Path, part: Path, config: CorpusConfig, attributes: Attributes, cutoff: Cutoff | None, spans: Path | None
) -> Mapping[str, int]:
    """Say of every document of a part why it goes or where it stays; counts of rows, bytes and drops."""
    ids, sizes, is_emptied, num_bytes = [pl.Series("id", [], pl.String)], [], [np.zeros(0, dtype=bool)], 0
    for table, found in _with_spans(part, ["id", "text"], spans):
        ids.append(as_frame(table.select(["id"]))["id"])
        num_bytes += int(text_bytes(table).sum())
        left = cut_table(table, found)
        sizes.append(pl.Series("bytes", text_bytes(left)))
        is_emptied.append(emptied(left) if spans else np.zeros(left.num_rows, dtype=bool))
    joined = attributes.of_part(part.name, pl.concat(ids)).with_columns(is_emptied=pl.Series(np.concatenate(is_emptied)))
    reason = pl.coalesce(*reasons(config, cutoff), pl.lit(""))
    key = pl.coalesce("cluster_id", "id")
    frame = joined.with_columns(reason=reason, bytes=pl.concat(sizes) if sizes else pl.lit(0, pl.Int64)).with_columns(
        split=pl.when(pl.col("reason") == "").then(key.map_elements(lambda k: split_of(k, config), return_dtype=pl.String))
    )
    frame = frame.with_columns(pl.col("split").fill_null(""))
    with writing_part(folder / SCRATCH_FOLDER / part.name, FATES_SCHEMA) as fates:
        fates.write(frame.select(FATES_SCHEMA.names).to_arrow().cast(FATES_SCHEMA))
    counts = Counter({"rows": frame.height, "bytes": num_bytes, "clustered": joined["cluster_id"].count()})
    for split, rows, size in frame.filter(pl.col("split") != "").group_by("split").agg(pl.len(), pl.sum("bytes")).iter_rows():
        counts[f"rows:{split}"], counts[f"bytes:{split}"] = rows, size
    dropped = frame.filter(pl.col("reason") != "").group_by("reason").len()
    return dict(counts) | {f"drop:{reason}": count for reason, count in dropped.iter_rows()}


def split_of(split_key: str, config: CorpusConfig) -> str:
    """The split of a cluster (or of a document without one)."""
    return HELDOUT if is_heldout(split_key, config) else TRAIN


def is_heldout(split_key: str, config: CorpusConfig) -> bool:
    """Whether a cluster is held out: a salted hash below the share."""
    return xxhash.xxh3_64_intdigest(f"{config.split_salt}:{split_key}") < config.heldout_frac * HASH_RANGE


@dataclass(frozen=True)
class Slice:
    """Survivors `[start, stop)` of one split in one part of the input, counted from the part's first survivor."""

    part: Path
    fates: Path
    start: int
    stop: int


def layout(
    split: str,
    parts: list[Path],
    fates: list[Path],
    counts: list[int],
    num_bytes: int,
    target_bytes: int,
) -> Iterator[tuple[str, tuple[Slice, ...]]]:
    """(name of an output part, where its documents come from) for every part of a split; `counts` are survivors by part."""
    bounds = part_bounds(sum(counts), num_bytes, target_bytes)
    for index, (start, stop) in enumerate(bounds):
        slices, first = [], 0
        for part, fate, count in zip(parts, fates, counts, strict=True):
            low, high = max(start, first) - first, min(stop, first + count) - first
            if low < high:
                slices.append(Slice(part, fate, low, high))
            first += count
        yield f"{split}/{part_name(index, len(bounds))}", tuple(slices)


def write_split_part(
    folder: Path, name: str, split: str, slices: tuple[Slice, ...], spans: Path | None = None
) -> Mapping[str, int]:
    """Copy a split's documents into one output part, a row group of the input at a time; counts of what was cut."""
    counts = Counter[str]()
    with writing_part(folder / name, DOCUMENT_SCHEMA) as out:
        for piece in slices:
            for table, found in _survivors(piece, split, spans):
                left = cut_table(table, found)
                counts["cut_bytes"] += int(text_bytes(table).sum() - text_bytes(left).sum())
                counts["cut_paragraphs"] += sum(len(some) for some in found)
                out.write(left)
    return {"rows": out.rows, **counts}


def _with_spans(
    part: Path, names: list[str], spans: Path | None, first: int = 0, end: int | None = None
) -> Iterator[tuple[pa.Table, list[list[Span]]]]:
    """Rows `[first, end)` of a part, a row group at a time, and what is to be cut out of each row."""
    of_part = read_spans(spans / part.name) if spans else None
    for table in iterate_part(part, names, first, end):
        yield table, of_part[first : first + table.num_rows] if of_part is not None else []
        first += table.num_rows


def _survivors(piece: Slice, split: str, spans: Path | None) -> Iterator[tuple[pa.Table, list[list[Span]]]]:
    is_mine = pl.read_parquet(piece.fates, columns=["split"])["split"] == split
    rows = is_mine.arg_true()[piece.start : piece.stop]
    is_mine = pl.int_range(is_mine.len(), eager=True).is_in(rows.implode())
    first, end = int(rows[0]), int(rows[-1]) + 1
    for table, found in _with_spans(piece.part, DOCUMENT_SCHEMA.names, spans, first, end):
        mine = is_mine[first : first + table.num_rows]
        yield table.filter(mine.to_arrow()), [some for some, stays in zip(found, mine, strict=bool(found)) if stays]
        first += table.num_rows


def _write_dropped(path: Path, fates: list[Path]) -> None:
    with writing_part(path, CORPUS_DROPPED_SCHEMA) as out:
        for fate in fates:
            dropped = pl.read_parquet(fate, columns=["id", "reason"]).filter(pl.col("reason") != "")
            out.write(dropped.to_arrow().cast(CORPUS_DROPPED_SCHEMA))


def _source(parts: list[Path]) -> str:
    """The source's name, from the first document that there is."""
    for part in parts:
        for table in iterate_part(part, ["source"], 0, 1):
            return str(table["source"][0].as_py())
    raise ValueError(f"{parts[0].parent}: there is no document in {len(parts)} parts")


def _counts(statistics: Mapping[str, Any]) -> Counter[str]:
    return Counter({name: int(str(value)) for name, value in statistics.items()})
