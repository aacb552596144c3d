"""Evaluate a checkpoint: every task of a job, one after the other, into records and scores."""

import json
import logging
from collections.abc import Sequence

from tokenizers import Tokenizer

from evals.benchmarks import evaluate_benchmark
from evals.items import Item, read_items, select_items
from evals.perplexity import evaluate_perplexity
from evals.records import EvalRecord, Score, write_records
from evals.stage import EvalConfig
from lineage.config import from_jsonable
from lineage.jobs import Job
from lineage.measure import measuring
from lineage.progress import track
from lineage.store import Artifact, Writer
from trainer.scoring import load_scorer

log = logging.getLogger("evals")


def evaluate(job: Job) -> Artifact:
    """Run a job's tasks and commit its artifact."""
    config = from_jsonable(EvalConfig, job.spec.config)
    checkpoint, tokenizer_artifact = job.inputs["checkpoint"], job.inputs["tokenizer"]
    suites, corpora = job.inputs["suites"], job.inputs["corpora"]
    assert isinstance(checkpoint, Artifact) and isinstance(tokenizer_artifact, Artifact)
    assert isinstance(suites, tuple) and isinstance(corpora, tuple)
    with measuring() as cost:
        items = [item for suite in suites for item in read_items(suite)]
        chosen = {
            task.name: select_items(items_of(items, task.name), task.max_items, config.seed)
            for task in config.tasks
            if task.kind != "perplexity"
        }
        scorer = load_scorer(checkpoint)
        tokenizer, start = open_tokenizer(tokenizer_artifact, scorer.vocab_size)
        scores: list[Score] = []
        records: list[EvalRecord] = []
        version = checkpoint.data_version
        for task in track(config.tasks, job.spec.name, len(config.tasks)):
            if task.kind == "perplexity":
                done = evaluate_perplexity(scorer, tokenizer, start, task, corpora, version, config.seed)
            else:
                done = evaluate_benchmark(scorer, tokenizer, start, task, chosen[task.name], version, config.seed)
            scores += done[0]
            records += done[1]
            log.info("%s: %s", task.name, ", ".join(f"{s.metric} {s.value:.4f}" for s in done[0]))
        with job.writing(job.spec, cost) as out:
            _write(out, scores, records)
    return out.artifact


def open_tokenizer(artifact: Artifact, vocab_size: int) -> tuple[Tokenizer, int]:
    """The tokenizer, reading no special token out of text, and the id that opens every sequence (the end of a document).

    Raises: ValueError when it has not as many tokens as the model that is to read them.
    """
    tokenizer = Tokenizer.from_file(str(artifact.files("tokenizer.json")[0]))
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(f"{artifact.name} has {tokenizer.get_vocab_size()} tokens, the checkpoint's model {vocab_size}")
    tokenizer.encode_special_tokens = True
    return tokenizer, int(artifact.manifest.extra["tokenizer"]["eos"])


def items_of(items: Sequence[Item], task: str) -> list[Item]:
    """The items of a task. Raises ValueError when no suite has it, or two do (their item ids would clash in the records)."""
    found = [item for item in items if item.task == task]
    suites = sorted({item.suite for item in found})
    if not found:
        known = ", ".join(sorted({item.task for item in items}))
        raise ValueError(f"task {task!r} has no items in the suites; they have: {known}")
    if len(suites) > 1:
        raise ValueError(f"task {task!r} is in the suites {', '.join(suites)}; give the evaluation only one of them")
    return found


def _write(out: Writer, scores: Sequence[Score], records: Sequence[EvalRecord]) -> None:
    write_records(records, out.folder / "records.parquet")
    rounded = [score.rounded() for score in scores]
    (out.folder / "scores.json").write_text(json.dumps(rounded, indent=1) + "\n")
    failed = sum(record.verdict != "graded" for record in records)
    truncated = sum(json.loads(record.outputs).get("truncated_tokens", 0) > 0 for record in records)
    if failed or truncated:
        log.warning("%d of %d records failed; the prompts of %d were cut on the left to fit", failed, len(records), truncated)
    out.extra["scores"] = rounded
    drops = {"not_scorable": failed} if failed else {}
    out.record(rows_in=len(records), rows_out=len(records) - failed, drops=drops, prompts_truncated=truncated)
