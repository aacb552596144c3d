"""Nodes of a sweep: the trial and the result of each run. Assets over a sweep take `results` as their input."""

from functools import cache

from evals.items.stage import TRIAL_RESULT, TaskSpec, TrialResultConfig
from lineage.build.plan import Node
from recipes.data import corpora, tokenizer
from recipes.policies import EVAL_SEED, HELDOUT_TASK
from recipes.records.run import Run
from recipes.runs import checkpoint
from recipes.study import Sweep


def trial(run: Run) -> Node:
    """The last checkpoint of a trial, or the record of its divergence."""
    return checkpoint(run, run.spec.num_steps)


@cache
def result(run: Run) -> Node:
    """Held-out bits per byte of a trial by domain, or that it diverged."""
    at = run.place.data
    inputs = {"trial": trial(run), "tokenizer": tokenizer(run.tokens, at), "corpora": corpora(run.corpus, at)}
    config = TrialResultConfig(TaskSpec(HELDOUT_TASK, "perplexity"), EVAL_SEED)
    place = run.place.of_run(run.name, "result", partition=run.name)
    return Node(*place, TRIAL_RESULT, config, inputs, run.evaluation.hardware)


def results(sweep: Sweep) -> tuple[Node, ...]:
    """The result of every trial, in the sweep's order."""
    return tuple(result(run) for run in sweep.trials)
