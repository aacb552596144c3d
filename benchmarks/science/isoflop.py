"""An isoflop study as real runs: rates, trials, table, fit, forecasts frozen before their runs, verdicts, a page.

`make isoflop`, or `python -m benchmarks.science.isoflop [--study rehearsal] [ROOT]`. All trials run in this process. Every step
is an artifact in ROOT, so a killed study goes on where it was, and a trial goes on at its last rolling checkpoint.
"""

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np

from benchmarks.science.isoflop_page import rate_doubts, write_study_page
from benchmarks.science.isoflop_study import STUDIES, Study, forecasts, mixture, rate_trials, table_and_fit, trials
from lineage.artifact.store import Artifact, Store
from lineage.build.plan import Node, ancestors_first, build, exists, resolve, spec_of
from lineage.jobs.job import Job
from science.trials import RefusedSweepError
from trainer.progress import LogLines
from trainer.running import Running
from trainer.signals import Stop
from trainer.trial import run_trial

ROLLING_SECONDS = 60.0
log = logging.getLogger("isoflop")


@dataclass
class Progress:
    """What is done of the runs of a study."""

    total: int
    done: int = 0
    reused: int = 0
    started: float = field(default_factory=time.perf_counter)

    def tell(self, name: str, what: str, seconds: float, *, reused: bool) -> None:
        """Log a line: done, reused, left, and how long the rest takes if it is like what was trained here."""
        self.done, self.reused = self.done + 1, self.reused + reused
        spent, trained = time.perf_counter() - self.started, self.done - self.reused
        left = f", about {spent / trained * (self.total - self.done):.0f} s left" if trained else ""
        log.info(
            "%s: %s%s; %d of %d runs done, %d of them reused, %.0f s%s",
            name, what, "" if reused else f" in {seconds:.1f} CPU s", self.done, self.total, self.reused, spent, left,
        )  # fmt: skip


def build_all(store: Store, node: Node) -> Artifact:
    """Build a node and its ancestors here, training in this process; what exists is reused."""
    for ancestor in ancestors_first([node]):
        if exists(store, ancestor):
            continue
        if ancestor.stage.job is None:
            build(store, ancestor)
            continue
        inputs = {name: resolve(store, parent) for name, parent in ancestor.inputs.items() if isinstance(parent, Node)}
        job = Job(store, spec_of(store, ancestor), dict(inputs), "isoflop", "")
        run_trial(job, Running(rolling_seconds=ROLLING_SECONDS), Stop(), lambda seconds: None, LogLines())
    return resolve(store, node)


def trained(store: Store, node: Node, progress: Progress) -> float | None:
    """Train and score a trial, or reuse it; its loss, or None if it diverged."""
    before, reused = time.process_time(), exists(store, node)
    result = build_all(store, node).manifest.extra["result"]
    loss = result["scores"][0]["value"] if result["scores"] else None
    outcome = f"{loss:.4f} nats" if loss is not None else f"diverged ({result['diverged']})"
    progress.tell(str(node.partition), outcome, time.process_time() - before, reused=reused)
    return loss


def chosen_multiplier(store: Store, study: Study, progress: Progress) -> tuple[float, dict[str, dict[float, float | None]]]:
    """Tune the rate at two budgets: the mean of both parabolas' lowest points in ln rate, inside the grid."""
    losses: dict[str, dict[float, float | None]] = {}
    for (budget, width), multiplier, node in rate_trials(study):
        losses.setdefault(f"{budget:.3g} FLOPs, width {width}", {})[multiplier] = trained(store, node, progress)
    for doubt in rate_doubts(losses):
        log.warning("rate in doubt, %s", doubt)
    finite = {name: {rate: loss for rate, loss in each.items() if loss is not None} for name, each in losses.items()}
    if diverged := [name for name, each in finite.items() if not each]:
        raise ValueError(f"{study.name}: every rate diverged at {'; '.join(diverged)}; lower the grid of rates of the study")
    best = [_vertex(each) for each in finite.values()]
    return round(float(np.exp(np.mean(np.log(best)))), 2), losses


def _vertex(losses: dict[float, float]) -> float:
    """The lowest point of the parabola through the losses in ln rate, inside the grid; its best rate where it bends down."""
    if len(losses) < 3:
        return min(losses, key=lambda rate: losses[rate])
    rates = np.array(sorted(losses))
    bend, slope, _ = np.polyfit(np.log(rates), [losses[rate] for rate in rates], 2)
    if bend <= 0:
        return float(min(losses, key=lambda rate: losses[rate]))
    return float(np.clip(np.exp(-slope / (2 * bend)), rates[0], rates[-1]))


def run_study(store: Store, study: Study, page: Path) -> int:
    """Make the whole study and its page; 1 if the sweep was refused."""
    runs = len(list(rate_trials(study))) + len(list(trials(study, 1.0)))
    progress = Progress(runs + 2 * len(study.held_out))
    multiplier, rates = chosen_multiplier(store, study, progress)
    log.info("rate: %g times the rule", multiplier)
    for _, node in trials(study, multiplier):
        trained(store, node, progress)
    table, fit = table_and_fit(study, multiplier)
    build_all(store, table)
    try:
        build_all(store, fit)
    except RefusedSweepError as error:
        log.error("no law and no forecast: %s", error)
        write_study_page(page, store, study, multiplier, rates, [], error.faults)
        return 1
    policy = resolve(store, mixture(study, True, 0)).data_version
    chosen = list(forecasts(study, multiplier, policy))
    for forecast, _ in chosen:  # all of them before any of their runs
        facts = build_all(store, forecast).manifest.extra["forecast"]
        log.info("%s: %.4f, 90 %% %s", forecast.name, facts["point"], facts["intervals"]["0.9"])
    verdicts = []
    for _, verdict in chosen:
        before, reused = time.process_time(), exists(store, verdict)
        verdicts.append(build_all(store, verdict))
        outcome = verdicts[-1].manifest.extra["verdict"]["outcome"]
        progress.tell(verdict.name, outcome, time.process_time() - before, reused=reused)
    write_study_page(page, store, study, multiplier, rates, verdicts, ())
    return 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", default=".marin/isoflop")
    parser.add_argument("--study", choices=sorted(STUDIES), default="whole")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("jax").setLevel(logging.ERROR)
    log.setLevel(logging.INFO)
    root = Path(options.root).resolve()
    compile_once(root / "compilations")
    page = root / f"{STUDIES[options.study].name}.md"
    status = run_study(Store(str(root / "store")), STUDIES[options.study], page)
    log.info("the page is %s", page)
    return status


def compile_once(folder: Path) -> None:
    """Keep compiled programs below the root, so that a resumed study does not compile its shapes again."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
