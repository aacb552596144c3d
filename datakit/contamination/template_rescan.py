"""Judge matches again without the source's templates (`templates.py`), if it has any.

A template is a part of an item, such as an instruction in front of many questions. A document that holds a whole
channel word for word keeps its match, however many documents hold it: a question that was copied 150 times is a leak.
Other matches on a template's words are cleared. An item with a cleared match and no other is `unknown`, never `clean`,
and a check fails until somebody has read the list.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from datakit.contamination.channels import ITEM_KEY
from datakit.contamination.protocol import Policy, index_without, load_index, text_batches
from datakit.contamination.tables import MARKS, MATCHES, FoundMatch, Piece, named, pieces_with, summed, tables_of, write_piece
from lineage.match_tiers import DOUBTED_TIERS
from lineage.shards.reads import FilesOf, named_below
from lineage.shards.run import SCRATCH_FOLDER
from lineage.writing.writer import Writer

log = logging.getLogger(__name__)

type Tally = Mapping[str, Any]
SHOWN_ITEMS = 20
MATCHED_SCHEMA = {"id": pl.String, "text": pl.String}
CLEARED_FILE = "cleared.parquet"
TEMPLATES_FILE = "templates.parquet"
CLEARED_SCHEMA = {**dict.fromkeys(ITEM_KEY, pl.String), "documents": pl.UInt32}


def write_for_judging(scratch: Path, piece: Piece, counts: pl.DataFrame, matched: pl.DataFrame) -> None:
    """Write what `rescan` needs: in how many documents of the piece the items' grams occur (`count_table`), and the few
    documents with a match (MATCHED_SCHEMA), so that nobody has to read all documents again.
    """
    for kind, table in (("counts", counts), ("matched", matched)):
        path = piece.table(scratch, kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        table.write_parquet(path, compression="lz4")  # scratch, read once


@dataclass(frozen=True)
class Judged:
    """Which matches remain when the templates of a source are known.

    `tallies`: every piece, with those judged again that matched a channel with a template, and what `write_piece`
    reported of it. `templates`: the file of their grams, None without any. `cleared` (CLEARED_SCHEMA): items that
    documents no longer count for, and how many documents.
    """

    tallies: Mapping[Piece, Tally]
    templates: Path | None
    cleared: pl.DataFrame


def rescan(out: Writer, tallies: Mapping[Piece, Tally], index_folder: Path, config: Policy, names: Path) -> Judged:
    """Find the templates of a source, and judge each match that uses their words again without these words."""
    scratch = out.folder / SCRATCH_FOLDER
    limit = config.document_limit(sum(int(tally["documents"]) for tally in tallies.values()))
    read = named_below(scratch, [table for kind in ("counts", MATCHES) for table in tables_of(scratch, kind, list(tallies))])
    arguments = [piece.without_documents() for piece in tallies], read, limit, index_folder, config, names
    found = out.map_shards(_find_templates, {"templates": arguments}, 1, lazy=True)["templates"]
    facts = {"limit": limit, "grams": found["grams"], "channels": found["channels"]}
    out.extra["templates"] = {**facts, "items": 0, "documents": 0, "most": []}
    if not found["channels"]:
        return Judged(tallies, None, pl.DataFrame(schema=CLEARED_SCHEMA))
    templates = scratch / TEMPLATES_FILE
    again = {piece.name: replace(piece, judged=True) for piece in tallies if piece.name in set(found["doubted"])}
    tasks = {
        f"judge-{name}": (piece.without_documents(), _scanned(scratch, piece), index_folder, config, names, templates)
        for name, piece in again.items()
    }
    judged = out.map_shards(_judge_piece, tasks, lazy=True)
    new = {name: (piece, judged[f"judge-{name}"]) for name, piece in again.items()}
    compared = [replace(piece, judged=is_judged) for piece in again.values() for is_judged in (False, True)]
    out.bring(templates, *tables_of(scratch, MATCHES, compared))
    cleared = _cleared(scratch, list(again.values()))
    most = cleared.head(SHOWN_ITEMS).rows(named=True)
    out.extra["templates"] |= {"items": len(cleared), "documents": int(cleared["documents"].sum()), "most": most}
    if most:
        first = ", ".join(f"{row['task']}/{row['item_id']} in {row['documents']}" for row in most[:3])
        message = "%s: %d items count for nothing in documents that share a template with them: %s"
        log.warning(message, out.spec.name, len(cleared), first)
    return Judged(dict(new.get(piece.name, (piece, tally)) for piece, tally in tallies.items()), templates, cleared)


def _cleared(scratch: Path, judged: Sequence[Piece]) -> pl.DataFrame:
    """Return CLEARED_SCHEMA, most documents first."""
    pair, counts = ["id", *ITEM_KEY], [pl.DataFrame(schema=CLEARED_SCHEMA)]
    for piece in judged:
        before, after = (_standing(replace(piece, judged=again).table(scratch, MATCHES)) for again in (False, True))
        counts.append(before.join(after, on=pair, how="anti").group_by(ITEM_KEY).len("documents"))
    descending = [True, *(False for _ in ITEM_KEY)]
    return pl.concat(counts).group_by(ITEM_KEY).sum().sort("documents", *ITEM_KEY, descending=descending)


def _standing(matches: Path) -> pl.DataFrame:
    standing = pl.read_parquet(matches, columns=["id", *ITEM_KEY, "tier"])
    return standing.filter(pl.col("tier").is_in(DOUBTED_TIERS)).drop("tier").unique()


def _find_templates(
    folder: Path, pieces: Sequence[Piece], read: FilesOf, limit: int, index_folder: Path, config: Policy, names: Path
) -> Mapping[str, object]:
    """One shard: write the grams of more than `limit` documents, if they are in an item; return the pieces to judge again.

    `read`: the counts and matches of all pieces. Runners that judge need no more than what this shard writes.
    """
    counts = summed(tables_of(read, "counts", pieces), ["is_masked", "gram"]).sort("is_masked", "gram")
    common = counts.filter(pl.col("documents") > limit)
    affected = pl.read_parquet(names)[load_index(index_folder, config).affected_channels(common)]
    if affected.is_empty():
        return {"grams": len(common), "channels": 0, "doubted": []}
    (folder / SCRATCH_FOLDER).mkdir()
    common.write_parquet(folder / SCRATCH_FOLDER / TEMPLATES_FILE)
    doubted = [piece.name for piece in pieces_with(read, pieces, affected)]
    return {"grams": len(common), "channels": len(affected), "doubted": doubted}


def _scanned(scratch: Path, piece: Piece) -> FilesOf:
    """Return what a piece is judged by."""
    first = replace(piece, judged=False)
    return named_below(scratch, [first.table(scratch, kind) for kind in (MATCHES, MARKS, "matched")])


def _judge_piece(
    folder: Path, piece: Piece, scanned: FilesOf, index_folder: Path, config: Policy, names: Path, templates: Path
) -> Mapping[str, object]:
    """One shard: matches of channels with templates remain if the document holds the whole channel word for word, or
    matches without the templates. Matches of other channels remain.
    """
    on = [*ITEM_KEY, "channel"]
    index, of_channel = load_index(index_folder, config), pl.read_parquet(names)
    affected = of_channel[index.affected_channels(pl.read_parquet(templates))]
    rescan = index_without(index_folder, config, templates).scan
    first = replace(piece, judged=False)
    matches, marks = (pl.read_parquet(first.table(scanned, kind)) for kind in (MATCHES, MARKS))
    is_whole = (pl.col("tier") == "verbatim") & (pl.col("score") == 1.0)
    touched = matches.join(affected, on=on, how="semi")
    whole, doubted = touched.filter(is_whole), touched.filter(~is_whole)
    rescanned: list[FoundMatch] = []
    chosen = pl.read_parquet(first.table(scanned, "matched")).filter(pl.col("id").is_in(doubted["id"].unique().implode()))
    for low, texts in text_batches(chosen["text"].to_list()):
        rescanned += [(chosen["id"][low + match.document], match) for match in rescan(texts)]
    standing = named(rescanned, of_channel).join(doubted, on=["id", *on], how="semi")
    judged = pl.concat([matches.join(affected, on=on, how="anti"), whole, standing.select(matches.columns)])
    tally = write_piece(folder / SCRATCH_FOLDER, piece, marks["id"], judged)
    return {"doubted": len(doubted), "standing": len(standing), **tally}
