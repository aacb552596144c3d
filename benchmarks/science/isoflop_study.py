"""What the isoflop study trains: budgets, widths, rates, held-out runs, and their nodes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.science.isoflop_data import HELDOUT, TEXT, HeldOut, SourceText
from lineage.build.nodes import Node
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from science.fit_sweep import FitConfig
from science.forecasts.fit_stage import FIT
from science.forecasts.freeze import FORECAST, ForecastConfig
from science.forecasts.table import TABLE, Expected, TableConfig
from science.forecasts.verdict import VERDICT, VerdictConfig
from trainer.spec.config import RunSpec
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import AdamWConfig
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec.stage import CHECKPOINT, TRIAL, CheckpointConfig, step_partition

SEQ_LEN, VOCABULARY = 256, 512
LAYERS = {
    8: (2, 1), 12: (2, 1), 16: (2, 2), 24: (2, 2), 32: (2, 4), 48: (2, 4), 64: (3, 4), 80: (3, 5), 96: (4, 6), 128: (5, 8),
}  # fmt: skip
"""Width -> layers and heads."""
TOKENIZER_SAMPLE_BYTES = 4_000_000
TASK, METRIC = "python", "nats"


@dataclass(frozen=True)
class Study:
    """Budgets with their widths and the centre that gets more seeds; held-out budgets with a width each."""

    name: str
    budgets: tuple[tuple[float, tuple[int, ...], int], ...]
    held_out: tuple[tuple[float, int], ...]
    text_bytes: int
    batch: int = 2
    seeds: int = 3
    """Runs at each centre."""
    held_out_sequences: int = 700
    draws: int = 200
    multipliers: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)
    """Grid of learning rates, in multiples of the rule."""

    @property
    def tuned_at(self) -> tuple[tuple[float, int], ...]:
        """(budget, width) at which rates are tuned: the centres of the lowest and the highest budget."""
        return tuple((budget, centre) for budget, _, centre in (self.budgets[0], self.budgets[-1]))


REHEARSAL = Study(
    "isoflop-rehearsal",
    ((2e10, (8, 12, 16, 24, 32), 16), (4e10, (8, 12, 16, 24, 32), 16), (8e10, (12, 16, 24, 32, 48), 24)),
    ((2e11, 32),),
    text_bytes=8_000_000,
    held_out_sequences=400,
)
"""The whole command at a hundredth of the cost: it shows that the parts work, and its law is of no use."""
WHOLE = Study(
    "isoflop",
    (
        (1e12, (16, 24, 32, 48, 64, 80), 32),
        (2e12, (24, 32, 48, 64, 80, 96), 48),
        (4e12, (24, 32, 48, 64, 80, 96), 48),
        (8e12, (32, 48, 64, 80, 96, 128), 64),
    ),
    ((2e13, 80), (4e13, 96)),
    text_bytes=60_000_000,
)
LONGER = replace(WHOLE, held_out=(*WHOLE.held_out, (8e13, 128)))
"""With a target of ten times the largest budget, over an hour more for its two runs. What `WHOLE` made in the same folder is
reused, and the page has all six held-out runs."""
SMALLEST = Study(
    "isoflop-smallest",
    ((1e9, (8,), 8), (2e9, (8,), 8)),
    (),
    text_bytes=400_000,
    seeds=1,
    held_out_sequences=20,
    multipliers=(1.0,),
)
"""For the test of kill and resume: too few budgets for a law, which the command must say."""
STUDIES = {"whole": WHOLE, "longer": LONGER, "rehearsal": REHEARSAL, "smallest": SMALLEST}


def run_of(study: Study, name: str, width: int, budget: float, seed: int, multiplier: float) -> RunSpec:
    """A run of a width that takes a budget to a step. The rate falls with width and is bounded for the smallest."""
    layers, heads = LAYERS[width]
    model = LlamaConfig(VOCABULARY, width, width * 8 // 3 // 8 * 8, layers, heads, heads, SEQ_LEN)
    steps = round(budget / (model.training_flops_per_token(SEQ_LEN) * study.batch * SEQ_LEN))
    rate = multiplier * min(0.2 * math.sqrt(study.batch) / width, 0.01)
    schedule = WarmupStableDecay(rate, warmup_steps=min(200, max(1, steps // 10)), decay_frac=0.4, min_lr_ratio=0.0)
    return RunSpec(name, model, AdamWConfig(beta2=0.99), schedule, study.batch, SEQ_LEN, steps, seed)


def mixture(study: Study, held_out: bool, seed: int) -> Node:
    """The one source as a mixture; its seed is the order of the data."""
    kind = "heldout" if held_out else "training"
    sample = min(TOKENIZER_SAMPLE_BYTES, study.text_bytes)
    text = SourceText(VOCABULARY, held_out, study.text_bytes // (20 if held_out else 1), sample)
    cache = Node(("text", kind), None, TEXT, text)
    return Node(("mixture", f"{kind}-{seed}"), None, MIXTURE, MixtureConfig(TASK, (Phase(0, {TASK: 1.0}),), seed), {
        "caches": (cache,)
    })  # fmt: skip


def trial_of(study: Study, sweep: str, name: str, run: RunSpec) -> Node:
    """The result of a trial; its data order has the trial's seed."""
    place = ("sweeps", f"{study.name}{sweep}", "trial"), name
    node = Node(*place, TRIAL, CheckpointConfig(run, run.num_steps), {"mixture": mixture(study, False, run.seed)})
    return scored(study, ("sweeps", f"{study.name}{sweep}", "result"), name, "trial", node)


def scored(study: Study, key: tuple[str, ...], partition: str, role: str, run: Node) -> Node:
    inputs = {role: run, "heldout": mixture(study, True, 0)}
    return Node(key, partition, HELDOUT, HeldOut(study.held_out_sequences), inputs)


def named(budget: float, width: int, *more: str) -> str:
    return "-".join([f"c{budget:.0e}".replace("+", ""), f"d{width}", *more])


def rate_trials(study: Study) -> Iterator[tuple[tuple[float, int], float, Node]]:
    """((budget, width), multiplier, result) of the trials by which the rate is chosen; their seed is used nowhere else."""
    for budget, width in study.tuned_at:
        for multiplier in study.multipliers:
            name = named(budget, width, f"r{multiplier:g}")
            run = run_of(study, name, width, budget, 99, multiplier)
            yield (budget, width), multiplier, trial_of(study, "-rates", name, run)


def trials(study: Study, multiplier: float) -> Iterator[tuple[Expected, Node]]:
    """Every trial of the sweep with the node of its result."""
    for budget, widths, centre in study.budgets:
        for width in widths:
            for seed in range(study.seeds if width == centre else 1):
                name = named(budget, width, f"s{seed}")
                yield Expected(name, budget), trial_of(study, "", name, run_of(study, name, width, budget, seed, multiplier))


def table_and_fit(study: Study, multiplier: float) -> tuple[Node, Node]:
    """The table of all trials, and the law."""
    every = list(trials(study, multiplier))
    config = TableConfig(tuple(expected for expected, _ in every), TASK, METRIC)
    table = Node(("sweeps", study.name, "table"), None, TABLE, config, {"results": tuple(node for _, node in every)})
    return table, Node(("sweeps", study.name, "fit"), None, FIT, method(study), {"table": table})


def method(study: Study) -> FitConfig:
    return FitConfig(calibration_draws=study.draws)


def forecasts(study: Study, multiplier: float, policy: str) -> Iterator[tuple[Node, Node]]:
    """(forecast, verdict) of each held-out run, two seeds a budget. The run takes the forecast as an input."""
    table, fit = table_and_fit(study, multiplier)
    for budget, width in study.held_out:
        for seed in (0, 1):
            name = named(budget, width, f"s{seed}")
            run, data = run_of(study, f"{study.name}-{name}", width, budget, seed, multiplier), mixture(study, False, seed)
            config = ForecastConfig(run, TASK, METRIC, "nats a token", policy, method=method(study))
            forecast = Node(("forecasts", run.name), None, FORECAST, config, {"table": table, "fit": fit, "mixture": data})
            place = ("runs", run.name, "checkpoint"), step_partition(run.num_steps)
            trained = Node(*place, CHECKPOINT, CheckpointConfig(run, run.num_steps), {"mixture": data, "forecast": forecast})
            result = scored(study, ("runs", run.name, "result"), step_partition(run.num_steps), "checkpoint", trained)
            judged = {"forecast": forecast, "result": result}
            yield forecast, Node(("forecasts", run.name, "verdict"), None, VERDICT, VerdictConfig(TASK, METRIC), judged)
