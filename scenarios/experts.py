"""A mixture of experts against a dense model: `make moe` compares three seeds, `make moe-study` tests the claim.

Both build the sweeps of `recipes/studies/experts.py` in the lab's store. A trial that exists is reused, and one that was killed
continues from its last rolling checkpoint.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import resolve
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.studies import experts
from recipes.sweeps import results, trial
from scenarios.evidence import Teller
from scenarios.in_workers import build_in_workers
from science.paired import best_rate, compute_for, paired
from science.trials import FLOP_TOLERANCE
from trainer.router_table import FILE as ROUTER_FILE
from trainer.router_table import Balance, balance_of, unbalanced
from trainer.spec.moe import MoeConfig

HEALTHY = 1.2
"""Largest load of a layer's busiest expert over the mean, in the last 65,536 tokens of a healthy run."""
METRIC = "micro_bits_per_byte"


@dataclass(frozen=True)
class Outcome:
    """A trial with its results."""

    run: Run
    bpb: float | None
    """Held-out bits per byte over all documents; None if the run diverged."""
    flops: float
    """Training FLOPs by the trainer's count."""
    metrics: pl.DataFrame
    router: pl.DataFrame | None
    data: str
    """Data version of the mixture that it read."""

    @property
    def arm(self) -> str:
        return self.run.name.split("-")[0]

    @property
    def seed(self) -> int:
        return self.run.spec.seed

    @property
    def balance(self) -> list[Balance]:
        """Loads of every layer at the end; empty for a dense model."""
        model = self.run.spec.model
        if self.router is None or not isinstance(model, MoeConfig):
            return []
        return balance_of(self.router, model.router.per_token)


def made(store: Store, sweep: Sweep, workers: int) -> list[Outcome]:
    """Build a sweep and its inputs in worker processes of one core each, or reuse them."""
    nodes = results(sweep)
    for _ in build_in_workers(store, nodes, workers, "moe", lambda node: node.key[0] != "sweeps"):
        pass  # `build` logs each
    return [
        outcome(run, resolve(store, trial(run)), resolve(store, each)) for run, each in zip(sweep.trials, nodes, strict=True)
    ]


def outcome(run: Run, trained: Artifact, scored: Artifact) -> Outcome:
    """Read a trial and its result."""
    record = json.loads(scored.file("result.json").read_text())
    values = [score["value"] for score in record["scores"] if score["metric"] == METRIC]
    held = {file.path for file in trained.manifest.files}
    read = lambda name, empty: pl.read_parquet(trained.file(name)) if name in held else empty  # noqa: E731
    return Outcome(
        run,
        values[0] if values else None,
        float(record["training_flops"] or 0.0),
        read("metrics.parquet", pl.DataFrame()),
        read(ROUTER_FILE, None),
        next(ref.data_version for ref in trained.spec.inputs if ref.name == "mixture"),
    )


def look(outcomes: Sequence[Outcome], teller: Teller) -> None:
    """Report three seeds, without a claim about which model is better."""
    teller.act("Dense and mixture of experts, three seeds")
    same_data(outcomes, teller)
    equal_flops(outcomes, teller)
    balanced_experts(outcomes, teller)
    base, variant = (scores(outcomes, arm) for arm in ("dense", "moe"))
    for name, losses in (("dense", base), ("moe", variant)):
        shown = ", ".join(f"seed {seed} {value:.4f}" for seed, value in losses.items())
        teller.say("scores", f"held-out bits per byte of {name}", shown)
    shown = ", ".join(f"seed {seed} {variant[seed] - base[seed]:+.4f}" for seed in base if seed in variant)
    teller.say("scores", "mixture of experts less dense, by seed (three seeds and untuned rates: no claim)", shown)


def study(train: Callable[[Sweep], list[Outcome]], teller: Teller) -> list[Outcome]:
    """Tune the rates, and test the claim at the tuned ones. If a grid has its best rate at an edge, no pair is trained."""
    rates = train(experts.moe_rates())
    if not tuned_rates(rates, teller):
        return rates
    pairs, longer = train(experts.moe_pairs()), train(experts.moe_longer())
    compare(pairs, longer, teller)
    return [*pairs, *rates, *longer]


def compare(pairs: Sequence[Outcome], longer: Sequence[Outcome], teller: Teller) -> None:
    """Test the claim."""
    teller.act("Paired seeds")
    same_data([*pairs, *longer], teller)
    equal_flops(pairs, teller)
    balanced_experts(pairs, teller)
    base, variant, wide = (scores(pairs, arm) for arm in ("dense", "moe", "wide"))
    seeds = sorted(base.keys() & variant.keys())
    difference = paired([base[seed] for seed in seeds], [variant[seed] for seed in seeds])
    shown = f"{difference.mean:+.4f}, 95 % interval {difference.low:+.4f} to {difference.high:+.4f}, {difference.pairs} pairs"
    claim = "the interval of mixture of experts less dense, in held-out bits per byte, lies below 0"
    teller.say("pairs", claim, shown, difference.high < 0)
    teller.say("pairs", "effective speed-up", speed_up(pairs, longer, difference.mean))
    seeds = sorted(wide.keys() & variant.keys())
    if len(seeds) > 1:
        difference = paired([wide[seed] for seed in seeds], [variant[seed] for seed in seeds])
        shown = (
            f"{difference.mean:+.4f}, 95 % interval {difference.low:+.4f} to {difference.high:+.4f}, {difference.pairs} pairs"
        )
        teller.say("pairs", "mixture of experts less the dense model of equal total parameters", shown)


def tuned_rates(rates: Sequence[Outcome], teller: Teller) -> bool:
    """Whether the best rate of each grid is its middle, which all other runs use."""
    teller.act("Three rates of each, the same tuning budget")
    tuned = True
    for arm in dict.fromkeys(each.arm for each in rates):
        losses = {peak(each): each.bpb for each in rates if each.arm == arm}
        shown = ", ".join(f"{rate:g}: {'diverged' if bpb is None else f'{bpb:.4f}'}" for rate, bpb in sorted(losses.items()))
        try:
            best, why = best_rate(losses), ""
        except ValueError as error:
            best, why = None, f"\n{error}"
        middle = sorted(losses)[len(losses) // 2]
        teller.say("rates", f"the best rate of {arm} is inside its grid, {middle:g}", shown + why, best == middle)
        tuned &= best == middle
    return tuned


def speed_up(pairs: Sequence[Outcome], longer: Sequence[Outcome], difference: float) -> str:
    """FLOPs that the dense model needs for the mixture's mean loss, over those that the mixture took."""
    base = scores(pairs, "dense")
    own = next(each.flops for each in pairs if each.arm == "dense")
    budgets: dict[float, list[float]] = {}
    for each in longer:
        if each.bpb is not None:  # by the same seeds, so that the seed has no effect on the comparison
            budgets.setdefault(each.flops, []).append(each.bpb - base[each.seed])
    flops = [own, *sorted(budgets)]
    gains = [0.0, *(sum(budgets[each]) / len(budgets[each]) for each in sorted(budgets))]
    curve = ", ".join(f"{flop / own:.2f} x FLOPs {gain:+.4f}" for flop, gain in zip(flops, gains, strict=True))
    needed = compute_for(difference, flops, gains)
    if needed is None:
        return f"the difference {difference:+.4f} lies outside the measured curve of the dense model ({curve})"
    return f"{needed / own:.2f} ({curve})"


def scores(outcomes: Sequence[Outcome], arm: str) -> dict[int, float]:
    """Bits per byte by seed of the runs of an arm that did not diverge."""
    return {each.seed: each.bpb for each in outcomes if each.arm == arm and each.bpb is not None}


def peak(each: Outcome) -> float:
    return float(each.run.spec.schedule.peak_learning_rate)


def same_data(outcomes: Sequence[Outcome], teller: Teller) -> None:
    mixtures = sorted({each.data for each in outcomes})
    teller.say("data", "all runs read one mixture in one order", ", ".join(mixtures), len(mixtures) == 1)


def equal_flops(outcomes: Sequence[Outcome], teller: Teller) -> None:
    flops: Mapping[str, float] = {each.arm: each.flops for each in outcomes if each.bpb is not None}
    apart = flops["moe"] / flops["dense"] - 1
    shown = ", ".join(f"{arm} {value:.4g}" for arm, value in flops.items())
    claim = "training FLOPs of mixture of experts and dense are within 1 %"
    teller.say("flops", claim, f"{shown}: {100 * apart:+.2f} %", abs(apart) <= FLOP_TOLERANCE)


def balanced_experts(outcomes: Sequence[Outcome], teller: Teller) -> None:
    """The limit for healthy runs, and the check `router_balanced` of checkpoints."""
    layers = [(each.run.name, layer) for each in outcomes for layer in each.balance]
    shown = "\n".join(
        f"{name}, layer {layer.layer}: busiest {layer.max_over_mean:.3f}, idlest {layer.least_over_mean:.3f} of the mean"
        for name, layer in layers
    )
    worst = max((layer.max_over_mean for _, layer in layers), default=0.0)
    claim = f"no expert has more than {HEALTHY} of the mean load over the last 65,536 tokens"
    teller.say("balance", claim, shown, 0 < worst <= HEALTHY)
    teller.say("balance", "no expert is dead", "", not unbalanced([layer for _, layer in layers]))
