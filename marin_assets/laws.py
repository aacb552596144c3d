"""Assets over a sweep (its table, its law) and over a forecast run (forecast, result, verdict)."""

from collections.abc import Iterator
from dataclasses import replace

import dagster as dg

from lineage.build.plan import Built
from marin_assets.areas import owners
from marin_assets.data_stages import FILES, ROWS
from marin_assets.describe import describe, identity_tags
from marin_assets.event_log import STAGE_METADATA
from marin_assets.factory import AssetTemplate, Invariant, WarningCheck, checked, single
from marin_assets.invariants import forms_agree, forms_converged
from marin_assets.references import after_inputs
from recipes.forecasts import forecast_of, outcome, verdict
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.sweeps import critical_batch, fit, repetition, result, results, seed_variance, table, table_now
from resources.lab import Lab
from science.forecasts.board import BOARD, KEY, build_board

SWEEPS, FORECASTS = "sweeps", "comparisons"
CONVERGED = Invariant("forms_converged", "the fit of every form converged", forms_converged)
AGREE = WarningCheck("forms_agree", "at larger budgets the forms agree within the 90 % interval", forms_agree)


def law_templates(sweep: Sweep) -> Iterator[AssetTemplate]:
    """Yield the table of a sweep, and what is fitted to it if the sweep declares that."""
    every = {result(sweep.trials[0]).key: dg.AllPartitionMapping()}
    rows = single(
        table(sweep), lambda lab: table_now(lab.store, sweep), SWEEPS,
        f"One row for each of the {len(sweep.trials)} trials of `{sweep.name}`: size, tokens, FLOPs, loss; the diverged and "
        "the missing ones by name.",
        "parquet",
    )  # fmt: skip
    yield replace(rows, mappings=every, invariants=(FILES, ROWS))
    if sweep.law is not None:
        law = single(
            fit(sweep), lambda lab: fit(sweep, table_now(lab.store, sweep)), SWEEPS,
            f"The law of `{sweep.name}`: all forms, the minima of the budgets, calibrated intervals at larger ones.",
            "json",
        )  # fmt: skip
        yield replace(law, invariants=(FILES, CONVERGED), advisories=(AGREE,))
    if sweep.critical_batch is not None:
        batch = single(
            critical_batch(sweep), lambda lab: critical_batch(sweep, table_now(lab.store, sweep)), SWEEPS,
            f"The batch at which runs of `{sweep.name}` need twice the tokens, by count of tokens, with intervals.", "json",
        )  # fmt: skip
        noisy = any(run.spec.gradient_noise for run in sweep.trials)
        yield replace(batch, invariants=(FILES,), mappings=every if noisy else {})
    if sweep.repetition is not None:
        repeated = single(
            repetition(sweep), lambda lab: repetition(sweep, table_now(lab.store, sweep)), SWEEPS,
            f"How many new tokens the repeated ones of `{sweep.name}` are worth, with an interval.", "json",
        )  # fmt: skip
        yield replace(repeated, invariants=(FILES,))
    if sweep.crossed_seeds:
        node = seed_variance(sweep)
        described = f"How much the loss of one run of `{sweep.name}` varies by seed, in two terms."
        variance = single(node, lambda lab: node, SWEEPS, described, "json")
        yield replace(variance, mappings=every, invariants=(FILES,))


def forecast_templates(run: Run) -> Iterator[AssetTemplate]:
    """Yield the forecast of a run, the result that judges it, and the verdict; none for a run without a forecast."""
    of = forecast_of(run)
    if of is None:
        return
    rows = (
        (of.node(run), f"What `{of.sweep.name}` says of `{run.name}`, frozen before the run can start."),
        (outcome(of, run), f"Held-out scores of the last checkpoint of `{run.name}`, by the policy of the trials."),
        (verdict(of, run), f"Whether `{run.name}` came out as forecast: hit, low, high, or void with the reason."),
    )
    several = (*of.scores, outcome(of, run)) if of.score is not None else results(of.sweep)
    collected = {node.key: dg.AllPartitionMapping() for node in several}
    for node, description in rows:
        if of.score is not None and node is outcome(of, run):
            continue  # the run's own evaluation, which is an asset already
        template = single(node, lambda lab, node=node: node, FORECASTS, description, "json")
        yield replace(template, invariants=(FILES,), mappings=collected)


def verdicts_asset(runs: tuple[Run, ...]) -> dg.AssetsDefinition:
    """Return the page of all verdicts of the store, including those of forecasts that are no longer declared."""
    key = dg.AssetKey(list(KEY))
    verdicts = [dg.AssetKey(list(verdict(of, run).key)) for run in runs if (of := forecast_of(run)) is not None]

    @dg.asset(
        key=key,
        deps=[dg.AssetDep(each) for each in verdicts],
        group_name=FORECASTS,
        description="Every forecast of the lab and what became of it: hits, misses and void ones, newest first.",
        owners=owners(FORECASTS),
        kinds={"markdown"},
        metadata={STAGE_METADATA: BOARD.name},
        code_version=f"{BOARD.name}@{BOARD.version}",
        automation_condition=after_inputs(),
        check_specs=[dg.AssetCheckSpec(FILES.name, asset=key, description=FILES.promise, blocking=True)],
    )
    def forecast_verdicts(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        artifact, reused = build_board(lab.store, context.run.run_id)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(artifact.data_version),
            metadata=describe(Built(artifact, reused)),
            tags=identity_tags(artifact),
            check_results=[checked(FILES, artifact, context.run.run_id)],
        )

    return forecast_verdicts
