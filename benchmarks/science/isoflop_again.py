"""The joint test of a finished isoflop study, from the numbers on its page: `python -m benchmarks.science.isoflop_again PAGE`.

The page has every trial's size, tokens and loss to four decimals, and the held-out runs. The law is fitted again and its
forecasts are made again with the study's own draws, so they differ from the frozen ones by rounding.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.science.isoflop_page import together
from benchmarks.science.isoflop_study import WHOLE, Study, method, run_of
from science.fit_sweep import Forecasted, fit_sweep, forecast_all
from science.trials import Trial
from trainer.spec.target import Size, size_of

TRIAL = re.compile(r"c(?P<budget>[0-9.e]+)-d(?P<width>\d+)-s(?P<seed>\d+)")


def rows_of(page: str, columns: int) -> Iterator[list[str]]:
    """Rows of tables with so many columns whose first cell is the name of a run."""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == columns and TRIAL.search(cells[0]):
            yield cells


def read_trials(page: str) -> list[Trial]:
    """The trials of the study, one row each."""
    return [_trial(*cells) for cells in rows_of(page, 6) if TRIAL.fullmatch(cells[0])]


def _trial(name: str, parameters: str, tokens: str, flops: str, epochs: str, loss: str) -> Trial:
    found = TRIAL.fullmatch(name)
    assert found is not None
    diverged = loss == "diverged"
    return Trial(
        name, float(found["budget"]), float(flops), int(found["width"]), int(parameters.replace(",", "")),
        float(tokens.replace(",", "")), None if diverged else float(loss), 0.0, 0, int(found["seed"]), "page", "page",
        epochs=float(epochs), status="diverged" if diverged else "done",
    )  # fmt: skip


def read_held_out(study: Study, page: str) -> list[tuple[str, Size, float]]:
    """(name, size, measured loss) of every held-out run that has a loss."""
    found = []
    for cells in [*rows_of(page, 6), *rows_of(page, 7)]:
        named = TRIAL.search(cells[0])
        if named is not None and cells[0].startswith(f"{study.name}-c"):
            run = run_of(study, cells[0], int(named["width"]), float(named["budget"]), int(named["seed"]), 1.0)
            found.append((cells[0], size_of(run), float(cells[-2])))
    return found


def frozen(name: str, size: Size, forecast: Forecasted) -> dict[str, Any]:
    """What the joint test reads of a forecast, as `science.forecasts.freeze` writes it."""
    return {
        "target": {"name": name, "parameters": size.parameters, "tokens": size.tokens, "flops": size.flops},
        "intervals": {f"{level:g}": list(interval) for level, interval in forecast.intervals.items()},
        "coverage": {form: {"stretch": checked.stretch} for form, checked in forecast.coverage.items()},
    }


def main(arguments: Sequence[str]) -> None:
    page = Path(arguments[0]).read_text()
    fitted, runs = fit_sweep(read_trials(page), method(WHOLE)), read_held_out(WHOLE, page)
    forecasts = forecast_all(fitted, [(size.parameters, size.tokens) for _, size, _ in runs])
    made = [frozen(name, size, each) for (name, size, _), each in zip(runs, forecasts, strict=True)]
    for (name, _, loss), each in zip(runs, forecasts, strict=True):
        print(
            f"{name}: {each.point:.4f}, 90 % {each.intervals[0.9][0]:.4f} to {each.intervals[0.9][1]:.4f}, measured {loss:.4f}"
        )
    print("\n".join(together(fitted, made, [loss for _, _, loss in runs])))


if __name__ == "__main__":
    main(sys.argv[1:])
