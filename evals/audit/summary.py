"""The result of an audit: the verdict, counts by task and source, the strongest matches, and the quality of the scan."""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

import polars as pl

from evals.audit.evidence import ITEM_KEY
from evals.items.item import ITEMS_FILE
from lineage.artifact.store import Artifact
from lineage.match_tiers import TIERS, UNKNOWN, WHOLE_ONLY, verdict
from lineage.storage.digests import text_digest

EXCERPT_CHARS = 240
LISTED_STEPS = 10


def audit_summary(table: pl.DataFrame, matches: pl.DataFrame, exposed: pl.DataFrame, num_legs: int) -> dict[str, Any]:
    """Summarize. `verdict` covers all that the mixture holds, `verdict_at_step` what the steps up to the checkpoint's
    have read.
    """
    of_last_leg = matches.filter(pl.col("leg") == num_legs - 1)  # Every leg lists the same corpora.
    documents = of_last_leg.unique(["component", "id", "fate"]).group_by("fate").len().sort("fate")
    by_task = {
        str(task): {
            **_counts(rows),
            **{f"before_{tier}": rows.filter(pl.col("tier_before") == tier).height for tier in TIERS},
            **{f"after_{tier}": rows.filter(pl.col("tier_after") == tier).height for tier in TIERS},
        }
        for (task,), rows in sorted(table.group_by("task"), key=lambda pair: str(pair[0]))
    }
    return {
        "verdict": verdict(matches.filter(pl.col("trained"))["tier"]),
        "verdict_at_step": verdict(exposed["tier"]),
        "counts": _counts(table),
        "by_task": by_task,
        "documents_by_fate": dict(documents.iter_rows()),
        "documents_seen": exposed.select("component", "id").n_unique() if exposed.height else 0,
        "granularity": "documents: a step that read any token of a matching document is an exposure",
    }


def _counts(table: pl.DataFrame) -> dict[str, int]:
    return {
        "items": table.height,
        "matched_before": table.filter(pl.col("num_documents_before") > 0).height,
        "matched_after": table.filter(pl.col("num_documents_after") > 0).height,
        "matched_heldout": table.filter(pl.col("num_documents_heldout") > 0).height,
        **{status: table.filter(pl.col("status") == status).height for status in (UNKNOWN, WHOLE_ONLY)},
        "seen_in_training": table.filter(pl.col("num_exposures") > 0).height,
    }


def by_source(matches: pl.DataFrame) -> list[dict[str, Any]]:
    """Return what became of each source's matching documents: `matching`, then a count for each fate (train, heldout,
    drop reasons).

    `items_before` and `items_after` count the benchmark items that they hold, in the source and in the training data.
    """
    entries = []
    for (corpus,), rows in sorted(matches.group_by("corpus"), key=lambda pair: str(pair[0])):
        fates = rows.unique("id").group_by("fate").len().sort("fate")
        entries.append(
            {
                "corpus": str(corpus),
                "matching": rows["id"].n_unique(),
                "fates": dict(fates.iter_rows()),
                "items_before": rows.select(ITEM_KEY).n_unique(),
                "items_after": rows.filter(pl.col("trained")).select(ITEM_KEY).n_unique(),
            }
        )
    return entries


def scan_quality(contamination: Sequence[Artifact]) -> dict[str, Any]:
    """Return recall of planted items by form, and false positives, over the canaries of every scan
    (`datakit.contamination.planted_items`).

    `planted` counts items; each scan plants its own into its source's own documents, so shares are weighted by their
    number.
    """
    proofs = [marks.manifest.extra["canaries"] for marks in contamination]
    planted = sum(proof["items"] for proof in proofs)
    if not planted:
        return {"planted": 0, "recall": {}, "false_positives": {}}

    def pooled(field: str) -> dict[str, float]:
        names = list(proofs[0][field])
        return {name: round(sum(p["items"] * p[field][name] for p in proofs) / planted, 4) for name in names}

    return {
        "planted": planted,
        "policies": sorted({marks.manifest.extra["contamination"]["policy"] for marks in contamination}),
        "recall": pooled("recall"),
        "false_positives": pooled("false_positives"),
    }


def worst_matches(
    after: pl.DataFrame, exposed: pl.DataFrame, corpora: Sequence[Artifact], suites: Sequence[Artifact], count: int
) -> list[dict[str, Any]]:
    """Return the strongest, then longest remaining matches: both texts, the document, and the first steps that read it."""
    chosen = after.head(count)
    texts = _texts(corpora, chosen["id"].unique())
    items = _item_texts(suites, chosen)
    entries = []
    for row in chosen.iter_rows(named=True):
        item = items[tuple(row[name] for name in ITEM_KEY)]
        piece = matched_text(texts[row["id"]], row, item)
        of_document = [pl.col(name) == row[name] for name in ("leg", "component", "id")]
        steps = exposed.filter(*of_document)["step"].unique().sort()
        entries.append(
            {
                **{name: row[name] for name in (*ITEM_KEY, "channel", "tier", "leg", "component", "id", "longest_run")},
                "score": round(row["score"], 4),
                "text": piece[:EXCERPT_CHARS],
                "item_text": excerpt_near(item, piece),
                "steps": steps.head(LISTED_STEPS).to_list(),
                "num_steps": steps.len(),
            }
        )
    return entries


def matched_text(text: str, match: Mapping[str, Any], item: str) -> str:
    """What a document holds of an item: the match's span, which counts bytes of the text as it was normalized.

    Paragraphs may have been cut out of it since (its id is that of the whole text): then what is left that is most like it.
    """
    if text_digest(text) != match["id"]:
        return excerpt_near(text, item)
    return text.encode()[match["start_byte"] : match["end_byte"]].decode()


def excerpt_near(text: str, piece: str) -> str:
    """Return the part of a text that is most like a piece of another, about EXCERPT_CHARS long."""
    same = SequenceMatcher(None, text.casefold(), piece.casefold(), autojunk=False)
    entries = same.find_longest_match(0, len(text), 0, min(len(piece), EXCERPT_CHARS))
    start = max(0, min(entries.a - EXCERPT_CHARS // 4, len(text) - EXCERPT_CHARS))
    end = start + EXCERPT_CHARS
    return ("..." if start else "") + text[start:end] + ("..." if end < len(text) else "")


def _texts(corpora: Sequence[Artifact], ids: pl.Series) -> dict[str, str]:
    paths = [path for corpus in corpora for path in corpus.files(".parquet", under="train/")]
    wanted = pl.scan_parquet(paths).filter(pl.col("id").is_in(ids.implode())).select("id", "text").collect()
    return dict(wanted.iter_rows())


def _item_texts(suites: Sequence[Artifact], chosen: pl.DataFrame) -> dict[tuple[str, ...], str]:
    """Return passage, question and answer of each chosen item, as the suite has them."""
    wanted = chosen.select(ITEM_KEY).unique()
    items = pl.concat(
        [pl.read_parquet(s.files(ITEMS_FILE)[0], columns=[*ITEM_KEY, "passage", "question", "answer"]) for s in suites]
    )
    rows = items.join(wanted, on=ITEM_KEY, how="semi").iter_rows()
    return {tuple(key): f"{passage} {question} Answer: {answer}".strip() for *key, passage, question, answer in rows}
