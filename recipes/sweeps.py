"""Nodes of a sweep: trial and result of each of its runs, their table, and what is fitted to it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from evals.items.stage import TRIAL_RESULT, TaskSpec, TrialResultConfig
from lineage.artifact.store import Store
from lineage.build.nodes import Node, NodeInput, find_all
from recipes.data import corpora
from recipes.policies import EVAL_SEED
from recipes.records.run import HELDOUT_TASK, Run
from recipes.records.sweep import Sweep
from recipes.runs import checkpoint
from recipes.tokenized import tokenizer
from science.batch_stage import CRITICAL_BATCH
from science.forecasts.fit_stage import FIT
from science.forecasts.table import TABLE, Expected, TableConfig
from science.repetition_stage import REPETITION
from science.seed_stage import SEED_VARIANCE, SeedVarianceConfig

SHOWN_MISSING = 40
RESULT_CONFIG = TrialResultConfig(TaskSpec(HELDOUT_TASK, "perplexity"), EVAL_SEED)
"""How every trial is scored, and every run that a law forecasts."""


def trial(run: Run) -> Node:
    """The last checkpoint of a trial, or the record of its divergence."""
    return checkpoint(run, run.spec.num_steps)


@cache
def result(run: Run) -> Node:
    """Held-out bits per byte of a trial by domain, or that it diverged."""
    at = run.place.data
    inputs = {"trial": trial(run), "tokenizer": tokenizer(run.tokens, at), "corpora": corpora(run.heldout_corpus, at)}
    place = run.place.of_run(run.name, "result", partition=run.name)
    return Node(*place, TRIAL_RESULT, RESULT_CONFIG, inputs, run.evaluation.hardware)


def results(sweep: Sweep) -> tuple[Node, ...]:
    """The result of every trial, in the sweep's order."""
    return tuple(result(run) for run in sweep.trials)


def compared_scores(targets: Sequence[str], metric: str) -> tuple[tuple[str, ...], str]:
    """Tasks and metric by which results are compared: held-out text of each tag, or without tags all of it together."""
    if not targets:
        return (HELDOUT_TASK,), f"micro_{metric}"
    return tuple(f"{HELDOUT_TASK}/{target}" for target in targets), metric


def table(sweep: Sweep, present: Sequence[Node] | None = None) -> Node:
    """One row a trial. `present` are the results that exist, where the sweep allows some to be missing; None: all."""
    budgets = zip(sweep.trials, sweep.declared_budgets, strict=True)
    expected = tuple(Expected(run.name, budget) for run, budget in budgets)
    config = TableConfig(expected, sweep.loss.task, sweep.loss.metric, sweep.max_missing)
    inputs = {"results": results(sweep) if present is None else tuple(present)}
    return Node(("sweeps", sweep.name, "table"), None, TABLE, config, inputs)


def table_now(store: Store, sweep: Sweep) -> Node:
    """The table of the results that a store holds. Raises: MissingTrialsError if more are missing than the sweep allows."""
    every = results(sweep)
    present = [node for node, artifact in zip(every, find_all(store, every), strict=True) if artifact is not None]
    missing = (
        [node.partition or "" for node in every if id(node) not in {id(each) for each in present}]
        if len(present) < len(every)
        else []
    )
    if len(missing) > sweep.max_missing:
        raise MissingTrialsError(sweep, missing)
    return table(sweep, present) if missing else table(sweep)


class MissingTrialsError(LookupError):
    """A sweep has too few results for its table."""

    def __init__(self, sweep: Sweep, missing: Sequence[str]):
        some = ", ".join(missing[:SHOWN_MISSING]) + (", ..." if len(missing) > SHOWN_MISSING else "")
        super().__init__(
            f"sweep {sweep.name}: {len(missing)} of {len(sweep.trials)} trials have no result, at most {sweep.max_missing} "
            f"may lack one: {some}. Materialize sweeps/{sweep.name}/result of them; trials that exist are reused"
        )
        self.missing = tuple(missing)


def fit(sweep: Sweep, of: Node | None = None) -> Node:
    """The law of a sweep, fitted to its table. Raises: ValueError for a sweep that declares none."""
    if sweep.law is None:
        raise ValueError(f"sweep {sweep.name} declares no law; give it a FitConfig")
    return Node(("sweeps", sweep.name, "fit"), None, FIT, sweep.law, {"table": of or table(sweep)})


def critical_batch(sweep: Sweep, of: Node | None = None) -> Node:
    """The critical batch at each count of tokens. Trials that record the noise of their gradients are its second witness.

    Raises: ValueError for a sweep that declares none.
    """
    if sweep.critical_batch is None:
        raise ValueError(f"sweep {sweep.name} declares no critical batch; give it a CriticalBatchConfig")
    rows = of or table(sweep)
    inputs: dict[str, NodeInput] = {"table": rows}
    noisy = {result(run).partition for run in sweep.trials if run.spec.gradient_noise}
    if noisy:
        inputs["results"] = tuple(node for node in rows.parents() if node.partition in noisy)
    return Node(("sweeps", sweep.name, "critical_batch"), None, CRITICAL_BATCH, sweep.critical_batch, inputs)


def repetition(sweep: Sweep, of: Node | None = None) -> Node:
    """How much repeated tokens are worth. Raises: ValueError for a sweep that declares no such fit."""
    if sweep.repetition is None:
        raise ValueError(f"sweep {sweep.name} declares no law of repetition; give it a RepetitionConfig")
    inputs = {"table": of or table(sweep)}
    return Node(("sweeps", sweep.name, "repetition"), None, REPETITION, sweep.repetition, inputs)


def crossed(run: Run, seeds: Sequence[int], orders: Sequence[int]) -> tuple[Run, ...]:
    """Return one trial for each seed of initialization and each seed of data order: `<run>-i<seed>-o<order>`."""

    def at(seed: int, order: int) -> Run:
        name = f"{run.name}-i{seed}-o{order}"
        mix = replace(run.data, name=f"{run.data.name}-o{order}", order_seed=order)
        return replace(run, spec=replace(run.spec, name=name, seed=seed), data=mix)

    return tuple(at(seed, order) for seed in seeds for order in orders)


def seed_variance(sweep: Sweep) -> Node:
    """The variance of one run's loss by initialization and by data order, at each budget."""
    loss = sweep.loss
    config = SeedVarianceConfig(loss.task, loss.metric, loss.unit)
    return Node(("sweeps", sweep.name, "seed_variance"), None, SEED_VARIANCE, config, {"results": results(sweep)})
