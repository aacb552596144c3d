"""An isoflop study as real runs: trials, table, fit, forecasts frozen before their runs, verdicts, a page.

`python -m benchmarks.science.isoflop ROOT [--reduced]`. Every step is an artifact in ROOT: a killed study
continues where it was.
The whole study has four budgets of 1 to 8e12 FLOPs and six sizes; the reduced one has three of 1 to 4e11 and five sizes.
"""

import argparse
import json
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.science.isoflop_data import HELDOUT, TEXT, HeldOut, SourceText
from lineage.artifact.store import Artifact, Store
from lineage.build.plan import Node, ancestors_first, build, exists, resolve, spec_of
from lineage.jobs.job import Job
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from science.fit_sweep import FitConfig
from science.forecasts.fit_stage import FIT
from science.forecasts.freeze import FORECAST, ForecastConfig
from science.forecasts.table import TABLE, Expected, TableConfig
from science.forecasts.verdict import VERDICT, VerdictConfig, write_page
from trainer.spec.config import RunSpec
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import AdamWConfig
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec.stage import CHECKPOINT, CheckpointConfig, step_partition
from trainer.spec.target import size_of
from trainer.train import train

SEQ_LEN, BATCH, VOCABULARY = 256, 2, 512
LAYERS = {
    8: (2, 1),
    12: (2, 1),
    16: (2, 2),
    24: (2, 2),
    32: (2, 4),
    48: (2, 4),
    64: (3, 4),
    80: (3, 5),
    96: (4, 6),
    128: (5, 8),
}
"""Width -> layers and heads."""
TEXT_BYTES = 40_000_000
log = logging.getLogger("isoflop")


@dataclass(frozen=True)
class Study:
    """Budgets with their sizes, the centre that gets two more seeds, and the held-out budgets with a width each."""

    name: str
    budgets: tuple[tuple[float, tuple[int, ...], int], ...]
    held_out: tuple[tuple[float, int], ...]


REDUCED = Study(
    "isoflop-reduced",
    ((1e11, (8, 12, 16, 24, 32), 16), (2e11, (8, 12, 16, 24, 32), 16), (4e11, (12, 16, 24, 32, 48), 24)),
    ((1e12, 32),),
)
WHOLE = Study(
    "isoflop",
    (
        (1e12, (16, 24, 32, 48, 64, 80), 32),
        (2e12, (24, 32, 48, 64, 80, 96), 48),
        (4e12, (24, 32, 48, 64, 80, 96), 48),
        (8e12, (32, 48, 64, 80, 96, 128), 64),
    ),
    ((2e13, 80), (4e13, 96)),
)


def run_of(name: str, width: int, budget: float, seed: int) -> RunSpec:
    """A run of a width that takes a budget to a step. The rate falls with width and is bounded for the smallest."""
    layers, heads = LAYERS[width]
    model = LlamaConfig(VOCABULARY, width, width * 8 // 3 // 8 * 8, layers, heads, heads, SEQ_LEN)
    steps = round(budget / (model.training_flops_per_token(SEQ_LEN) * BATCH * SEQ_LEN))
    rate = min(0.2 * math.sqrt(BATCH) / width, 0.01)
    schedule = WarmupStableDecay(rate, warmup_steps=min(200, steps // 10), decay_frac=0.4, min_lr_ratio=0.0)
    return RunSpec(name, model, AdamWConfig(beta2=0.99), schedule, BATCH, SEQ_LEN, steps, seed)


def mixture(held_out: bool, seed: int) -> Node:
    """The one source as a mixture; its seed is the order of the data."""
    kind = "heldout" if held_out else "training"
    cache = Node(("text", kind), None, TEXT, SourceText(VOCABULARY, held_out, TEXT_BYTES // (20 if held_out else 1)))
    config = MixtureConfig("python", (Phase(0, {"python": 1.0}),), seed)
    return Node(("mixture", f"{kind}-{seed}"), None, MIXTURE, config, {"caches": (cache,)})


def result_of(key: tuple[str, ...], partition: str, run: Node) -> Node:
    """The held-out loss of a run."""
    return Node(key, partition, HELDOUT, HeldOut(), {"checkpoint": run, "heldout": mixture(True, 0)})


def trials_of(study: Study) -> Iterator[tuple[Expected, Node]]:
    """Every trial with the node of its result."""
    for budget, widths, centre in study.budgets:
        for width in widths:
            for seed in range(3 if width == centre else 1):
                name = f"c{budget:.0e}-d{width}-s{seed}".replace("+", "")
                run = run_of(name, width, budget, seed)
                config = CheckpointConfig(run, run.num_steps)
                node = Node(("sweeps", study.name, "trial"), name, CHECKPOINT, config, {"mixture": mixture(False, seed)})
                yield Expected(name, budget), result_of(("sweeps", study.name, "result"), name, node)


def build_all(store: Store, node: Node) -> Artifact:
    """Build a node and its ancestors here, training in this process; what exists is reused."""
    for ancestor in ancestors_first([node]):
        if ancestor.stage is CHECKPOINT and not exists(store, ancestor):
            inputs = {name: resolve(store, parent) for name, parent in ancestor.inputs.items() if isinstance(parent, Node)}
            train(Job(store, spec_of(store, ancestor), dict(inputs), "isoflop", ""))
        elif ancestor.stage is not CHECKPOINT:
            build(store, ancestor)
    return resolve(store, node)


def forecasts_of(study: Study, table: Node, fit: Node, policy: str, method: FitConfig) -> Iterator[tuple[str, Node, Node]]:
    """(name, forecast, verdict) of each held-out run, two seeds a budget."""
    for budget, width in study.held_out:
        for seed in (0, 1):
            name = f"{study.name}-c{budget:.0e}-d{width}-s{seed}".replace("+", "")
            run = run_of(name, width, budget, seed)
            config = ForecastConfig(run, "python", "nats", "nats a token", policy, method=method)
            data = mixture(False, seed)
            forecast = Node(("forecasts", name), None, FORECAST, config, {"table": table, "fit": fit, "mixture": data})
            place = ("runs", name, "checkpoint"), step_partition(run.num_steps)
            trained = Node(*place, CHECKPOINT, CheckpointConfig(run, run.num_steps), {"mixture": data, "forecast": forecast})
            result = result_of(("runs", name, "result"), step_partition(run.num_steps), trained)
            judged = {"forecast": forecast, "result": result}
            yield name, forecast, Node(("forecasts", name, "verdict"), None, VERDICT, VerdictConfig("python", "nats"), judged)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("--reduced", action="store_true")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    log.setLevel(logging.INFO)
    study, store, started = REDUCED if asked.reduced else WHOLE, Store(asked.root), time.perf_counter()
    trials = list(trials_of(study))
    for number, (trial, node) in enumerate(trials, 1):
        loss = build_all(store, node).manifest.extra["scores"][0]["value"]
        seconds = time.perf_counter() - started
        log.info("%s: %.4f nats; %d of %d trials done, %.0f s", trial.name, loss, number, len(trials), seconds)
    config, method = TableConfig(tuple(trial for trial, _ in trials), "python", "nats"), FitConfig()
    table = Node(("sweeps", study.name, "table"), None, TABLE, config, {"results": tuple(node for _, node in trials)})
    fit = Node(("sweeps", study.name, "fit"), None, FIT, method, {"table": table})
    fitted = build_all(store, fit)
    log.info("fit: %s", json.dumps(fitted.manifest.extra["fit"]["minima"]))
    policy = resolve(store, mixture(True, 0)).data_version
    chosen = list(forecasts_of(study, table, fit, policy, method))
    for name, forecast, _ in chosen:
        facts = build_all(store, forecast).manifest.extra["forecast"]
        log.info("%s: %.4f, 90 %% %s, weights %s", name, facts["point"], facts["intervals"]["0.9"], facts["weights"])
    verdicts = [build_all(store, verdict) for *_, verdict in chosen]
    write_page(Path(asked.root) / "verdicts.md", verdicts)
    log.info("%s\n%s, %s", (Path(asked.root) / "verdicts.md").read_text(), fitted.file("law.png"), table.key)
    log.info("%d trials and %d held-out runs in %.0f s", len(trials), len(chosen), time.perf_counter() - started)
    sizes = {name: size_of(run_of(name, width, budget, 0)) for budget, width in study.held_out for name in [f"{budget:.0e}"]}
    log.info("held-out sizes: %s", sizes)


if __name__ == "__main__":
    main()
