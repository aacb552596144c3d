"""The stage `datakit.contamination`: mark the documents of a source that hold benchmark items.

The stage only marks documents. The corpus decides what to do about a mark, so thresholds can be studied without another scan.
Any `Policy` (`protocol.py`) can mark; the recommended one is defined in `policy.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from datakit.contamination.channels import ITEM_KEY, read_suite_items
from datakit.contamination.index import index_folder
from datakit.contamination.planted_items import FORMS, Plants, canary_report, items_found, num_clean_texts, plants
from datakit.contamination.protocol import GramCounts, Policy, count_table, index_without, load_index, text_batches
from datakit.contamination.tables import (
    HELD,
    HOLDERS,
    MARKS,
    MATCHES,
    Counts,
    FoundMatch,
    Piece,
    clean_texts,
    count,
    join_marks,
    join_matches,
    named,
    summed,
    tables_of,
    write_piece,
    write_statuses,
)
from datakit.contamination.template_rescan import CLEARED_FILE, CLEARED_SCHEMA, MATCHED_SCHEMA, rescan, write_for_judging
from datakit.documents.parts_of_tasks import footer, parts_of_split, parts_of_tasks
from datakit.text.canonical_text import CANONICAL_TEXT_VERSION
from lineage.artifact.store import Artifact
from lineage.match_tiers import ITEM_STATUSES
from lineage.shards.run import SCRATCH_FOLDER
from lineage.stage import Stage
from lineage.writing.writer import Writer

SLICE_BYTES = 16 << 20
"""Text of one shard, in whole row groups. It only divides the work; no output depends on it."""


def mark_contamination(
    out: Writer, config: Policy, normalized: Artifact, suites: tuple[Artifact, ...], index: Artifact
) -> None:
    """Write `marks/` and the tables `matches`, `item_documents`, `items` and `cleared` (docs/design/contracts.md).

    `extra["contamination"]` counts documents and items by tier and task; `extra["canaries"]` is the result of
    `canary_report`.

    Raises: ValueError if the suites hold nothing to match, or the index is not of this policy and these suites;
    RuntimeError if planted canaries are not found.
    """
    folder = index_folder(index, config, suites)
    parts = parts_of_tasks(out, normalized)
    pieces = [
        Piece(normalized.spec.partition or normalized.name, part, low, high)
        for part, entry in zip(parts, parts_of_split(normalized), strict=True)
        for low, high in _slices(footer(normalized, entry))
    ]
    out.warm(len(pieces), load_index, folder, config)
    items = read_suite_items(suites)
    channels = config.channels(items)
    scratch = out.folder / SCRATCH_FOLDER
    common = _common_grams(out, pieces, folder, config) if config.common_grams == "ignored_before_scan" else None
    names = _write_names(scratch / "names.parquet", items, channels)
    scans = {piece.name: (piece, folder, config, common, names) for piece in pieces}
    scanned = out.map_shards(_match_piece, scans, lazy=True)
    tallies = {piece: scanned[piece.name] for piece in pieces}
    cleared = pl.DataFrame(schema=CLEARED_SCHEMA)
    if config.common_grams == "ignored_after_scan":
        judged = rescan(out, tallies, folder, config, names)
        tallies, common, cleared = judged.tallies, judged.templates, judged.cleared
    marks = {part: [piece.table(scratch, MARKS) for piece in tallies if piece.part == part] for part in parts}
    out.map_shards(join_marks, {f"marks-{part.stem}": (part.name, tables) for part, tables in marks.items()}, lazy=True)
    cleared.write_parquet(out.folder / CLEARED_FILE)
    index_of_source = index_without(folder, config, common)
    clean = clean_texts(scratch, list(tallies), num_clean_texts(config), out.bring)
    canaries = plants(items, channels, clean, index_of_source, config)
    trials = [(form, canaries, channels["item"], folder, config, common) for form in FORMS]
    with out.calling(_items_in_plants, trials) as items_in_plants:
        out.bring(*(table for kind in (MATCHES, HOLDERS, HELD) for table in tables_of(scratch, kind, list(tallies))))
        join_matches(out.folder, scratch, list(tallies))
        counts = count(scratch, tallies)
        matchable = channels.filter(pl.Series(index_of_source.is_matchable()))["item"]
        is_known = pl.Series(index_of_source.finds_parts()) & (channels["channel"] == "question")
        known = channels.filter(is_known)["item"]
        statuses = write_statuses(out.folder / "items.parquet", items, matchable, known, cleared, counts)
        out.record(rows_in=counts.documents, rows_out=counts.documents, drops={})
        out.extra["contamination"] = _summary(config, counts, statuses)
        by_form = dict(zip(FORMS, items_in_plants(), strict=True))
    out.extra["canaries"] = canary_report(canaries, by_form, items["question"], config)


CONTAMINATION = Stage(
    "datakit.contamination",
    "14",
    mark_contamination,
    description="Marks against the benchmark items of the policy, with matched spans and the recall of planted items.",
    checks=("file_set", "attributes_aligned", "cleared_items_read"),
)
"""14: matches of symbols are partial, a short question is found with its answer. 13: a question that its answer follows
needs fewer of its words. 12: status `whole_only` of items whose half could not be found. 11: HTML entities are their
characters. 10: tier `partial` and its count by item. 9: a whole item that many documents hold is a leak, an item with a
cleared match is unknown (`cleared.parquet`), invisible characters are absent. 8: canaries are edited with several words. 7:
items that a template cleared are listed. 6: phrases that many documents share flag nothing. 5: `item_documents.parquet`. 4:
spans count bytes of UTF-8. 3: named policies; canaries are planted as rendered records, and false positives are counted on
scrambled text too.
"""


def _slices(metadata: pq.FileMetaData) -> Iterator[tuple[int, int]]:
    """Return (first row group, the one after the last) of about SLICE_BYTES of text each."""
    low, size = 0, 0
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).total_byte_size
        if size >= SLICE_BYTES:
            yield low, group + 1
            low, size = group + 1, 0
    if low < metadata.num_row_groups or not metadata.num_row_groups:
        yield low, metadata.num_row_groups


def _write_names(path: Path, items: pl.DataFrame, channels: pl.DataFrame) -> Path:
    """Return the item key and the name of every channel, in the order of the index."""
    names = items.select(ITEM_KEY)[channels["item"]].with_columns(channels["channel"])
    path.parent.mkdir(parents=True, exist_ok=True)
    names.write_parquet(path)
    return path


def _match_piece(
    folder: Path, piece: Piece, index_folder: Path, config: Policy, common: Path | None, names: Path
) -> Mapping[str, object]:
    """One shard: find the matches of some row groups of a part, and the marks of their documents."""
    index, rescan = index_without(index_folder, config, common), config.common_grams == "ignored_after_scan"
    counts: list[GramCounts] = []
    found_matches: list[FoundMatch] = []
    read = [pl.Series("id", [], dtype=pl.String)]
    matched = [pl.DataFrame(schema=MATCHED_SCHEMA)]
    for documents in piece.documents():
        ids = documents["id"]
        for first, texts in text_batches(documents["text"].to_list()):
            matches, counted = index.scan_counting(texts)
            counts.append(counted)
            of_batch = [(first + match.document, match) for match in matches]
            found_matches += [(ids[row], match) for row, match in of_batch]
            if rescan:
                matched.append(documents[sorted({row for row, _ in of_batch})])
        read.append(ids)
    ids = pl.concat(read)
    scratch = folder / SCRATCH_FOLDER
    tally = write_piece(scratch, piece, ids, named(found_matches, pl.read_parquet(names)))
    if rescan:
        write_for_judging(scratch, piece, count_table(counts), pl.concat(matched))
    return {"matches": len(found_matches), **tally}


def _items_in_plants(
    form: str,
    canaries: Plants,
    item_of_channel: pl.Series,
    index_folder: Path,
    config: Policy,
    common: Path | None,
) -> list[set[int]]:
    """Return the items that this scan marks for each planted document of a form."""
    index = index_without(index_folder, config, common)
    return items_found(canaries.documents(form), index.marked_pairs, item_of_channel.to_list())


def _common_grams(out: Writer, pieces: Sequence[Piece], index_folder: Path, config: Policy) -> Path:
    """Write a COUNT_SCHEMA file of the grams that more documents hold than the policy allows, counted in a pass of its
    own.
    """
    tasks = {f"count-{piece.name}": (piece, index_folder, config) for piece in pieces}
    counted, files = out.map_shards(_count_piece, tasks, lazy=True), [_counts_file(out.folder, piece.name) for piece in pieces]
    out.bring(*files)
    counts = summed(files, ["is_masked", "gram"])
    limit = config.document_limit(sum(int(each["documents"]) for each in counted.values()))
    path = _counts_file(out.folder, "common")
    counts.filter(pl.col("documents") > limit).sort("is_masked", "gram").write_parquet(path)
    return path


def _count_piece(folder: Path, piece: Piece, index_folder: Path, config: Policy) -> Mapping[str, object]:
    """One shard: count in how many documents of some row groups each gram of the items occurs."""
    index, num_documents, counts = load_index(index_folder, config), 0, list[GramCounts]()
    for documents in piece.documents():
        num_documents += len(documents)
        counts += [index.count_grams(texts) for _, texts in text_batches(documents["text"].to_list())]
    path = _counts_file(folder, piece.name)
    path.parent.mkdir(parents=True)
    count_table(counts).write_parquet(path)
    return {"documents": num_documents}


def _counts_file(folder: Path, name: str) -> Path:
    return folder / SCRATCH_FOLDER / "counts" / f"{name}.parquet"


def _summary(config: Policy, counts: Counts, statuses: pl.DataFrame) -> dict[str, object]:
    tasks: dict[str, dict[str, int]] = {}
    for task, status, number in statuses.group_by("task", "status").len().sort("task", "status").iter_rows():
        tasks.setdefault(task, dict.fromkeys(ITEM_STATUSES, 0))[status] = number
    return {
        "policy": config.policy,
        "canonical_text": CANONICAL_TEXT_VERSION,
        "documents": counts.documents,
        "contaminated": counts.contaminated,
        "documents_by_tier": dict(counts.by_tier),
        "items_by_task": tasks,
    }
