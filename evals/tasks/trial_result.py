"""The result of a sweep's trial: held-out scores of its checkpoint, or that it diverged."""

import json
from contextlib import ExitStack

from evals.items.stage import TrialResultConfig
from evals.scoring.records import Score
from evals.tasks.evaluate import LocalModel
from evals.tasks.run_task import TaskInputs, run_tasks
from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.jobs.job import Job
from lineage.shards.measure import measuring
from lineage.storage.digests import identity_digest
from serving.tokenization import open_tokenizer
from trainer.api import training_flops_per_token

RESULT_FILE = "result.json"


def score_trial(job: Job) -> Artifact:
    """Commit `result.json`: facts of the trial, and scores if it did not diverge (`extra["result"]` is the same).

    `policy` and `vocabulary` are digests: results are comparable only where both are equal.
    """
    config = from_jsonable(TrialResultConfig, job.spec.config)
    trial, tokenizer, corpora = (job.inputs[name] for name in ("trial", "tokenizer", "corpora"))
    assert isinstance(trial, Artifact) and isinstance(tokenizer, Artifact) and isinstance(corpora, tuple)
    with measuring() as cost:
        record = _facts(trial, tokenizer) | {"policy": identity_digest(dict(job.spec.config))}
        diverged = trial.manifest.extra.get("diverged")
        scores = [] if diverged else _scores(config, trial, tokenizer, corpora, job.spec.name)
        record |= {"diverged": diverged["why"] if diverged else None, "scores": [score.rounded() for score in scores]}
        with job.writing(job.spec, cost) as out:
            (out.folder / RESULT_FILE).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
            out.extra["result"] = record
            out.record(rows_in=len(scores), rows_out=len(scores))
    return out.artifact


def _facts(trial: Artifact, tokenizer: Artifact) -> dict[str, object]:
    """Facts from the spec and the training: FLOPs by the trainer's count, tokens read, training loss (nats a token)."""
    run = dict(trial.spec.config["run"])
    facts = trial.manifest.extra.get("checkpoint", {})
    tokens = facts.get("tokens_seen")
    flops = None if tokens is None else tokens * training_flops_per_token(run, f"{trial.name}.run")
    return {
        "trial": run["name"],
        "spec": run,
        "parameters": facts.get("parameters"),
        "tokens_seen": tokens,
        "training_flops": flops,
        "training_loss_nats": facts.get("loss_nats"),
        "vocabulary": tokenizer.data_version,
    }


def _scores(
    config: TrialResultConfig, trial: Artifact, tokenizer: Artifact, corpora: tuple[Artifact, ...], title: str
) -> list[Score]:
    with ExitStack() as opened:
        model = LocalModel(trial, tokenizer, opened)
        reader = open_tokenizer(tokenizer, model.scorer("raw").vocab_size)
        inputs = TaskInputs(tokenizer, *reader, {}, [], corpora, (), trial.data_version, config.seed)
        return run_tasks(model, inputs, (config.task,), title).scores
