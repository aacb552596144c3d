"""The stage `evals.gap`: the perplexity gap of two checkpoints as an artifact: every document, the sums by tag, and a page.

What it measures is in `evals.reports.perplexity_gap`; the documents are the held-out ones of the corpora that it is given.
"""

from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq

from evals.items.stage import GapConfig, TaskSpec
from evals.reports.gap_page import write_gap_page
from evals.reports.perplexity_gap import DocumentGap, GapSummary, Reader, perplexity_gap
from evals.tasks.perplexity import heldout_documents
from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.jobs.job import Job
from lineage.shards.measure import measuring
from serving.tokenization import open_tokenizer
from trainer.inference import load_scorer

DOCUMENTS_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("tag", pa.string()),
        ("num_bytes", pa.int64()),
        ("first", pa.float64()),
        ("second", pa.float64()),
        ("stretch", pa.string()),
        ("stretch_bits", pa.float64()),
    ]
)
"""`first` and `second` in bits per byte; the stretch is where the second model loses most, in bits."""
DIGITS = 5


def measure_gap(job: Job) -> Artifact:
    """Run a job: `documents.parquet` (the largest total gap first), `gap.html`, `gap.png`; sums by tag in the manifest."""
    config = from_jsonable(GapConfig, job.spec.config)
    corpora = job.inputs["corpora"]
    assert isinstance(corpora, tuple)
    task = TaskSpec(
        "gap",
        "perplexity",
        max_bytes_per_domain=config.max_bytes_per_domain,
        max_bytes_per_document=config.max_bytes_per_document,
    )
    names = [_named(job, side).name for side in ("first", "second")]
    with measuring() as cost:
        summaries, gaps = perplexity_gap(_reader(job, "first"), _reader(job, "second"), heldout_documents(corpora, task))
        with job.writing(job.spec, cost) as out:
            rows = [_rounded(gap) for gap in gaps]
            pq.write_table(
                pa.Table.from_pylist(rows, schema=DOCUMENTS_SCHEMA), out.folder / "documents.parquet", compression="zstd"
            )
            facts = {"first": names[0], "second": names[1], "tags": [_summary(summary) for summary in summaries]}
            write_gap_page(out.folder, facts, rows[: config.worst])
            out.extra["gap"] = facts | {"worst": rows[: config.worst]}
            out.record(rows_in=len(rows), rows_out=len(rows), bytes_in=sum(gap.num_bytes for gap in gaps))
    return out.artifact


def _named(job: Job, name: str) -> Artifact:
    artifact = job.inputs[name]
    assert isinstance(artifact, Artifact)
    return artifact


def _reader(job: Job, side: str) -> Reader:
    scorer = load_scorer(_named(job, side))
    return Reader(scorer, *open_tokenizer(_named(job, f"{side}_tokenizer"), scorer.vocab_size))


def _rounded(gap: DocumentGap) -> dict[str, object]:
    numbers = {name: round(getattr(gap, name), DIGITS) for name in ("first", "second", "stretch_bits")}
    return {name: value for name, value in asdict(gap).items() if name in DOCUMENTS_SCHEMA.names} | numbers


def _summary(summary: GapSummary) -> dict[str, object]:
    return asdict(summary) | {name: round(getattr(summary, name), DIGITS) for name in ("first", "second", "gap", "low", "high")}
