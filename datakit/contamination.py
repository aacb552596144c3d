"""The stage `datakit.contamination`: mark the documents of a source that hold benchmark items.

It only marks. What to do about a mark is the corpus's decision, so thresholds can be studied without a rescan. The definition
is in `contamination_policy.py`, its cost and recall in the module docstrings beside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from datakit.canonical_text import CANONICAL_TEXT_VERSION
from datakit.contamination_canaries import FORMS, Plants, canary_report, items_found, num_clean_texts, plants
from datakit.contamination_channels import ITEM_KEY, ItemIndex, read_suite_items
from datakit.contamination_index import index_folder
from datakit.contamination_judgement import MATCHED_SCHEMA, judged_again, judging_index, write_for_judging
from datakit.contamination_methods import (
    Policy,
    PolicyIndex,
    Scanner,
    counts_documents,
    document_counts,
    finder,
    load_index,
    policy_channels,
    scanner,
    text_batches,
    too_common,
)
from datakit.contamination_named_scan import NO_GRAMS
from datakit.contamination_policy import ContaminationConfig
from datakit.contamination_scan import ChannelMatch, GramCounts, scan_counting
from datakit.contamination_tables import (
    Counts,
    Found,
    Piece,
    clean_texts,
    count,
    join_pieces,
    named,
    summed,
    write_piece,
    write_statuses,
)
from datakit.contamination_templates import count_table
from datakit.documents import document_paths
from datakit.ngram_index import UInt64s
from lineage.stage import Stage
from lineage.store import Artifact
from lineage.working_folder import SCRATCH_FOLDER
from lineage.writer import Writer

SLICE_BYTES = 16 << 20
"""Text of one shard, whole row groups; how the work is cut, which no output depends on."""


def mark_contamination(
    out: Writer, config: Policy, normalized: Artifact, suites: tuple[Artifact, ...], index: Artifact
) -> None:
    """Write `marks/`, `matches.parquet`, `item_documents.parquet` and `items.parquet` (docs/design/contracts.md).

    `extra["contamination"]` counts documents and items by tier and task; `extra["canaries"]` is what `canary_report` says.

    Raises: ValueError when the suites hold nothing to match, or the index is not of this policy and these suites;
    RuntimeError when planted canaries are not found.
    """
    folder = index_folder(index, config, suites)
    parts = document_paths(normalized)
    pieces = [
        Piece(normalized.spec.partition or normalized.name, part, low, high) for part in parts for low, high in _slices(part)
    ]
    out.warm(len(pieces), load_index, folder, config)
    items = read_suite_items(suites)
    channels = policy_channels(items, config)
    scratch = out.folder / SCRATCH_FOLDER
    ignored = _common_grams(out, pieces, folder, config)
    names = _write_names(scratch / "names.parquet", items, channels)
    scanned = out.map_shards(_match_piece, {piece.name: (piece, folder, config, ignored, names) for piece in pieces})
    tallies, templates = {piece: scanned[piece.name] for piece in pieces}, None
    if isinstance(config, ContaminationConfig):
        tallies, templates = judged_again(out, tallies, folder, config, names)
    item_index = judging_index(folder, config, templates)
    canaries = plants(items, channels, clean_texts(scratch, list(tallies), num_clean_texts(config)), item_index, config)
    trials = [(form, canaries, channels["item"], folder, config, ignored, templates) for form in FORMS]
    with out.calling(_items_in_plants, trials) as found:
        join_pieces(out.folder, scratch, list(tallies))
        counts = count(scratch, tallies)
        matchable = channels.filter(pl.Series(item_index.is_matchable()))["item"]
        statuses = write_statuses(out.folder / "items.parquet", items, matchable, counts)
        out.record(rows_in=counts.documents, rows_out=counts.documents, drops={})
        out.extra["contamination"] = _summary(config, counts, statuses)
        by_form = dict(zip(FORMS, found(), strict=True))
    out.extra["canaries"] = canary_report(canaries, by_form, items["question"], config)


CONTAMINATION = Stage("datakit.contamination", "8", mark_contamination)
"""8: canaries are edited with several words. 7: items that a template cleared are listed. 6: phrases that many documents
share flag nothing. 5: `item_documents.parquet`. 4: spans count bytes of UTF-8. 3: named policies; canaries are planted as
rendered records, and false positives counted on scrambled text too."""


def _slices(part: Path) -> Iterator[tuple[int, int]]:
    """(first row group, the one after the last) of about SLICE_BYTES of text each."""
    metadata = pq.read_metadata(part)
    low, size = 0, 0
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).total_byte_size
        if size >= SLICE_BYTES:
            yield low, group + 1
            low, size = group + 1, 0
    if low < metadata.num_row_groups or not metadata.num_row_groups:
        yield low, metadata.num_row_groups


def _write_names(path: Path, items: pl.DataFrame, channels: pl.DataFrame) -> Path:
    """The item key and the name of every channel, in the order of the index."""
    names = items.select(ITEM_KEY)[channels["item"]].with_columns(channels["channel"])
    path.parent.mkdir(parents=True, exist_ok=True)
    names.write_parquet(path)
    return path


def _match_piece(
    folder: Path, piece: Piece, index_folder: Path, config: Policy, ignored: Path | None, names: Path
) -> Mapping[str, object]:
    """One shard: the matches of some row groups of a part, and the marks of their documents."""
    scan, counts = _counting(load_index(index_folder, config), config, _read_ignored(ignored))
    found: list[Found] = []
    seen = [pl.Series("id", [], dtype=pl.String)]
    matched = [pl.DataFrame(schema=MATCHED_SCHEMA)]
    for documents in piece.documents():
        ids = documents["id"]
        for first, texts in text_batches(documents["text"].to_list()):
            of_batch = [(first + match.document, match) for match in scan(texts)]
            found += [(ids[row], match) for row, match in of_batch]
            if isinstance(config, ContaminationConfig):  # whose matches are judged again
                matched.append(documents[sorted({row for row, _ in of_batch})])
        seen.append(ids)
    ids = pl.concat(seen)
    scratch = folder / SCRATCH_FOLDER
    tally = write_piece(scratch, piece, ids, named(found, pl.read_parquet(names)))
    if isinstance(config, ContaminationConfig):
        write_for_judging(scratch, piece, count_table(counts), pl.concat(matched))
    return {"matches": len(found), **tally}


def _items_in_plants(
    form: str,
    canaries: Plants,
    item_of_channel: pl.Series,
    index_folder: Path,
    config: Policy,
    ignored: Path | None,
    templates: Path | None,
) -> list[set[int]]:
    """What this very scan marks each planted document of a form for."""
    find = finder(judging_index(index_folder, config, templates), config, _read_ignored(ignored))
    return items_found(canaries.documents(form), find, item_of_channel.to_list())


def _counting(index: PolicyIndex, config: Policy, ignored: UInt64s) -> tuple[Scanner, list[GramCounts]]:
    """The policy's scan, and what fills with each call: in how many documents the items' grams are."""
    counts: list[GramCounts] = []
    if not isinstance(config, ContaminationConfig):
        return scanner(index, config, ignored), counts
    assert isinstance(index, ItemIndex)

    def scan(texts: Sequence[str]) -> list[ChannelMatch]:
        found, counted = scan_counting(texts, index, config)
        counts.append(counted)
        return found

    return scan, counts


def _common_grams(out: Writer, pieces: Sequence[Piece], index_folder: Path, config: Policy) -> Path | None:
    """File of the grams that the policy ignores because too many documents hold them; None where it counts none."""
    if not counts_documents(config):
        return None
    out.map_shards(_count_piece, {f"count-{piece.name}": (piece, index_folder, config) for piece in pieces})
    counts = summed([_counts_file(out.folder, piece.name) for piece in pieces], ["gram"])
    path = _counts_file(out.folder, "common")
    grams = too_common(counts["gram"].to_numpy(), counts["documents"].to_numpy(), config)
    pl.DataFrame({"gram": grams}, schema={"gram": pl.UInt64}).write_parquet(path)
    return path


def _count_piece(folder: Path, piece: Piece, index_folder: Path, config: Policy) -> Mapping[str, object]:
    """One shard: in how many documents of some row groups each gram of the items is."""
    index = load_index(index_folder, config)
    counted = [pl.DataFrame(schema={"gram": pl.UInt64, "documents": pl.Int64})]
    for documents in piece.documents():
        for _, texts in text_batches(documents["text"].to_list()):
            grams, counts = document_counts(texts, index, config)
            counted.append(pl.DataFrame({"gram": grams, "documents": counts.astype(np.int64)}))
    path = _counts_file(folder, piece.name)
    path.parent.mkdir(parents=True)
    pl.concat(counted).group_by("gram").sum().sort("gram").write_parquet(path)
    return {"grams": len(counted)}


def _counts_file(folder: Path, name: str) -> Path:
    return folder / SCRATCH_FOLDER / "counts" / f"{name}.parquet"


def _read_ignored(path: Path | None) -> UInt64s:
    return NO_GRAMS if path is None else pl.read_parquet(path)["gram"].to_numpy()


def _summary(config: Policy, counts: Counts, statuses: pl.DataFrame) -> dict[str, object]:
    tasks: dict[str, dict[str, int]] = {}
    for task, status, number in statuses.group_by("task", "status").len().sort("task", "status").iter_rows():
        tasks.setdefault(task, {"clean": 0, "matched": 0, "unknown": 0})[status] = number
    return {
        "policy": config.policy,
        "canonical_text": CANONICAL_TEXT_VERSION,
        "documents": counts.documents,
        "contaminated": counts.contaminated,
        "documents_by_tier": dict(counts.by_tier),
        "items_by_task": tasks,
    }
