"""An isoflop study as real runs: rates, trials, table, fit, forecasts frozen before their runs, verdicts, a page.

`make isoflop`, or `python -m benchmarks.science.isoflop [--study rehearsal] [ROOT]`. One worker process on each core trains.
Every step is an artifact in ROOT, so a killed study goes on where it was, and a trial goes on at its last rolling checkpoint.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.science.isoflop_page import rate_doubts, write_study_page
from benchmarks.science.isoflop_study import STUDIES, Study, forecasts, mixture, rate_trials, table_and_fit, trials
from benchmarks.science.isoflop_train import Progress, build_here, build_runs, store_of
from lineage.artifact.store import Artifact
from lineage.build.nodes import Node, resolve
from science.trials import RefusedSweepError

log = logging.getLogger("isoflop")


def trained(root: Path, nodes: Sequence[Node], workers: int, progress: Progress) -> dict[str, float | None]:
    """Train and score runs, or reuse them; the loss of each by name, None if it diverged."""
    losses = {}
    for made in build_runs(root, nodes, workers):
        name, facts = str(made.node.partition), made.artifact.manifest.extra["result"]
        losses[name] = facts["scores"][0]["value"] if facts["scores"] else None
        outcome = f"{losses[name]:.4f} nats" if facts["scores"] else f"diverged ({facts['diverged']})"
        progress.tell(name, outcome, made.seconds)
    return losses


type Rates = dict[str, dict[float, float | None]]
"""Losses by multiplier of the rate, by budget and width; None for a run that diverged."""


def tuned(root: Path, study: Study, workers: int, progress: Progress) -> tuple[float, Rates]:
    """Tune the rate at two budgets: the mean of both parabolas' lowest points in ln rate, inside the grid."""
    every = list(rate_trials(study))
    losses = trained(root, [node for _, _, node in reversed(every)], workers, progress)
    rates: Rates = {}
    for (budget, width), multiplier, node in every:
        rates.setdefault(f"{budget:.3g} FLOPs, width {width}", {})[multiplier] = losses[str(node.partition)]
    for doubt in rate_doubts(rates):
        log.warning("rate in doubt, %s", doubt)
    finite = {name: {rate: loss for rate, loss in each.items() if loss is not None} for name, each in rates.items()}
    if diverged := [name for name, each in finite.items() if not each]:
        raise ValueError(f"{study.name}: every rate diverged at {'; '.join(diverged)}; lower the grid of rates of the study")
    best = [_vertex(each) for each in finite.values()]
    return round(float(np.exp(np.mean(np.log(best)))), 2), rates


def _vertex(losses: dict[float, float]) -> float:
    """The lowest point of the parabola through the losses in ln rate, inside the grid; its best rate where it bends down."""
    if len(losses) < 3:
        return min(losses, key=lambda rate: losses[rate])
    rates = np.array(sorted(losses))
    bend, slope, _ = np.polyfit(np.log(rates), [losses[rate] for rate in rates], 2)
    if bend <= 0:
        return float(min(losses, key=lambda rate: losses[rate]))
    return float(np.clip(np.exp(-slope / (2 * bend)), rates[0], rates[-1]))


def run_study(root: Path, study: Study, workers: int) -> int:
    """Make the whole study and its page; 1 if the sweep was refused."""
    store, page = store_of(root), root / f"{study.name}.md"
    every = [node for _, node in trials(study, 1.0)]
    progress = Progress(len(list(rate_trials(study))) + len(every) + 2 * len(study.held_out))
    multiplier, rates = tuned(root, study, workers, progress)
    log.info("rate: %g times the rule", multiplier)
    of_sweep = [node for _, node in trials(study, multiplier)]
    trained(root, of_sweep[::-1], workers, progress)
    table, fit = table_and_fit(study, multiplier)
    build_here(store, table)
    try:
        build_here(store, fit)
    except RefusedSweepError as error:
        log.error("no law and no forecast: %s", error)
        write_study_page(page, store, study, multiplier, rates, [], error.faults)
        return 1
    verdicts = judged(root, study, multiplier, workers, progress)
    write_study_page(page, store, study, multiplier, rates, verdicts, ())
    return 0


def judged(root: Path, study: Study, multiplier: float, workers: int, progress: Progress) -> list[Artifact]:
    """Freeze all forecasts, then train their runs; the verdicts in the order of the forecasts."""
    store = store_of(root)
    policy = resolve(store, mixture(study, True, 0)).data_version
    chosen = list(forecasts(study, multiplier, policy))
    for forecast, _ in chosen:  # all of them before any of their runs
        facts = build_here(store, forecast).manifest.extra["forecast"]
        log.info("%s: %.4f, 90 %% %s", forecast.name, facts["point"], facts["intervals"]["0.9"])
    for made in build_runs(root, [verdict for _, verdict in reversed(chosen)], workers):
        progress.tell(made.node.name, made.artifact.manifest.extra["verdict"]["outcome"], made.seconds)
    return [resolve(store, verdict) for _, verdict in chosen]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", default=".marin/isoflop")
    parser.add_argument("--study", choices=sorted(STUDIES), default="whole")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="runs at a time (default: one on each core)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("jax").setLevel(logging.ERROR)
    log.setLevel(logging.INFO)
    root = Path(options.root).resolve()
    status = run_study(root, STUDIES[options.study], options.workers)
    log.info("the page is %s", root / f"{STUDIES[options.study].name}.md")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
