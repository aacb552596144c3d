"""A lab with a sweep of known results: trials and results are written as a law says; everything after them is made for real."""

from dataclasses import replace
from pathlib import Path

import dagster as dg
import numpy as np
from small_runs import small_ferry, small_run

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, ancestors_first, resolve, spec_of
from lineage.build.plan import build
from lineage.config import to_jsonable
from lineage.storage.digests import identity_digest
from lineage.writing.write import writing
from marin_assets.definitions import build_defs
from recipes.forecasts import Forecast
from recipes.lab import Declarations
from recipes.promotions import Promotion
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.sweeps import RESULT_CONFIG, result, results, trial
from resources.lab import LabResource
from science.fit_sweep import FitConfig
from science.laws.calibrate import two_terms
from trainer.spec.config import RunSpec
from trainer.spec.llama import LlamaConfig
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec.target import size_of

BUDGETS = (1e8, 2e8, 4e8)
WIDTHS = (4, 8, 12, 16, 20)
SEQ_LEN, BATCH, TARGET_BATCH = 8, 1, 4
SIGMA = 0.002
METRIC = "micro_bits_per_byte"


def spec_of_size(name: str, width: int, budget: float, seed: int = 0, batch: int = BATCH) -> RunSpec:
    """A run of a width that takes a budget, to a step."""
    model = LlamaConfig(1024, width, 2 * width, 2, 1, 1, SEQ_LEN)
    steps = round(budget / (model.training_flops_per_token(SEQ_LEN) * batch * SEQ_LEN))
    schedule = WarmupStableDecay(1e-2, warmup_steps=1, decay_frac=0.0, min_lr_ratio=1.0)
    base = small_run(name).spec
    return replace(
        base,
        model=model,
        schedule=schedule,
        seq_len=SEQ_LEN,
        batch_size=batch,
        num_steps=steps,
        save_every_steps=None,
        seed=seed,
    )


def declared_sweep(name: str = "small", seeds: int = 3, seed: int = 0, **changed: object) -> Sweep:
    """Budgets x widths with repeats of the middle width."""
    named = [
        (f"c{budget:.0e}-d{width}-s{s}".replace("+0", ""), width, budget, s)
        for budget in BUDGETS
        for width in WIDTHS
        for s in range(seeds if width == WIDTHS[2] else 1)
    ]
    trials = tuple(replace(small_run(each[0]), spec=spec_of_size(*each)) for each in named)
    law = FitConfig(calibration_draws=50, seed=seed, metric=METRIC, unit="bits a byte")
    fields = {"budgets": tuple(budget for _, _, budget, _ in named), "law": law} | changed
    return Sweep(name, trials, **fields)  # type: ignore[arg-type]


def declared_target(forecast: Forecast | None, name: str = "target", seed: int = 7) -> Run:
    """The run that is forecast, at 2.5 times the largest budget."""
    return replace(
        small_run(name), spec=spec_of_size(name, WIDTHS[2], 2.5 * BUDGETS[-1], seed, TARGET_BATCH), forecast=forecast
    )


def loss_of(spec: RunSpec) -> float:
    """A law of Chinchilla's form whose optimum is the middle width at the middle budget."""
    size, middle = size_of(spec), size_of(spec_of_size("m", WIDTHS[2], BUDGETS[1]))
    return 1.5 + 0.6 * (size.parameters / middle.parameters) ** -0.35 + 1.2 * (size.tokens / middle.tokens) ** -0.35


def write_trials(store: Store, sweep: Sweep, gain: float = 0.0) -> None:
    """Build the data for real, then write every trial and its result as the law says less `gain`; each has its own noise."""
    random = np.random.default_rng(0)
    for node in ancestors_first(results(sweep)):
        if node.stage.job is None:
            build(store, node)
    policy = identity_digest(to_jsonable(RESULT_CONFIG))
    for run in sweep.trials:
        with writing(store, spec_of(store, trial(run))) as out:
            out.extra["throughput"] = {"gflops_per_second": 100.0}
        value = loss_of(run.spec) - gain + float(two_terms(random, SIGMA, (1,))[0])
        with writing(store, spec_of(store, result(run))) as out:
            score = {"task": "heldout", "metric": METRIC, "value": value}
            out.extra["result"] = {"policy": policy, "diverged": None, "scores": [score]}


def definitions(
    root: Path, *runs: Run, sweep: Sweep | None = None, others: tuple[Sweep, ...] = (), promotions: tuple[Promotion, ...] = ()
) -> dg.Definitions:
    """The lab that declares a sweep, some runs, other sweeps and promotions."""
    declared = Declarations(runs=runs, sweeps=(sweep or declared_sweep(), *others), promotions=promotions)
    return build_defs(LabResource(root=str(root), workers=1), ferry=small_ferry(), declared=declared)


def materialize(defs: dg.Definitions, *keys: str) -> dg.ExecuteInProcessResult:
    """Materialize assets in one run, as a person does in the UI."""
    wanted = {dg.AssetKey(key.split("/")) for key in keys}
    job = defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection=wanted)
    with dg.instance_for_test() as instance:
        return job.execute_in_process(instance=instance, raise_on_error=False)


def failure(made: dg.ExecuteInProcessResult) -> str:
    """What a failed run says."""
    assert not made.success
    texts = []
    for event in made.all_events:
        if event.is_step_failure:
            error = event.step_failure_data.error
            while error is not None:
                texts.append(error.message)
                error = error.cause
    return "\n".join(texts)


def store_of(root: Path) -> Store:
    return LabResource(root=str(root)).lab().store


def made(root: Path, node: Node) -> Artifact:
    return resolve(store_of(root), node)
