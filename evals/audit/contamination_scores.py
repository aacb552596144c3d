"""The job of the stage `evals.contamination_scores`: how a checkpoint scores the items that its corpora hold.

An evaluation samples its tasks, so it rarely scores the few items that a corpus holds. Here every item that the marks
list is scored, and clean controls of the same task beside them, under the checkpoint and under the checkpoint that its
run started from, if any. The audit draws conclusions from the numbers (`evals/audit/scores.py`).
"""

import logging
from collections.abc import Sequence

import polars as pl
from tokenizers import Tokenizer

from evals.audit.evidence import ITEM_KEY
from evals.items.item import Item, items_of, read_items, select_items
from evals.items.stage import ContaminationScoresConfig
from evals.scoring.records import EvalRecord, write_records
from evals.tasks.benchmarks import evaluate_benchmark
from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.jobs.job import Job
from lineage.progress import track
from lineage.shards.measure import measuring
from serving.tokenization import open_tokenizer
from trainer.inference import Scorer, load_scorer

log = logging.getLogger("evals")


def score_contamination(job: Job) -> Artifact:
    """Run a job: write `records.parquet` in `record/2`, one row for each item and checkpoint; nothing is summed up
    here.
    """
    config = from_jsonable(ContaminationScoresConfig, job.spec.config)
    tokenizer_artifact = job.inputs["tokenizer"]
    checkpoint, baseline = (
        job.inputs["checkpoint"],
        job.inputs.get("baseline", ()),
    )  # There is no baseline for a run that starts from nothing.
    suites, contamination = job.inputs["suites"], job.inputs["contamination"]
    assert isinstance(tokenizer_artifact, Artifact) and isinstance(checkpoint, Artifact) and isinstance(baseline, tuple)
    assert isinstance(suites, tuple) and isinstance(contamination, tuple)
    with measuring() as cost:
        items = [item for suite in suites for item in read_items(suite)]
        chosen = choose_items(items, contamination, config)
        records: list[EvalRecord] = []
        for scored in (checkpoint, *baseline):
            scorer = load_scorer(scored)
            tokenizer, start = open_tokenizer(tokenizer_artifact, scorer.vocab_size)
            records += _score(scorer, tokenizer, start, config, chosen, scored)
        with job.writing(job.spec, cost) as out:
            write_records(records, out.folder / "records.parquet")
            failed = sum(record.verdict != "graded" for record in records)
            drops = {"not_scorable": failed} if failed else {}
            out.extra["contamination_scores"] = {"baseline": [b.data_version for b in baseline]}
            out.record(rows_in=len(records), rows_out=len(records) - failed, drops=drops)
    return out.artifact


def choose_items(
    items: Sequence[Item], contamination: Sequence[Artifact], config: ContaminationScoresConfig
) -> dict[str, list[Item]]:
    """Return by task the items that any marks list (fragments too), then clean controls, each the first in hash order.

    Raises: ValueError naming a task that no suite has, or two have.
    """
    flagged = {
        key for marks in contamination for key in pl.read_parquet(marks.files("matches.parquet")[0]).select(ITEM_KEY).rows()
    }
    no_controls = flagged | {key for marks in contamination for key in _unmatchable(marks)}
    chosen: dict[str, list[Item]] = {}
    for task in config.tasks:
        of_task = items_of(items, task.name)
        held = [item for item in of_task if _key(item) in flagged]
        clean = [item for item in of_task if _key(item) not in no_controls]
        chosen[task.name] = [
            *select_items(held, task.max_items, config.seed),
            *select_items(clean, config.controls_per_task, config.seed),
        ]
        if len(held) > task.max_items:
            log.warning("%s: %d items are flagged, the first %d in hash order are scored", task.name, len(held), task.max_items)
    return chosen


def _unmatchable(marks: Artifact) -> list[tuple[str, ...]]:
    """Return items too short to be found anywhere: it is unknown whether they are clean, so they are no controls."""
    return pl.read_parquet(marks.files("items.parquet")[0]).filter(pl.col("status") == "unknown").select(ITEM_KEY).rows()


def _key(item: Item) -> tuple[str, ...]:
    return tuple(getattr(item, name) for name in ITEM_KEY)


def _score(
    scorer: Scorer,
    tokenizer: Tokenizer,
    start: int,
    config: ContaminationScoresConfig,
    chosen: dict[str, list[Item]],
    checkpoint: Artifact,
) -> list[EvalRecord]:
    records: list[EvalRecord] = []
    for task in track(config.tasks, checkpoint.name, len(config.tasks)):
        _, of_task = evaluate_benchmark(scorer, tokenizer, start, task, chosen[task.name], checkpoint.data_version, config.seed)
        records += of_task
    return records
