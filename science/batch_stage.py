"""The critical batch of a sweep as an artifact: `batch.json`, `batch.png` and `batch.md`, a page for each count of tokens.

Where the trials record the noise of their gradients, the noise scale is a second witness beside the losses.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lineage.artifact.store import Artifact
from lineage.figures import new_figure
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.critical_batch import LEAST_HORIZONS, BatchPoint, CriticalBatch, batch_law, best_rates, fit_batches
from science.forecasts.table import read_table
from science.noise_scale import LEAST_BLOCKS
from science.noise_witness import noise_page, read_terms, record, witness
from science.trials import Trial

SPREAD = (0.2, 0.28, 0.37)
"""Published exponents of tokens lie between these: Hoffmann et al. have .28, their corrected refit .37."""


@dataclass(frozen=True)
class CriticalBatchConfig:
    """How the critical batch is fitted; part of its identity."""

    unit: str = "bits a byte"
    exponent: float = 0.28
    """Of the fall of the loss with tokens. It is declared; the page shows what others would give."""
    level: float = 0.9
    noise_from: float = field(default=0.1, metadata={"added_later": True})
    """Share of the steps that the noise scale leaves out at the start, where gradients are large and the rate is small."""
    noise_blocks: int = field(default=10, metadata={"added_later": True})
    """Blocks of steps that give the noise scale its interval."""

    def __post_init__(self) -> None:
        if not 0 < self.exponent < 1 or not 0 < self.level < 1:
            raise ValueError(f"critical batch: exponent is {self.exponent}, level is {self.level}; both are between 0 and 1")
        if not 0 <= self.noise_from < 1 or self.noise_blocks < LEAST_BLOCKS:
            raise ValueError(
                f"critical batch: noise_from is {self.noise_from}, noise_blocks is {self.noise_blocks}; the first must be at "
                f"least 0 and below 1, the second at least {LEAST_BLOCKS}"
            )


def make_batch(out: Writer, config: CriticalBatchConfig, table: Artifact, results: tuple[Artifact, ...] = ()) -> None:
    """Fit the batches of each count of tokens, and a law over three or more. `results` are of trials that record noise.

    Raises: RefusedSweepError.
    """
    trials = read_table(table)
    groups = list(_by_tokens(trials))
    horizons = [(tokens, best_rates(group)) for tokens, group in groups]
    fits = [(tokens, points, _fit(points, config.exponent, config)) for tokens, points in horizons]
    law = _law([each[2].batch for each in fits], [each[0] for each in fits], config)
    records = [_record(*each, config) for each in fits]
    if results:
        terms, how = read_terms(results), (config.noise_from, config.noise_blocks, config.level)
        for row, (_, group), (_, points, fitted) in zip(records, groups, fits, strict=True):
            row["noise"] = record(witness(points, fitted, group, terms, *how))
    facts = {"unit": config.unit, "level": config.level, "horizons": records, "law": law}
    (out.folder / "batch.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    draw(fits, config, out.folder / "batch.png")
    (out.folder / "batch.md").write_text("\n".join(_page(out.spec.name, facts)) + "\n")
    out.extra["batch"] = facts
    out.record(rows_in=len(trials), rows_out=sum(len(points) for _, points in horizons))


def _law(batches: list[float], tokens: list[float], config: CriticalBatchConfig) -> dict[str, float] | None:
    """How the critical batch grows, if there are enough counts of tokens."""
    if len(batches) < LEAST_HORIZONS:
        return None
    return asdict(batch_law(np.array(tokens), np.array(batches), config.level))


def _by_tokens(trials: Sequence[Trial]) -> Iterator[tuple[float, list[Trial]]]:
    """Trials by their count of tokens, to 2 %: a run has a whole number of steps."""
    left = sorted(trials, key=lambda trial: trial.tokens)
    while left:
        group = [trial for trial in left if trial.tokens <= 1.02 * left[0].tokens]
        yield float(np.mean([trial.tokens for trial in group])), group
        left = left[len(group) :]


def _fit(points: Sequence[BatchPoint], exponent: float, config: CriticalBatchConfig) -> CriticalBatch:
    batches, losses = (np.array([getattr(point, name) for point in points]) for name in ("batch", "loss"))
    return fit_batches(batches, losses, exponent, config.level)


def _record(tokens: float, points: Sequence[BatchPoint], fitted: CriticalBatch, config: CriticalBatchConfig) -> dict[str, Any]:
    others = {f"{exponent:g}": _fit(points, exponent, config).batch for exponent in SPREAD}
    return {"tokens": tokens, **asdict(fitted), "points": [asdict(point) for point in points], "by_exponent": others}


def draw(fits: Sequence[tuple[float, Sequence[BatchPoint], CriticalBatch]], config: CriticalBatchConfig, path: Path) -> None:
    """Losses of the best rates by batch, the fit, and the critical batch as a line."""
    figure = new_figure(6.0, 3.8)
    axes = figure.subplots()
    for tokens, points, fitted in fits:
        batches = np.array([point.batch for point in points])
        dots = axes.scatter(batches, [point.loss for point in points], s=16, label=f"{tokens:.2g} tokens")
        line = np.geomspace(batches.min(), batches.max(), 100)
        axes.plot(line, fitted.loss(line), color=dots.get_facecolor()[0], linewidth=1)
        if batches.min() < fitted.batch < batches.max():
            axes.axvline(fitted.batch, color=dots.get_facecolor()[0], linewidth=1, linestyle=":")
    axes.set_xscale("log")
    axes.set_xlabel("tokens of a batch")
    axes.set_ylabel(f"loss at the best rate, {config.unit}")
    axes.legend(fontsize=7, title="dotted: critical batch", title_fontsize=7)
    figure.savefig(path, metadata={"Software": None})


def _page(name: str, facts: dict[str, Any]) -> Iterator[str]:
    percent = round(100 * facts["level"])
    yield from (f"# {name}", "", "![Loss by batch](batch.png)", "")
    others = " | ".join(f"at exponent {exponent}" for exponent in facts["horizons"][0]["by_exponent"])
    yield f"| tokens | critical batch | {percent} % interval | reducible, {facts['unit']} | {others} |"
    yield "|---" * (4 + len(SPREAD)) + "|"
    for row in facts["horizons"]:
        low, high = ("open" if end is None else f"{end:.3g}" for end in (row["low"], row["high"]))
        values = " | ".join(f"{value:.3g}" for value in row["by_exponent"].values())
        yield f"| {row['tokens']:.3g} | {row['batch']:.3g} | {low} to {high} | {row['reducible']:.3f} | {values} |"
    yield from ("", "Batches are in tokens. At the critical batch a run needs twice the tokens of one with small batches.")
    if facts["law"] is not None:
        law = facts["law"]
        yield f"It grows as tokens^{law['exponent']:.3f} ({percent} % interval {law['low']:.3f} to {law['high']:.3f})."
    if "noise" in facts["horizons"][0]:
        yield from noise_page(facts)


CRITICAL_BATCH = Stage("science.critical_batch", "1", make_batch)
