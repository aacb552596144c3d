"""The page of a fitted sweep, in Markdown: forms, minima, and what the law says of larger budgets."""

from collections.abc import Iterable, Mapping
from typing import Any


def page(title: str, facts: Mapping[str, Any]) -> str:
    """Return the page of the facts that `science.forecasts.fit_stage` records."""
    noise, unit = facts["noise"], facts["unit"]
    first = (
        f"{facts['trials']} trials up to {facts['largest_budget']:.3g} FLOPs; {facts['metric']} in {unit}. "
        f"Repeats differ by {noise['sigma']:.4g} {unit} (standard deviation, {noise['freedom']} degrees of freedom)."
    )
    return "\n".join([
        f"# {title}", "", first, "", "![isoflop curves](law.png)", "",
        "## Forms", "", *_forms(facts["forms"]), "",
        "## Minima of the budgets (a cross-check)", "", *_minima(facts["minima"]), "", _law(facts["minima_law"], unit), "",
        "## Larger budgets, at the optimum", "",
        "Intervals hold one new run with probability .9; simulated sweeps of each fitted form measured their coverage.", "",
        *_ahead(facts["ahead"]),
    ]) + "\n"  # fmt: skip


def _table(columns: tuple[str, ...], rows: Iterable[Iterable[object]]) -> list[str]:
    cells = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *cells]


def _forms(forms: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            form["name"],
            ", ".join(f"{name} {value:.4g} ± {error:.2g}" for name, (value, error) in form["parameters"].items()),
            f"{form['spread']:.3g}", f"{form['lack_of_fit_p']:.3g}", "yes" if form["converged"] else "NO",
        )
        for form in forms
    ]  # fmt: skip
    return _table(("form", "parameters around the reference", "spread", "p of lack of fit", "converged"), rows)


def _minima(minima: list[dict[str, Any]]) -> list[str]:
    rows = [
        (f"{each['budget']:.3g}", f"{each['parameters']:.4g}", f"{each['tokens']:.4g}", f"{each['loss']:.4f}")
        for each in minima
    ]
    return _table(("FLOPs", "parameters", "tokens", "loss"), rows)


def _law(law: Mapping[str, Any], unit: str) -> str:
    if "none" in law:
        return f"No law of the minima: {law['none']}."
    return (
        f"Their law: asymptote {law['asymptote']:.4g} ± {law['half_width']:.2g} {unit} (90 %), exponent {law['exponent']:.4g}; "
        f"the best size grows as C^{law['size_exponent']:.3g}."
    )


def _ahead(ahead: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            f"{each['budget']:.3g}", f"{each['parameters']:.4g}", f"{each['tokens']:.4g}",
            f"{each['point']:.4f}", f"{each['low']:.4f} to {each['high']:.4f}", f"{each['disagreement']:.4f}",
            ", ".join(f"{name} {weight:.2f}" for name, weight in each["weights"].items()),
            ", ".join(f"{name} {share:.2f}" for name, share in each["coverage"].items()),
        )
        for each in ahead
    ]  # fmt: skip
    columns = ("FLOPs", "parameters", "tokens", "point", "90 % interval", "forms disagree by", "weights", "plain coverage")
    return _table(columns, rows)
