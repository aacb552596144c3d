"""Evaluate a checkpoint: every task of a job, one after the other, into records and scores."""

import json
import logging

from tokenizers import Tokenizer

from evals.benchmarks import evaluate_benchmark
from evals.items import read_items, select_items
from evals.perplexity import evaluate_perplexity
from evals.records import EvalRecord, Score, write_records
from evals.stage import EvalConfig
from lineage.config import from_jsonable
from lineage.jobs import Job
from lineage.measure import measuring
from lineage.progress import track
from lineage.store import Artifact
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
        scorer = load_scorer(checkpoint)
        tokenizer = Tokenizer.from_file(str(tokenizer_artifact.files("tokenizer.json")[0]))
        tokenizer.encode_special_tokens = True
        start = int(tokenizer_artifact.manifest.extra["tokenizer"]["eos"])
        if tokenizer.get_vocab_size() != scorer.vocab_size:
            raise ValueError(
                f"{tokenizer_artifact.name} has {tokenizer.get_vocab_size()} tokens, the checkpoint's model {scorer.vocab_size}"
            )
        items = [item for suite in suites for item in read_items(suite)]
        scores: list[Score] = []
        records: list[EvalRecord] = []
        version = checkpoint.data_version
        for task in track(config.tasks, job.spec.name, len(config.tasks)):
            if task.kind == "perplexity":
                done = evaluate_perplexity(scorer, tokenizer, start, task, corpora, version, config.seed)
            else:
                of_task = [item for item in items if item.task == task.name]
                if not of_task:
                    known = ", ".join(sorted({item.task for item in items}))
                    raise ValueError(f"task {task.name!r} has no items in the suites; they have: {known}")
                chosen = select_items(of_task, task.max_items, config.seed)
                done = evaluate_benchmark(scorer, tokenizer, start, task, chosen, version, config.seed)
            scores += done[0]
            records += done[1]
            log.info("%s: %s", task.name, ", ".join(f"{s.metric} {s.value:.4f}" for s in done[0]))
        with job.store.writing(job.spec, job.code_fingerprint, job.run_id, cost) as out:
            write_records(records, out.folder / "records.parquet")
            rounded = [score.rounded() for score in scores]
            (out.folder / "scores.json").write_text(json.dumps(rounded, indent=1) + "\n")
            failed = sum(record.verdict != "graded" for record in records)
            out.extra["scores"] = rounded
            out.record(rows_in=len(records), rows_out=len(records) - failed, drops={"not_scorable": failed} if failed else {})
    return out.artifact
