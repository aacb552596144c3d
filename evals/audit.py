"""The stage `evals.audit`: which benchmark items the corpus held, before and after decontamination, and which steps saw them.

Before: every match on the normalized documents. After: the matches whose document is in a token cache that the checkpoint's
mixture binds. The steps come from inverting the data order (`lineage.exposure`), document by document; a step that read any
token of a matching document counts, because a match is a span of text and tokens do not keep its borders. As a second witness
a sample of the reported exposures is read forward: the batch of that step must hold the document's tokens.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from evals.items import ITEMS_FILE
from lineage.exposure import exposures
from lineage.order import DataOrder
from lineage.plan import Stage
from lineage.store import Artifact, Writer

TIERS = ("verbatim", "near", "template", "fragment")
"""Strongest first; a fragment alone is reported, and makes no document contaminated."""
ITEM_KEY = ["suite", "task", "item_id"]
EXCERPT_CHARS = 240
ITEMS_SCHEMA = pa.schema(
    [
        ("suite", pa.string()),
        ("task", pa.string()),
        ("item_id", pa.string()),
        ("status", pa.string()),
        ("tier_before", pa.string()),
        ("tier_after", pa.string()),
        ("num_documents_before", pa.int64()),
        ("num_documents_after", pa.int64()),
        ("first_step", pa.int64()),
        ("num_exposures", pa.int64()),
    ]
)
EXPOSURES_SCHEMA = pa.schema(
    [
        ("suite", pa.string()),
        ("task", pa.string()),
        ("item_id", pa.string()),
        ("component", pa.string()),
        ("id", pa.string()),
        ("tier", pa.string()),
        ("step", pa.int64()),
        ("sequence", pa.int64()),
        ("tokens", pa.int64()),
    ]
)


@dataclass(frozen=True)
class AuditConfig:
    """How much of the evidence the report quotes, and how many exposures the second witness re-reads."""

    worst_matches: int = 20
    verified_exposures: int = 50


def audit(
    out: Writer,
    config: AuditConfig,
    checkpoint: Artifact,
    suites: tuple[Artifact, ...],
    contamination: tuple[Artifact, ...],
    corpora: tuple[Artifact, ...],
) -> None:
    """Write `items.parquet` (a row an item), `exposures.parquet`, `audit.json`.

    Raises: ValueError when the marks leave out an item of the suites; RuntimeError when a reported exposure cannot be found
    in the batch of its step.
    """
    facts = checkpoint.manifest.extra["checkpoint"]
    order = DataOrder.open(checkpoint.input("mixture"), facts["seq_len"])
    items = pl.concat([pl.read_parquet(suite.files(ITEMS_FILE)[0], columns=ITEM_KEY) for suite in suites])
    matches = _matches(contamination, corpora)
    statuses = _statuses(items, contamination)
    trained = _trained(order)
    after = matches.join(trained, on=["component", "id"], how="semi")
    seen = exposures(order, _ids_by_component(after), batch_size=facts["batch_size"], num_steps=facts["step"])
    witness(order, seen, facts["batch_size"], config.verified_exposures)
    exposed = after.select(*ITEM_KEY, "component", "id", "tier").unique().join(seen, on=["component", "id"])
    table = _item_table(statuses, matches, after, exposed)
    columns = EXPOSURES_SCHEMA.names
    _write(out, "items.parquet", table.select(ITEMS_SCHEMA.names).sort(ITEM_KEY), ITEMS_SCHEMA)
    _write(out, "exposures.parquet", exposed.select(columns).sort(columns), EXPOSURES_SCHEMA)
    summary = _summary(table, after, exposed, facts["step"])
    report = {**summary, "worst": _worst(after, exposed, corpora, config.worst_matches)}
    (out.folder / "audit.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    out.extra["audit"] = summary
    out.record(rows_in=items.height, rows_out=table.height)


AUDIT = Stage("evals.audit", "1", audit)


def _matches(contamination: Sequence[Artifact], corpora: Sequence[Artifact]) -> pl.DataFrame:
    """Every match on a normalized document, with the component that its source became."""
    component_of = {corpus.input("contamination").spec.address: corpus.manifest.extra["corpus"]["source"] for corpus in corpora}
    frames = [
        pl.read_parquet(marks.files("matches.parquet")[0]).with_columns(component=pl.lit(component_of[marks.spec.address]))
        for marks in contamination
    ]
    return pl.concat(frames)


def _statuses(items: pl.DataFrame, contamination: Sequence[Artifact]) -> pl.DataFrame:
    """Each item's standing over all sources: matched somewhere, else unknown (too short to match anything), else clean."""
    marks = pl.concat([pl.read_parquet(m.files("items.parquet", under="items")[0]) for m in contamination])
    rank = pl.col("status").replace_strict({"clean": 0, "unknown": 1, "matched": 2}, return_dtype=pl.Int64)
    best = (
        marks.with_columns(rank=rank).sort("rank", descending=True).unique(ITEM_KEY, keep="first").select(*ITEM_KEY, "status")
    )
    joined = items.join(best, on=ITEM_KEY, how="left")
    missing = joined.filter(pl.col("status").is_null())
    if missing.height:
        raise ValueError(f"the marks do not cover {missing.height} items of the suites, such as {missing.row(0)[:3]}")
    return joined


def _trained(order: DataOrder) -> pl.DataFrame:
    """(component, id) of every document in a cache of the mixture."""
    rows = [(name, i) for name, cache in zip(order.names, order.caches, strict=True) for i in cache.document_ids()]
    return pl.DataFrame(rows, schema={"component": pl.String, "id": pl.String}, orient="row")


def _ids_by_component(after: pl.DataFrame) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for component, document_id in after.select("component", "id").unique().sort("component", "id").iter_rows():
        found.setdefault(component, []).append(document_id)
    return found


def witness(order: DataOrder, seen: pl.DataFrame, batch_size: int, count: int) -> None:
    """Read the batches of some reported exposures forward. Raises RuntimeError when one does not hold the document."""
    chosen = seen.gather_every(max(1, seen.height // count)).head(count) if seen.height else seen
    for component, document_id, step, sequence, tokens in chosen.iter_rows():
        cache = order.caches[order.names.index(component)]
        span = cache.document_span(document_id)
        assert span is not None
        start = max(span[0], sequence * order.seq_len)
        wanted = cache.read(start, start + tokens).astype(np.int64)
        offset = start - sequence * order.seq_len
        batch = order.batch(step * batch_size, batch_size)
        if not any(np.array_equal(row[offset : offset + tokens], wanted) for row in batch):
            raise RuntimeError(
                f"the audit says step {step} read document {document_id} of {component}, but its batch does not hold it: "
                "the data order and its inverse disagree"
            )


def _item_table(statuses: pl.DataFrame, before: pl.DataFrame, after: pl.DataFrame, exposed: pl.DataFrame) -> pl.DataFrame:
    """One row an item: its strongest tier and documents before and after, and when training first saw one of them."""

    def by_item(matches: pl.DataFrame, suffix: str) -> pl.DataFrame:
        rank = pl.col("tier").replace_strict({tier: i for i, tier in enumerate(TIERS)}, return_dtype=pl.Int64)
        best = (
            matches.with_columns(rank=rank)
            .group_by(ITEM_KEY)
            .agg(
                pl.col("tier").sort_by("rank").first().alias(f"tier_{suffix}"),
                pl.col("id").n_unique().cast(pl.Int64).alias(f"num_documents_{suffix}"),
            )
        )
        return best

    steps = exposed.group_by(ITEM_KEY).agg(
        first_step=pl.col("step").min(), num_exposures=pl.struct("component", "id", "step").n_unique().cast(pl.Int64)
    )
    return (
        statuses.join(by_item(before, "before"), on=ITEM_KEY, how="left")
        .join(by_item(after, "after"), on=ITEM_KEY, how="left")
        .join(steps, on=ITEM_KEY, how="left")
        .with_columns(
            pl.col("tier_before", "tier_after").fill_null(""),
            pl.col("num_documents_before", "num_documents_after", "num_exposures").fill_null(0),
            pl.col("first_step").fill_null(-1),
        )
    )


def _summary(table: pl.DataFrame, after: pl.DataFrame, exposed: pl.DataFrame, step: int) -> dict[str, object]:
    """Verdict and counts. `contaminated`: a match stronger than a fragment is left in what the model was trained on."""
    tiers = set(after["tier"].unique())
    verdict = "contaminated" if tiers - {"fragment"} else "fragments_only" if tiers else "clean"
    counts = {
        "items": table.height,
        "matched_before": table.filter(pl.col("num_documents_before") > 0).height,
        "matched_after": table.filter(pl.col("num_documents_after") > 0).height,
        "unknown": table.filter(pl.col("status") == "unknown").height,
        "seen_in_training": table.filter(pl.col("num_exposures") > 0).height,
    }
    by_task = {
        task: {
            "items": rows.height,
            **{f"before_{tier}": rows.filter(pl.col("tier_before") == tier).height for tier in TIERS},
            **{f"after_{tier}": rows.filter(pl.col("tier_after") == tier).height for tier in TIERS},
            "unknown": rows.filter(pl.col("status") == "unknown").height,
            "seen_in_training": rows.filter(pl.col("num_exposures") > 0).height,
        }
        for (task,), rows in sorted(table.group_by("task"), key=lambda pair: str(pair[0]))
    }
    documents = exposed.select("component", "id").n_unique() if exposed.height else 0
    return {
        "verdict": verdict,
        "step": step,
        "counts": counts,
        "by_task": by_task,
        "documents_seen": documents,
        "granularity": "documents: a step that read any token of a matching document is an exposure",
    }


def _worst(after: pl.DataFrame, exposed: pl.DataFrame, corpora: Sequence[Artifact], count: int) -> list[dict[str, object]]:
    """The longest matches that are left, with the matched text and the first steps that saw their document."""
    chosen = after.sort(["longest_run", "id", *ITEM_KEY], descending=[True, False, False, False, False]).head(count)
    texts = _texts(corpora, chosen["id"].unique().to_list())
    found = []
    for row in chosen.iter_rows(named=True):
        steps = exposed.filter((pl.col("id") == row["id"]) & (pl.col("component") == row["component"]))["step"].unique().sort()
        excerpt = texts.get(row["id"], "")[row["start"] : row["end"]]
        found.append(
            {
                **{name: row[name] for name in (*ITEM_KEY, "channel", "tier", "component", "id", "longest_run")},
                "score": round(row["score"], 4),
                "text": excerpt[:EXCERPT_CHARS],
                "steps": steps.head(10).to_list(),
            }
        )
    return found


def _texts(corpora: Sequence[Artifact], ids: list[str]) -> dict[str, str]:
    paths = [path for corpus in corpora for path in corpus.files(".parquet", under="train/")]
    wanted = pl.scan_parquet(paths).filter(pl.col("id").is_in(ids)).select("id", "text").collect()
    return dict(wanted.iter_rows())


def _write(out: Writer, name: str, table: pl.DataFrame, schema: pa.Schema) -> None:
    pq.write_table(table.to_arrow().cast(schema), out.folder / name, compression="zstd")
