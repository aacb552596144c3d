"""Evaluate a checkpoint: every task of a job, one after the other, into records and scores."""

import json
import logging
from contextlib import ExitStack
from dataclasses import dataclass, field

from evals.items.item import read_items
from evals.items.stage import EVAL_RESULT, EvalConfig
from evals.scoring.records import write_records
from evals.tasks.generator import TextGenerator, open_generator
from evals.tasks.policy import check_policy
from evals.tasks.run_task import TaskInputs, TaskResult, chosen_items, incomplete_tasks, run_tasks
from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.jobs.job import Job
from lineage.shards.measure import measuring
from lineage.trust.fingerprint import CODE_FINGERPRINT, code_fingerprint
from lineage.writing.writer import Writer
from serving.tokenization import open_tokenizer
from trainer.api import Weights
from trainer.inference import Scorer, load_scorer

log = logging.getLogger("evals")


@dataclass
class LocalModel:
    """A committed checkpoint that is opened in this process, to score or to generate."""

    checkpoint: Artifact
    tokenizer: Artifact
    opened: ExitStack
    scorers: dict[Weights, Scorer] = field(default_factory=dict)
    generating: TextGenerator | None = None

    def scorer(self, weights: Weights) -> Scorer:
        if weights not in self.scorers:
            self.scorers[weights] = load_scorer(self.checkpoint, weights)
        return self.scorers[weights]

    def generator(self) -> TextGenerator:
        if self.generating is None:
            self.generating = self.opened.enter_context(open_generator(self.checkpoint, self.tokenizer))
        return self.generating


def evaluate(job: Job) -> Artifact:
    """Run a job's tasks and commit its artifact.

    Raises: ValueError for tasks that the policy does not hold (`check_policy`) or the model cannot do.
    """
    config = from_jsonable(EvalConfig, job.spec.config)
    checkpoint, tokenizer_artifact, policy = (job.inputs[name] for name in ("checkpoint", "tokenizer", "policy"))
    suites, corpora, shots = job.inputs["suites"], job.inputs["corpora"], job.inputs.get("shots", ())
    trajectories = job.inputs.get("trajectories", ())
    assert isinstance(checkpoint, Artifact) and isinstance(tokenizer_artifact, Artifact) and isinstance(policy, Artifact)
    assert isinstance(suites, tuple) and isinstance(corpora, tuple) and isinstance(shots, tuple)
    assert isinstance(trajectories, tuple)
    check_policy(policy, config.tasks, config.seed, suites, shots)
    bound = _bound(policy)
    with measuring() as cost, ExitStack() as opened:
        model = LocalModel(checkpoint, tokenizer_artifact, opened)
        inputs = TaskInputs(
            tokenizer_artifact,
            *open_tokenizer(tokenizer_artifact, model.scorer("raw").vocab_size),
            chosen_items(config.tasks, suites, config.seed),
            [item for suite in shots for item in read_items(suite)],
            corpora,
            trajectories,
            checkpoint.data_version,
            config.seed,
        )
        result = run_tasks(model, inputs, config.tasks, job.spec.name)
        with job.writing(job.spec, cost) as out:
            out.extra["policy"] = bound
            _write(out, result)
    return out.artifact


def _bound(policy: Artifact) -> dict[str, object]:
    """Name the policy, and whether the evaluator's code has changed since the policy was written."""
    facts = policy.manifest.extra["policy"]
    drifted = facts[CODE_FINGERPRINT] != code_fingerprint(EVAL_RESULT.module)
    if drifted:
        log.warning("%s: the evaluator's code has changed since, its version has not", policy.name)
    return {"name": facts["name"], "data_version": policy.data_version, "code_drifted": drifted}


def _write(out: Writer, result: TaskResult) -> None:
    records = result.records
    write_records(records, out.folder / "records.parquet")
    rounded = [score.rounded() for score in result.scores]
    (out.folder / "scores.json").write_text(json.dumps(rounded, indent=1) + "\n")
    lost: dict[str, int] = {}
    for record in records:
        if record.verdict != "graded":
            reason = "not_scorable" if record.verdict == "failed" else record.verdict
            lost[reason] = lost.get(reason, 0) + 1
    truncated = sum(json.loads(record.outputs).get("truncated_tokens", 0) > 0 for record in records)
    if lost or truncated:
        log.warning(
            "of %d records %s; the prompts of %d were cut on the left to fit", len(records), lost or "all graded", truncated
        )
    incomplete = incomplete_tasks(records)
    if incomplete:
        log.warning("incomplete, less than 90 %% graded: %s", ", ".join(incomplete))
    out.extra["scores"] = rounded
    out.extra["incomplete"] = incomplete
    if result.curves:
        out.extra["pass_at_k"] = [curve.to_json() for curve in result.curves]
    out.record(rows_in=len(records), rows_out=len(records) - sum(lost.values()), drops=lost, prompts_truncated=truncated)
