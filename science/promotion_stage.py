"""The two gates as an artifact: `promotion.json`, `promotion.png` and `promotion.md`, a page with the verdict.

The law comes from a fit of the baseline's sweep: a line through the minima of its budgets with the asymptote that the promotion
declares. The noise of a run comes from the repeats of the same sweep.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.figures import new_figure
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.forecasts.outcome import Outcome, outcome_of
from science.gates import GateConfig, Gates, GateVerdict, Measured, Pair, SpeedUp, judge
from science.laws.power import PowerLaw, fit_pinned
from trainer.spec.stage import CheckpointConfig
from trainer.spec.target import size_of

PAGE = "promotion.md"


@dataclass(frozen=True)
class PromotionConfig:
    """What is compared, and by which gates; part of the verdict's identity."""

    sizes: tuple[str, ...]
    """Name of each pair, in the order of `baselines` and `variants`."""
    task: str
    metric: str
    unit: str
    gates: Gates

    def __post_init__(self) -> None:
        if not self.sizes or len(set(self.sizes)) < len(self.sizes):
            raise ValueError(f"promotion: sizes are {self.sizes}; give at least one, each once")
        if strange := sorted({*self.gates.first, *self.gates.second} - set(self.sizes)):
            raise ValueError(f"promotion: a gate names {', '.join(strange)}; the pairs are {', '.join(self.sizes)}")


class RefusedPromotionError(ValueError):
    """Baseline and variant cannot be compared; the message says why."""


def promote(
    out: Writer,
    config: PromotionConfig,
    fit: Artifact,
    baselines: tuple[Artifact, ...],
    variants: tuple[Artifact, ...],
) -> None:
    """Judge the variant. A variant that diverged at a size of a gate is benched.

    Raises: RefusedPromotionError for results of several policies, a fit of another metric or policy, or a diverged baseline.
    """
    facts = fit.manifest.extra["fit"]
    pairs = [(outcome_of(one), outcome_of(other)) for one, other in zip(baselines, variants, strict=True)]
    if odd := list(_incomparable(config, facts, pairs)):
        raise RefusedPromotionError(f"{out.spec.name}: {'; '.join(odd)}")
    law, noise = _law(config, facts), facts["noise"]
    gates = config.gates
    how = GateConfig(f"{config.task} {config.metric}, {config.unit}", gates, noise["sigma"], noise["freedom"])
    diverged = [size for size, (_, variant) in zip(config.sizes, pairs, strict=True) if variant.diverged is not None]
    measured = [
        Pair(size, _measured(one, config), _measured(other, config))
        for size, (one, other) in zip(config.sizes, pairs, strict=True)
        if size not in diverged
    ]
    verdict = judge(measured, law, how)
    if in_gates := [size for size in diverged if size in {*gates.first, *gates.second}]:
        verdict = GateVerdict("bench", f"the variant diverged at {', '.join(in_gates)}", verdict.speed_ups)
    recorded = _record(verdict, measured, law)
    (out.folder / "promotion.json").write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    draw(verdict.speed_ups, out.folder / "promotion.png")
    (out.folder / PAGE).write_text("\n".join(_page(out.spec.name, config, verdict, law)) + "\n")
    out.extra["promotion"] = recorded
    out.facts["verdict"] = verdict.verdict
    out.record(rows_in=len(pairs), rows_out=len(measured), drops={"diverged": len(diverged)} if diverged else {})


def _incomparable(config: PromotionConfig, fit: dict[str, Any], pairs: Sequence[tuple[Outcome, Outcome]]) -> Iterator[str]:
    policies = sorted({outcome.policy for pair in pairs for outcome in pair} | {str(fit["policy"])})
    if len(policies) > 1:
        yield f"results and law have {len(policies)} policies ({', '.join(policies)}); score all by one"
    if fit["unit"] != config.unit:
        yield f"the law is in {fit['unit']}, the promotion in {config.unit}; fit the sweep to the same metric"
    for size, (baseline, _) in zip(config.sizes, pairs, strict=True):
        if baseline.diverged is not None:
            yield f"the baseline diverged at {size}: {baseline.diverged}"


def _law(config: PromotionConfig, fit: dict[str, Any]) -> PowerLaw:
    minima = [valley for valley in fit["minima"] if valley["loss"] is not None]
    budgets, losses = (np.array([valley[name] for valley in minima], float) for name in ("budget", "loss"))
    return fit_pinned(budgets, losses, config.gates.asymptote)


def _measured(outcome: Outcome, config: PromotionConfig) -> Measured:
    """FLOPs by the trainer's count, and its counted FLOPs per second in training."""
    run = from_jsonable(CheckpointConfig, outcome.checkpoint.spec.config).run
    throughput = outcome.checkpoint.manifest.extra["throughput"]
    return Measured(outcome.score(config.task, config.metric), size_of(run).flops, 1e9 * throughput["gflops_per_second"])


def _record(verdict: GateVerdict, pairs: Sequence[Pair], law: PowerLaw) -> dict[str, Any]:
    return {
        "verdict": verdict.verdict,
        "why": verdict.why,
        "speed_ups": [asdict(each) for each in verdict.speed_ups],
        "projections": [asdict(each) for each in verdict.projections],
        "pairs": [asdict(pair) for pair in pairs],
        "law": {"asymptote": law.asymptote, "exponent": law.exponent, "spread": law.spread, "freedom": law.freedom},
    }


def draw(speed_ups: Sequence[SpeedUp], path: Path) -> None:
    """A dot and its interval for each size, and a line at 1."""
    figure = new_figure(6.0, 3.5)
    axes = figure.subplots()
    places = np.arange(len(speed_ups))
    factors = np.array([each.factor for each in speed_ups])
    spread = np.array([[each.factor - each.low, each.high - each.factor] for each in speed_ups]).reshape(-1, 2).T
    axes.errorbar(places, factors, yerr=spread, fmt="o", capsize=4)
    axes.axhline(1.0, color="0.5", linewidth=1)
    axes.set_xticks(places, [each.size for each in speed_ups])
    axes.set_ylabel("effective speed-up (1: none)")
    figure.savefig(path, metadata={"Software": None})


def _page(name: str, config: PromotionConfig, verdict: GateVerdict, law: PowerLaw) -> Iterator[str]:
    percent = round(100 * config.gates.level)
    yield from (f"# {name}: {verdict.verdict}", "", verdict.why or "Both gates are passed.", "")
    yield from ("![Speed-up and interval of each size](promotion.png)", "")
    yield from (f"| size | gate | speed-up | {percent} % interval | smallest difference that would show |", "|---" * 5 + "|")
    for each in verdict.speed_ups:
        gate = "1" if each.size in config.gates.first else "2" if each.size in config.gates.second else "none"
        interval = f"{each.low:.3f} to {each.high:.3f}"
        yield f"| {each.size} | {gate} | {each.factor:.3f} | {interval} | {each.smallest_visible:.4f} {config.unit} |"
    if verdict.projections:
        columns = f"variant less baseline, {config.unit} | {percent} % interval | smallest difference that would show"
        yield from ("", f"| FLOPs | {columns} |", "|---" * 4 + "|")
    for projection in verdict.projections:
        interval = f"{projection.low:+.4f} to {projection.high:+.4f}"
        visible = f"{projection.smallest_visible:.4f} {config.unit}"
        yield f"| {projection.budget:.2g} | {projection.difference:+.4f} | {interval} | {visible} |"
    yield from (
        "",
        f"The law of the baseline: asymptote {law.asymptote} {config.unit} (declared), exponent {law.exponent:.4f}.",
    )
    yield "The interval holds the law's lack of fit and the noise of both runs between seeds. The noise of speed is not in it."


PROMOTION = Stage("science.promotion", "2", promote)
"""2: the smallest difference that a projection would show."""
