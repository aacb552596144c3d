"""What the UI shows of sweeps, laws, forecasts and verdicts."""

import dagster as dg

from lineage.artifact.store import Artifact
from marin_assets.values import inline, records_table

BIGGEST_BUDGETS = ("budget", "parameters", "tokens", "point", "low", "high", "disagreement")


def table(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """How many trials there are, and which diverged or are missing."""
    found = artifact.manifest.extra["sweep"]
    shown = {name: dg.MetadataValue.text(", ".join(found[name]) or "none") for name in ("diverged", "missing")}
    return {"trials": dg.MetadataValue.int(found["trials"]), **shown}


def law(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Disagreement of the forms first, then noise, forms, minima and what lies ahead."""
    found = artifact.manifest.extra["fit"]
    ahead = found["ahead"]
    forms = [
        {
            "form": form["name"],
            "spread": form["spread"],
            "lack_of_fit_p": form["lack_of_fit_p"],
            "converged": str(form["converged"]),
            "parameters": ", ".join(f"{name} {value:.4g} ± {error:.2g}" for name, (value, error) in form["parameters"].items()),
        }
        for form in found["forms"]
    ]
    return {
        "forms_disagree_by": dg.MetadataValue.float(max((each["disagreement"] for each in ahead), default=0.0)),
        "noise_of_a_run": dg.MetadataValue.float(found["noise"]["sigma"]),
        "largest_budget": dg.MetadataValue.float(found["largest_budget"]),
        "ahead": records_table(ahead, BIGGEST_BUDGETS),
        "forms": records_table(forms, ("form", "spread", "lack_of_fit_p", "converged", "parameters")),
        "minima": records_table(found["minima"], ("budget", "parameters", "tokens", "loss")),
    }


def law_picture(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """The isoflop curves, and the page."""
    page = dg.MetadataValue.path(str(artifact.file("law.md")))
    return {"isoflop_curves": inline(artifact.file("law.png").read_bytes()), "page": page}


def forecast(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """The point and intervals, and what they are bound to."""
    found = artifact.manifest.extra["forecast"]
    rows = [{"level": level, "low": low, "high": high} for level, (low, high) in found["intervals"].items()]
    metric = found["metric"]
    return {
        "point": dg.MetadataValue.float(found["point"]),
        "intervals": records_table(rows, ("level", "low", "high")),
        "metric": dg.MetadataValue.text(f"{metric['task']} {metric['name']}, {metric['unit']}"),
        "target": dg.MetadataValue.text(f"{found['target']['name']} ({found['target']['run']})"),
        "times_the_largest_budget": dg.MetadataValue.float(found["ratio"]),
        "not_provable": dg.MetadataValue.text(found["not_provable"]),
    }


def verdict(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """The outcome, and the error in three units."""
    found = artifact.manifest.extra["verdict"]
    numbers = {
        name: dg.MetadataValue.float(found[name])
        for name in ("measured", "error", "sigmas", "half_widths")
        if found[name] is not None
    }
    return {"outcome": dg.MetadataValue.text(found["outcome"]), "why": dg.MetadataValue.text(found["why"] or "-"), **numbers}


def verdicts(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """How many forecasts were hit, missed and void, and the page."""
    found = artifact.manifest.extra["verdicts"]
    counts = {name: dg.MetadataValue.int(count) for name, count in sorted(found["outcomes"].items())}
    columns = ("verdict", "outcome", "measured", "error", "sigmas", "half_widths", "why")
    rows = [{name: "-" if row[name] is None else row[name] for name in columns} for row in found["rows"]]
    return {**counts, "verdicts": records_table([{k: str(v) for k, v in row.items()} for row in rows], columns)}


def verdicts_page(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    return {"page": dg.MetadataValue.md(artifact.file("verdicts.md").read_text())}
