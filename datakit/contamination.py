"""The stage `datakit.contamination`: mark the documents of a source that hold benchmark items.

It only marks. What to do about a mark is the corpus's decision, so thresholds can be studied without a rescan. The definition
is in `contamination_policy.py`, its cost and recall in the module docstrings beside it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from datakit.canonical_text import CANONICAL_TEXT_VERSION
from datakit.contamination_canaries import run_canaries
from datakit.contamination_channels import ITEM_KEY, ItemIndex, channel_table, read_suite_items
from datakit.contamination_index import index_folder
from datakit.contamination_policy import STANDING_TIERS, TIERS, ContaminationConfig
from datakit.contamination_scan import scan
from datakit.documents import document_paths
from lineage.stage import Stage
from lineage.store import SCRATCH_FOLDER, Artifact, Writer

SLICE_BYTES = 4 << 20
"""Text of one shard; how the work is cut, which no output depends on."""
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
        ("start", pa.int64()),
        ("end", pa.int64()),
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
    "start": pl.Int64,
    "end": pl.Int64,
    "longest_run": pl.Int64,
}


def mark_contamination(
    out: Writer, config: ContaminationConfig, normalized: Artifact, suites: tuple[Artifact, ...], index: Artifact
) -> None:
    """Write `marks/`, `matches.parquet` and `items.parquet` (docs/design/contracts.md), and the canaries' recall.

    `extra["contamination"]` counts documents and items by tier and task; `extra["canaries"]` is what `run_canaries` reports.

    Raises: ValueError when the suites hold nothing to match, or the index is not of this policy and these suites;
    RuntimeError when planted canaries are not found.
    """
    items = read_suite_items(suites)
    channels = channel_table(items)
    folder = index_folder(index, config, suites)
    item_index = ItemIndex.load(folder)
    parts = document_paths(normalized)
    tasks = {
        f"{part.stem}-{number:05d}": (part, offset, length, folder, config)
        for part in parts
        for number, (offset, length) in enumerate(_slices(part))
    }
    out.map_shards(_match_slice, tasks)
    found = _read_found(out.folder, tasks)
    matches = _named(found, items, channels)
    marks = _write_marks(out.folder / "marks", parts, matches)
    _write(out.folder / "matches.parquet", matches, MATCH_SCHEMA)
    statuses = _item_statuses(items, channels, item_index, matches)
    _write(out.folder / "items.parquet", statuses, ITEM_STATUS_SCHEMA)
    clean_texts = _clean_texts(parts, marks, config.num_canaries)
    out.record(rows_in=len(marks), rows_out=len(marks), drops={})
    out.extra["contamination"] = _summary(config, marks, matches, statuses)
    out.extra["canaries"] = run_canaries(items, channels, clean_texts, item_index, config)


CONTAMINATION = Stage("datakit.contamination", "2", mark_contamination)


def _slices(part: Path) -> Iterator[tuple[int, int]]:
    """(offset, length) in rows, about SLICE_BYTES of text each."""
    metadata = pq.read_metadata(part)
    num_bytes = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    rows = max(1, int(metadata.num_rows * SLICE_BYTES / max(num_bytes, 1)))
    for offset in range(0, metadata.num_rows, rows):
        yield offset, min(rows, metadata.num_rows - offset)


def _match_slice(
    folder: Path, part: Path, offset: int, length: int, index_folder: Path, config: ContaminationConfig
) -> Mapping[str, object]:
    """One shard: the matches of some rows of a part, channels still as numbers."""
    documents = pl.scan_parquet(part).select("id", "text").slice(offset, length).collect()
    matches = scan(documents["text"].to_list(), ItemIndex.load(index_folder), config)
    ids = documents["id"]
    rows = [(ids[m.document], m.channel, m.tier, m.score, m.start, m.end, m.longest_run) for m in matches]
    path = _found_path(folder, f"{part.stem}-{offset:010d}")
    path.parent.mkdir(parents=True)
    pl.DataFrame(rows, schema=_FOUND_SCHEMA, orient="row").write_parquet(path)
    return {"documents": len(documents), "matches": len(rows)}


def _found_path(folder: Path, name: str) -> Path:
    return folder / SCRATCH_FOLDER / "found" / f"{name}.parquet"


def _read_found(folder: Path, tasks: Mapping[str, tuple]) -> pl.DataFrame:
    paths = [_found_path(folder, f"{part.stem}-{offset:010d}") for part, offset, *_ in tasks.values()]
    return pl.concat([pl.DataFrame(schema=_FOUND_SCHEMA), *(pl.read_parquet(path) for path in paths)])


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


def _item_statuses(items: pl.DataFrame, channels: pl.DataFrame, index: ItemIndex, matches: pl.DataFrame) -> pl.DataFrame:
    standing = matches.filter(pl.col("tier").is_in(STANDING_TIERS))
    counts = standing.group_by(ITEM_KEY).agg(num_documents=pl.col("id").n_unique().cast(pl.Int64))
    matchable = channels.filter(pl.Series(index.exact.is_matchable() | index.masked.is_matchable()))["item"].unique()
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


def _summary(
    config: ContaminationConfig, marks: pl.DataFrame, matches: pl.DataFrame, statuses: pl.DataFrame
) -> dict[str, object]:
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
