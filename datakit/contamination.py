"""The stage `datakit.contamination`: mark the documents of a source that hold benchmark items.

It only marks. What to do about a mark is the corpus's decision, so thresholds can be studied without a rescan. The definition
is in `contamination_policy.py`, its cost and recall in the module docstrings beside it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from datakit.canonical_text import CANONICAL_TEXT_VERSION
from datakit.contamination_canaries import num_clean_texts, run_canaries
from datakit.contamination_channels import ITEM_KEY, read_suite_items
from datakit.contamination_index import index_folder
from datakit.contamination_methods import (
    Policy,
    PolicyIndex,
    counts_documents,
    document_counts,
    load_index,
    policy_channels,
    scanner,
    text_batches,
    too_common,
)
from datakit.contamination_named_scan import NO_GRAMS
from datakit.contamination_policy import STANDING_TIERS, TIERS
from datakit.documents import document_paths
from datakit.ngram_index import UInt64s
from lineage.stage import Stage
from lineage.store import Artifact, Writer
from lineage.working_folder import SCRATCH_FOLDER

SLICE_BYTES = 16 << 20
"""Text of one shard, whole row groups; how the work is cut, which no output depends on."""
MARK_SCHEMA = pa.schema(
    [("id", pa.string()), ("contaminated", pa.bool_()), ("tier", pa.string()), ("best_score", pa.float64())]
)
MATCH_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        *((name, pa.string()) for name in ITEM_KEY),
        ("channel", pa.string()),
        ("tier", pa.string()),
        ("score", pa.float64()),
        ("start_byte", pa.int64()),
        ("end_byte", pa.int64()),
        ("longest_run", pa.int64()),
    ]
)
ITEM_STATUS_SCHEMA = pa.schema(
    [*((name, pa.string()) for name in ITEM_KEY), ("status", pa.string()), ("num_documents", pa.int64())]
)
_FOUND_SCHEMA = {
    "id": pl.String,
    "channel_index": pl.Int64,
    "tier": pl.String,
    "score": pl.Float64,
    "start_byte": pl.Int64,
    "end_byte": pl.Int64,
    "longest_run": pl.Int64,
}


def mark_contamination(
    out: Writer, config: Policy, normalized: Artifact, suites: tuple[Artifact, ...], index: Artifact
) -> None:
    """Write `marks/`, `matches.parquet` and `items.parquet` (docs/design/contracts.md), and the canaries' recall.

    `extra["contamination"]` counts documents and items by tier and task; `extra["canaries"]` is what `run_canaries` reports.

    Raises: ValueError when the suites hold nothing to match, or the index is not of this policy and these suites;
    RuntimeError when planted canaries are not found.
    """
    items = read_suite_items(suites)
    channels = policy_channels(items, config)
    folder = index_folder(index, config, suites)
    parts = document_paths(normalized)
    slices = {f"{part.stem}-{low:05d}": (part, low, high) for part in parts for low, high in _slices(part)}
    ignored = _common_grams(out, slices, folder, config)
    tasks = {name: (*where, folder, config, ignored) for name, where in slices.items()}
    out.map_shards(_match_slice, tasks)
    found = pl.concat([pl.DataFrame(schema=_FOUND_SCHEMA), *(pl.read_parquet(_scratch(out, "found", n)) for n in tasks)])
    matches = _named(found, items, channels)
    marks = _write_marks(out.folder / "marks", parts, matches)
    _write(out.folder / "matches.parquet", matches, MATCH_SCHEMA)
    item_index = load_index(folder, config)
    statuses = _item_statuses(items, channels, item_index, matches)
    _write(out.folder / "items.parquet", statuses, ITEM_STATUS_SCHEMA)
    clean_texts = _clean_texts(parts, marks, num_clean_texts(config))
    out.record(rows_in=len(marks), rows_out=len(marks), drops={})
    out.extra["contamination"] = _summary(config, marks, matches, statuses)
    scan = scanner(item_index, config, _read_ignored(ignored))
    out.extra["canaries"] = run_canaries(items, channels, clean_texts, item_index, config, scan)


CONTAMINATION = Stage("datakit.contamination", "4", mark_contamination)
"""4: spans count bytes of UTF-8, as `start_byte` and `end_byte`. 3: named policies; canaries are planted as rendered records,
and false positives counted on scrambled text too."""


def _slices(part: Path) -> Iterator[tuple[int, int]]:
    """(first row group, the one after the last) of about SLICE_BYTES of text each."""
    metadata = pq.read_metadata(part)
    low, size = 0, 0
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).total_byte_size
        if size >= SLICE_BYTES:
            yield low, group + 1
            low, size = group + 1, 0
    if low < metadata.num_row_groups:
        yield low, metadata.num_row_groups


def _read_groups(part: Path, low: int, high: int) -> Iterator[pl.DataFrame]:
    """Ids and texts of row groups, one group in memory at a time."""
    with pq.ParquetFile(part) as file:
        for group in range(low, high):
            frame = pl.from_arrow(file.read_row_group(group, columns=["id", "text"]))
            assert isinstance(frame, pl.DataFrame)
            yield frame


def _match_slice(
    folder: Path, part: Path, low: int, high: int, index_folder: Path, config: Policy, ignored: Path | None
) -> Mapping[str, object]:
    """One shard: the matches of some row groups of a part, channels still as numbers."""
    scan = scanner(load_index(index_folder, config), config, _read_ignored(ignored))
    rows, num_documents = [], 0
    for documents in _read_groups(part, low, high):
        ids = documents["id"]
        for first, texts in text_batches(documents["text"].to_list()):
            rows += [
                (ids[first + m.document], m.channel, m.tier, m.score, m.start_byte, m.end_byte, m.longest_run)
                for m in scan(texts)
            ]
        num_documents += len(documents)
    path = folder / SCRATCH_FOLDER / "found" / f"{part.stem}-{low:05d}.parquet"
    path.parent.mkdir(parents=True)
    pl.DataFrame(rows, schema=_FOUND_SCHEMA, orient="row").write_parquet(path)
    return {"documents": num_documents, "matches": len(rows)}


def _common_grams(out: Writer, slices: Mapping[str, tuple[Path, int, int]], index_folder: Path, config: Policy) -> Path | None:
    """File of the grams that the policy ignores because too many documents hold them; None where it counts none."""
    if not counts_documents(config):
        return None
    out.map_shards(_count_slice, {f"count-{name}": (*where, index_folder, config) for name, where in slices.items()})
    counts = pl.concat([pl.read_parquet(_scratch(out, "counts", name)) for name in slices])
    path = _scratch(out, "counts", "common")
    grams = too_common(counts["gram"].to_numpy(), counts["documents"].to_numpy(), config)
    pl.DataFrame({"gram": grams}, schema={"gram": pl.UInt64}).write_parquet(path)
    return path


def _count_slice(folder: Path, part: Path, low: int, high: int, index_folder: Path, config: Policy) -> Mapping[str, object]:
    """One shard: in how many documents of some row groups each gram of the items is."""
    index = load_index(index_folder, config)
    counted = [pl.DataFrame(schema={"gram": pl.UInt64, "documents": pl.Int64})]
    for documents in _read_groups(part, low, high):
        for _, texts in text_batches(documents["text"].to_list()):
            grams, counts = document_counts(texts, index, config)
            counted.append(pl.DataFrame({"gram": grams, "documents": counts.astype(np.int64)}))
    path = folder / SCRATCH_FOLDER / "counts" / f"{part.stem}-{low:05d}.parquet"
    path.parent.mkdir(parents=True)
    pl.concat(counted).group_by("gram").sum().sort("gram").write_parquet(path)
    return {"grams": len(counted)}


def _read_ignored(path: Path | None) -> UInt64s:
    return NO_GRAMS if path is None else pl.read_parquet(path)["gram"].to_numpy()


def _scratch(out: Writer, folder: str, name: str) -> Path:
    return out.folder / SCRATCH_FOLDER / folder / f"{name}.parquet"


def _named(found: pl.DataFrame, items: pl.DataFrame, channels: pl.DataFrame) -> pl.DataFrame:
    """Matches with the names of their items and channels, sorted by document and item."""
    names = channels.select("item", "channel").with_row_index("channel_index").cast({"channel_index": pl.Int64})
    keys = items.select(ITEM_KEY).with_row_index("item").cast({"item": pl.Int64})
    named = found.join(names, on="channel_index", how="left").join(keys, on="item", how="left")
    return named.select(MATCH_SCHEMA.names).sort("id", *ITEM_KEY, "channel")


def _write_marks(folder: Path, parts: list[Path], matches: pl.DataFrame) -> pl.DataFrame:
    """Marks files beside the documents' parts, same names, rows and order; all of them are returned."""
    rank = {tier: rank for rank, tier in enumerate(TIERS)}
    best = matches.group_by("id").agg(
        tier=pl.col("tier").sort_by(pl.col("tier").replace_strict(rank, return_dtype=pl.Int8)).first(),
        best_score=pl.col("score").max(),
    )
    folder.mkdir()
    written = []
    for part in parts:
        marks = pl.read_parquet(part, columns=["id"]).join(best, on="id", how="left", maintain_order="left")
        marks = marks.with_columns(pl.col("tier").fill_null(""), pl.col("best_score").fill_null(0.0))
        marks = marks.with_columns(contaminated=pl.col("tier").is_in(STANDING_TIERS)).select(MARK_SCHEMA.names)
        _write(folder / part.name, marks, MARK_SCHEMA)
        written.append(marks)
    return pl.concat(written)


def _item_statuses(items: pl.DataFrame, channels: pl.DataFrame, index: PolicyIndex, matches: pl.DataFrame) -> pl.DataFrame:
    standing = matches.filter(pl.col("tier").is_in(STANDING_TIERS))
    counts = standing.group_by(ITEM_KEY).agg(num_documents=pl.col("id").n_unique().cast(pl.Int64))
    matchable = channels.filter(pl.Series(index.is_matchable()))["item"].unique()
    status = (
        pl.when(pl.col("num_documents") > 0)
        .then(pl.lit("matched"))
        .when(pl.int_range(pl.len()).is_in(matchable.implode()))
        .then(pl.lit("clean"))
        .otherwise(pl.lit("unknown"))
    )
    joined = items.select(ITEM_KEY).join(counts, on=ITEM_KEY, how="left", maintain_order="left")
    return joined.with_columns(pl.col("num_documents").fill_null(0)).with_columns(status=status)


def _clean_texts(parts: list[Path], marks: pl.DataFrame, count: int) -> list[str]:
    """Texts of the first unmarked documents (ids are hashes, so the first are as good as random)."""
    ids = marks.filter(pl.col("tier") == "")["id"].head(count)
    found = pl.scan_parquet(parts).filter(pl.col("id").is_in(ids.implode())).select("id", "text").collect()
    return found.sort("id")["text"].to_list()


def _summary(config: Policy, marks: pl.DataFrame, matches: pl.DataFrame, statuses: pl.DataFrame) -> dict[str, object]:
    tiers = dict.fromkeys(TIERS, 0) | dict(matches.group_by("tier").agg(pl.col("id").n_unique()).iter_rows())
    tasks: dict[str, dict[str, int]] = {}
    for task, status, count in statuses.group_by("task", "status").len().sort("task", "status").iter_rows():
        tasks.setdefault(task, {"clean": 0, "matched": 0, "unknown": 0})[status] = count
    return {
        "policy": config.policy,
        "canonical_text": CANONICAL_TEXT_VERSION,
        "documents": len(marks),
        "contaminated": int(marks["contaminated"].sum()),
        "documents_by_tier": {tier: tiers[tier] for tier in TIERS},
        "items_by_task": tasks,
    }


def _write(path: Path, frame: pl.DataFrame, schema: pa.Schema) -> None:
    pq.write_table(frame.select(schema.names).to_arrow().cast(schema), path, compression="zstd")
