"""Preference pairs that hold benchmark items: part of an audit of runs that learned from pairs.

A pair is one document: its prompt, its chosen side and its rejected side, one after another (`datakit.readers.pairs`). A step
that reads a pair reads all three, so an item on a rejected side counts too. The span of a match gives its place.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from evals.audit.evidence import ITEM_KEY
from lineage.artifact.store import Artifact
from lineage.storage.digests import text_digest

PAIR_READS_FILE = "pair_exposures.parquet"
PREFERENCE_FIELD, PAIR_ID = "preference", "source_id"
"""Fields of a document's metadata: the messages of the pair, and the id that its source gives it."""
PROMPT, CHOSEN, REJECTED, UNKNOWN = "prompt", "chosen", "rejected", "unknown"
READS_SCHEMA = {
    **dict.fromkeys(ITEM_KEY, pl.String),
    "leg": pl.Int64,
    "step": pl.Int64,
    "component": pl.String,
    "pair": pl.String,
    "sides": pl.List(pl.String),
    "id": pl.String,
    "tier": pl.String,
}
"""A row for every step that read a pair with an item. `sides`: where the item is, among prompt, chosen and rejected, or
unknown if the text is not that of the pair's messages. `id` is the document, `pair` its name in the source."""
LISTED = 20
"""Rows that the report lists; the table has all."""


@dataclass(frozen=True)
class PairEvidence:
    """The table of an audit about pairs, and its summary."""

    reads: pl.DataFrame
    summary: dict[str, Any]

    def write(self, folder: Path) -> None:
        self.reads.write_parquet(folder / PAIR_READS_FILE, compression="zstd")


def pair_evidence(
    pairs: Collection[tuple[int, str]], matches: pl.DataFrame, exposed: pl.DataFrame, corpora: Sequence[Artifact]
) -> PairEvidence:
    """Join exposures of pairs with the pairs' names and sides.

    `pairs`: (leg, component) of every component whose documents are pairs. `matches` and `exposed` are tables of the audit.
    """
    of_pairs = pl.struct("leg", "component").is_in([{"leg": leg, "component": name} for leg, name in pairs])
    own = exposed.filter(of_pairs)
    document = ["leg", "component", "id"]
    where = matches.filter(of_pairs).join(own.select(document).unique(), on=document, how="semi")
    spans = where.select("corpus", "id", *ITEM_KEY, "start_byte", "end_byte").unique()
    rows = [row for corpus in corpora for row in _sides(corpus, spans.filter(pl.col("corpus") == corpus.name))]
    matched = pl.DataFrame(rows, schema=_SIDES_SCHEMA, orient="row")
    sides = matched.group_by("id", *ITEM_KEY).agg(pl.col("pair").first(), pl.col("sides").explode().unique().sort())
    reads = own.join(sides, on=["id", *ITEM_KEY]).select(READS_SCHEMA.keys()).unique()
    reads = reads.sort("leg", "step", "component", "pair", *ITEM_KEY)
    first = reads.unique([*ITEM_KEY, "component", "pair"], keep="first", maintain_order=True)
    counted = first.explode("sides")["sides"].value_counts().sort("sides")
    summary = {
        "components": sorted({name for _, name in pairs}),
        "pairs_read": reads.select("component", "pair").unique().height,
        "by_side": dict(counted.iter_rows()),
        "reads": first.head(LISTED).to_dicts(),
    }
    return PairEvidence(reads, summary)


_SIDES_SCHEMA = {"id": pl.String, **dict.fromkeys(ITEM_KEY, pl.String), "pair": pl.String, "sides": pl.List(pl.String)}


def _sides(corpus: Artifact, spans: pl.DataFrame) -> Iterator[tuple]:
    """Yield (document, item, pair, sides) of every span. Raises: ValueError for a document that is no pair."""
    wanted = spans["id"].unique().to_list()
    for path in corpus.input("normalized").files(".parquet", under="documents/"):
        table = pl.scan_parquet(path).filter(pl.col("id").is_in(wanted)).select("id", "text", "metadata").collect()
        for name, text, metadata in table.iter_rows():
            facts = json.loads(metadata)
            if PREFERENCE_FIELD not in facts:
                raise ValueError(f"document {name} of {corpus.name} is read as a pair, and its metadata holds no pair")
            for row in spans.filter(pl.col("id") == name).iter_rows(named=True):
                sides = sides_of(text, facts[PREFERENCE_FIELD], row["start_byte"], row["end_byte"])
                is_whole = text_digest(text) == name
                yield name, *(row[key] for key in ITEM_KEY), facts[PAIR_ID], sides if is_whole else [UNKNOWN]


def sides_of(text: str, pair: str, start: int, end: int) -> list[str]:
    """Return which parts of a pair's text the bytes [start, end) touch; unknown if the text does not hold the messages.

    >>> pair = '{"chosen": {"role": "you", "content": "4"}, "rejected": {"role": "you", "content": "5"}, "prompt": []}'
    >>> sides_of("user: 2+2?\\n\\nyou: 4\\n\\nyou: 5", pair, 6, 17)
    ['prompt', 'chosen']
    """
    messages = json.loads(pair)
    whole = text.encode()
    begins = [f"\n\n{messages[side]['role']}: {messages[side]['content']}".encode() for side in (CHOSEN, REJECTED)]
    rejected = whole.rfind(begins[1])
    chosen = whole.rfind(begins[0], 0, max(rejected, 0))
    if chosen < 0:  # the text's long runs of whitespace were cut, those of the messages were not
        return [UNKNOWN]
    parts = ((PROMPT, 0, chosen), (CHOSEN, chosen, rejected), (REJECTED, rejected, len(whole)))
    return [side for side, first, last in parts if start < last and end > first]
