"""The stage `evals.audit`: which benchmark items the corpus held before and after decontamination, and which steps read
them.

Before: every match on the normalized documents. After: the matches whose document is in a token cache that the
checkpoint's mixture binds (`evals.audit.evidence`). The steps come from inverting the data order
(`lineage.order.exposure`) for each document. A step that read any token of a matching document counts, because a match
is a span of text and tokens do not keep its borders. As a second witness, a sample of the reported exposures is read
forward: the batch of that step must hold the document's tokens.
"""

import json
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from evals.audit.evidence import HELDOUT, ITEM_KEY, gather_matches, item_statuses, tier_rank
from evals.audit.page import write_page
from evals.audit.pairs import pair_evidence
from evals.audit.scores import score_effects
from evals.audit.summary import audit_summary, by_source, scan_quality, worst_matches
from evals.audit.teachers import taught_corpora, teacher_evidence
from lineage.artifact.store import Artifact
from lineage.order.batches import BatchSchedule
from lineage.order.exposure import exposures
from lineage.order.history import TrainingSegment, imported_start, training_legs
from lineage.order.order import DataOrder
from lineage.stage import Stage
from lineage.writing.writer import Writer

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
        ("num_documents_heldout", pa.int64()),
        ("first_leg", pa.int64()),
        ("first_step", pa.int64()),
        ("num_exposures", pa.int64()),
    ]
)
"""`status` is that of the marks (clean, matched, unknown). `first_leg` numbers the runs that led to the checkpoint, 0
is the oldest (`lineage.order.history`); `first_step` is a step of that run. Both are -1 if no step read a matching
document.
"""
EXPOSURES_SCHEMA = pa.schema(
    [
        ("suite", pa.string()),
        ("task", pa.string()),
        ("item_id", pa.string()),
        ("leg", pa.int64()),
        ("component", pa.string()),
        ("id", pa.string()),
        ("tier", pa.string()),
        ("step", pa.int64()),
        ("row", pa.int64()),
        ("sequence", pa.int64()),
        ("tokens", pa.int64()),
    ]
)


@dataclass(frozen=True)
class AuditConfig:
    """How much of the evidence the report quotes, and how many exposures the second witness reads again."""

    worst_matches: int = 20
    verified_exposures: int = 50

    def __post_init__(self) -> None:
        if self.worst_matches < 0 or self.verified_exposures < 1:
            raise ValueError(
                f"audit.worst_matches is {self.worst_matches}, audit.verified_exposures {self.verified_exposures}; the first "
                "must be at least 0, the second at least 1"
            )


def audit(
    out: Writer,
    config: AuditConfig,
    checkpoint: Artifact,
    suites: tuple[Artifact, ...],
    contamination: tuple[Artifact, ...],
    corpora: tuple[Artifact, ...],
    scores: tuple[Artifact, ...] = (),
    teacher_audits: tuple[Artifact, ...] = (),
) -> None:
    """Write `items.parquet` (one row an item), `exposures.parquet`, and the report: `audit.json`, `audit.md`,
    `audit.html`.

    `scores`: none, or the `evals.contamination_scores` of this checkpoint. `teacher_audits`: those of the checkpoints whose
    completions are among the corpora; of such corpora it also writes `teachers.parquet` and `rollout_exposures.parquet`.
    Of runs on preference pairs it also writes `pair_exposures.parquet`.

    Raises: ValueError for evidence with holes (see `gather_matches`, `item_statuses`) and for a checkpoint whose data
    cannot be followed (`training_legs`); RuntimeError if a reported exposure is not found in the batch of its step.
    """
    legs = training_legs(checkpoint)
    read = [_read_leg(number, leg, suites, contamination, corpora, config) for number, leg in enumerate(legs)]
    matches = pl.concat([part.matches for part in read])
    statuses = item_statuses(suites, contamination, matches)
    after = matches.filter(pl.col("trained"))
    document = ["leg", "component", "id"]
    strongest = after.sort(tier_rank()).unique([*ITEM_KEY, *document], keep="first", maintain_order=True)
    exposed = strongest.select(*ITEM_KEY, *document, "tier").join(pl.concat([part.seen for part in read]), on=document)
    table = _item_table(statuses, matches, after, exposed)
    columns = EXPOSURES_SCHEMA.names
    _write(out, "items.parquet", table.select(ITEMS_SCHEMA.names).sort(ITEM_KEY), ITEMS_SCHEMA)
    _write(out, "exposures.parquet", exposed.select(columns).sort(columns), EXPOSURES_SCHEMA)
    summary = audit_summary(table, matches, exposed, len(legs)) | {
        "step": legs[-1].num_steps,
        "verified_exposures": sum(part.num_verified for part in read),
        "legs": [{"run": leg.checkpoint.name, "mixture": leg.mixture.name, "steps": leg.num_steps} for leg in legs],
        "sources": by_source(matches.filter(pl.col("leg") == len(legs) - 1)),
        "scan": scan_quality(contamination),
        "scores": score_effects(table, scores),
    }
    if (taught := taught_corpora(corpora)) or teacher_audits:
        teachers = teacher_evidence(taught, teacher_audits, table, matches, exposed)
        teachers.write(out.folder)
        summary["teachers"] = teachers.summary
    if pairs := {(number, name) for number, part in enumerate(read) for name in part.pairs}:
        of_pairs = pair_evidence(pairs, after, exposed, corpora)
        of_pairs.write(out.folder)
        summary["pairs"] = of_pairs.summary
    if (origin := imported_start(checkpoint)) is not None:
        summary["origin"] = {"model": origin.name, **origin.manifest.extra["checkpoint"]["imported"]}
    report = {
        **summary,
        "worst": worst_matches(after, exposed, corpora, suites, config.worst_matches),
        "digests": {a.name: a.data_version for a in (checkpoint, *suites, *contamination, *corpora, *scores, *teacher_audits)}
        | {leg.mixture.name: leg.mixture.data_version for leg in legs},
    }
    (out.folder / "audit.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    write_page(out.folder, checkpoint.name, report, exposed)
    out.extra["audit"] = summary
    out.record(rows_in=statuses.height, rows_out=table.height)


AUDIT = Stage("evals.audit", "7", audit)
"""7: counts items that only a whole copy would have shown (`whole_only`). 6: partial matches, with a verdict and a
group of their own. 5: an item is quoted where it is like the document, and corpora made again with equal train
documents are those of the caches. 4: what it changed in the scores, sources, quality of the scan, digests, pages. 3:
follows warm starts, leg by leg. 2: refuses evidence with holes, joins by lineage and not by name, counts held-out,
gives the verdict at the step.
"""


@dataclass(frozen=True)
class _LegRead:
    """Join one leg with the items: every match on the given corpora, and which steps read those it trained on."""

    matches: pl.DataFrame
    seen: pl.DataFrame
    num_verified: int
    pairs: tuple[str, ...]
    """Components whose documents are preference pairs."""


def _read_leg(
    number: int,
    leg: TrainingSegment,
    suites: tuple[Artifact, ...],
    contamination: tuple[Artifact, ...],
    corpora: tuple[Artifact, ...],
    config: AuditConfig,
) -> _LegRead:
    order = DataOrder.open(leg.mixture, leg.seq_len)
    matches = gather_matches(leg.mixture, order, suites, contamination, corpora)
    ids = _ids_by_component(matches.filter(pl.col("trained")))
    seen = exposures(order, ids, batches=leg.batches, num_steps=leg.num_steps)
    verified = verify_exposures(order, seen, leg.batches, config.verified_exposures)
    column = pl.lit(number, pl.Int64).alias("leg")
    pairs = tuple(name for name, cache in zip(order.names, order.caches, strict=True) if cache.row_tokens is not None)
    return _LegRead(matches.with_columns(column), seen.with_columns(column), verified, pairs)


def _ids_by_component(after: pl.DataFrame) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for component, document_id in after.select("component", "id").unique().sort("component", "id").iter_rows():
        ids.setdefault(component, []).append(document_id)
    return ids


def verify_exposures(order: DataOrder, reported: pl.DataFrame, batches: BatchSchedule, count: int) -> int:
    """Read the batches of up to `count` reported exposures forward; return how many were read.

    Raises: RuntimeError if a batch does not hold the document's tokens.
    """
    chosen = reported.gather_every(max(1, -(-reported.height // count))) if reported.height else reported
    for component, document_id, step, row, tokens in chosen.select("component", "id", "step", "row", "tokens").iter_rows():
        number = order.names.index(component)
        cache = order.caches[number]
        span = cache.document_span(document_id)
        assert span is not None
        pieces = order.pieces(batches.first(step) + row, 1)
        lows = np.maximum(pieces.starts, span[0])
        ends_here = (pieces.components == number) & (lows + tokens == np.minimum(pieces.starts + pieces.lengths, span[1]))
        batch = order.batch(batches.first(step), batches.size(step))
        at = int(np.argmax(ends_here))
        offset = int(pieces.offsets[at] + lows[at] - pieces.starts[at])
        wanted = cache.read(int(lows[at]), int(lows[at]) + tokens).astype(np.int64)
        if not ends_here.any() or not np.array_equal(batch[row, offset : offset + tokens], wanted):
            raise RuntimeError(
                f"the audit says step {step} read document {document_id} of {component} in row {row}, which does not hold it: "
                "the data order and its inverse disagree"
            )
    return chosen.height


def _item_table(statuses: pl.DataFrame, before: pl.DataFrame, after: pl.DataFrame, exposed: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each item: its strongest tier and documents before and after, and when training first read one
    of them.
    """

    def by_item(matches: pl.DataFrame, suffix: str) -> pl.DataFrame:
        return matches.group_by(ITEM_KEY).agg(
            pl.col("tier").sort_by(tier_rank()).first().alias(f"tier_{suffix}"),
            pl.col("id").n_unique().cast(pl.Int64).alias(f"num_documents_{suffix}"),
        )

    heldout = before.filter(pl.col("fate") == HELDOUT)
    steps = exposed.group_by(ITEM_KEY).agg(
        first_leg=pl.col("leg").sort_by("leg", "step").first(),
        first_step=pl.col("step").sort_by("leg", "step").first(),
        num_exposures=pl.struct("leg", "component", "id", "step").n_unique().cast(pl.Int64),
    )
    return (
        statuses.join(by_item(before, "before"), on=ITEM_KEY, how="left")
        .join(by_item(after, "after"), on=ITEM_KEY, how="left")
        .join(by_item(heldout, "heldout").drop("tier_heldout"), on=ITEM_KEY, how="left")
        .join(steps, on=ITEM_KEY, how="left")
        .with_columns(
            pl.col("tier_before", "tier_after").fill_null(""),
            pl.col("^num_.*$").fill_null(0),
            pl.col("first_leg", "first_step").fill_null(-1),
        )
    )


def _write(out: Writer, name: str, table: pl.DataFrame, schema: pa.Schema) -> None:
    pq.write_table(table.to_arrow().cast(schema), out.folder / name, compression="zstd")
