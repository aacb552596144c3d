"""What the UI shows of sweeps, laws, forecasts and verdicts."""

import dagster as dg

from lineage.artifact.store import Artifact
from marin_assets.pages import page_link
from marin_assets.values import inline, records_table

BIGGEST_BUDGETS = ("budget", "parameters", "tokens", "point", "low", "high", "disagreement")


def table(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return how many trials there are, and which diverged or are missing."""
    sweep = artifact.manifest.extra["sweep"]
    shown = {name: dg.MetadataValue.text(", ".join(sweep[name]) or "none") for name in ("diverged", "missing")}
    return {"trials": dg.MetadataValue.int(sweep["trials"]), **shown}


def law(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the disagreement of the forms first, then noise, forms, minima and predictions at larger budgets."""
    fit = artifact.manifest.extra["fit"]
    ahead = fit["ahead"]
    forms = [
        {
            "form": form["name"],
            "spread": form["spread"],
            "lack_of_fit_p": form["lack_of_fit_p"],
            "converged": str(form["converged"]),
            "parameters": ", ".join(f"{name} {value:.4g} ± {error:.2g}" for name, (value, error) in form["parameters"].items()),
        }
        for form in fit["forms"]
    ]
    return {
        "forms_disagree_by": dg.MetadataValue.float(max((each["disagreement"] for each in ahead), default=0.0)),
        "noise_of_a_run": dg.MetadataValue.float(fit["noise"]["sigma"]),
        "largest_budget": dg.MetadataValue.float(fit["largest_budget"]),
        "ahead": records_table(ahead, BIGGEST_BUDGETS),
        "forms": records_table(forms, ("form", "spread", "lack_of_fit_p", "converged", "parameters")),
        "minima": records_table(fit["minima"], ("budget", "parameters", "tokens", "loss")),
    }


def law_picture(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the isoflop curves, and the page."""
    page = page_link(artifact, "law.md")
    return {"isoflop_curves": inline(artifact.file("law.png").read_bytes()), "page": page}


def proposed_round(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return what was known before a round, and the trials that it proposes."""
    facts = artifact.manifest.extra["round"]
    rows = [{"trial": each["name"]} | each["values"] for each in facts["trials"]]
    return {
        "proposed_by": dg.MetadataValue.text(facts["by"]),
        "known_trials": dg.MetadataValue.int(facts["known"]),
        "diverged": dg.MetadataValue.text(", ".join(facts["infeasible"]) or "none"),
        "lowest_loss": dg.MetadataValue.float(facts["best"]["loss"]),
        "lowest_trial": dg.MetadataValue.text(facts["best"]["name"]),
        "trials": records_table(rows, tuple(rows[0])),
    }


def round_page(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return losses with the proposed settings, and the page."""
    picture = inline(artifact.file("round.png").read_bytes())
    return {"measured_and_proposed": picture, "page": page_link(artifact, "round.md")}


def promotion(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the verdict with its reason, speed-ups by size and projections."""
    facts = artifact.manifest.extra["promotion"]
    return {
        "verdict": dg.MetadataValue.text(facts["verdict"]),
        "why": dg.MetadataValue.text(facts["why"] or "both gates are passed"),
        "speed_ups": records_table(facts["speed_ups"], ("size", "factor", "low", "high", "smallest_visible")),
        "projections": records_table(facts["projections"], ("budget", "difference", "low", "high", "smallest_visible")),
    }


def promotion_page(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return speed-ups with their intervals, and the page."""
    picture = inline(artifact.file("promotion.png").read_bytes())
    return {"speed_up_by_size": picture, "page": page_link(artifact, "promotion.md")}


def correlations(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return how many pairs are shown, what could not show, and every pair."""
    facts = artifact.manifest.extra["correlations"]
    return {
        "shown": dg.MetadataValue.text(f"{len(facts['shown'])} of {len(facts['pairs'])} pairs"),
        "smallest_rho_that_would_show": dg.MetadataValue.float(facts["smallest_visible"]),
        "pairs": records_table(facts["pairs"], ("pool", "score", "rho", "p", "corrected")),
    }


def correlations_page(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the table of colours, and the page."""
    picture = inline(artifact.file("correlations.png").read_bytes())
    return {"rank_correlations": picture, "page": page_link(artifact, "correlations.md")}


def seed_variance(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the standard deviation of one run by budget, in its terms."""
    rows = [
        {term: row[term] ** 0.5 for term in ("initialization", "data_order", "rest")}
        | {"flops": row["flops"], "sigma": row["sigma"]}
        for row in artifact.manifest.extra["seeds"]["budgets"]
    ]
    return {"standard_deviations": records_table(rows, ("flops", "sigma", "initialization", "data_order", "rest"))}


def seed_page(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the terms by budget, and the page."""
    picture = inline(artifact.file("seeds.png").read_bytes())
    return {"terms_by_budget": picture, "page": page_link(artifact, "seeds.md")}


def forecast(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the point and intervals, and what the forecast is bound to."""
    facts = artifact.manifest.extra["forecast"]
    rows = [{"level": level, "low": low, "high": high} for level, (low, high) in facts["intervals"].items()]
    metric = facts["metric"]
    steps = {}
    if "steps" in facts:
        loss, curve = facts["steps"]["loss"], facts["steps"]["curve"]
        low, high = curve["losses"]
        of_score = f"{len(curve['checkpoints'])} checkpoints with losses of {low:.4g} to {high:.4g}"
        steps = {
            "first_step": dg.MetadataValue.text(f"{loss['task']} {loss['name']}: {loss['point']:.5g} {loss['unit']}"),
            "second_step": dg.MetadataValue.text(f"{of_score}, scatter {curve['spread']:.3g} {metric['unit']}"),
        }
    return steps | {
        "point": dg.MetadataValue.float(facts["point"]),
        "intervals": records_table(rows, ("level", "low", "high")),
        "metric": dg.MetadataValue.text(f"{metric['task']} {metric['name']}, {metric['unit']}"),
        "target": dg.MetadataValue.text(f"{facts['target']['name']} ({facts['target']['run']})"),
        "times_the_largest_budget": dg.MetadataValue.float(facts["ratio"]),
        "not_provable": dg.MetadataValue.text(facts["not_provable"]),
    }


def verdict(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the outcome, the error in three units, and the smallest error that is a miss."""
    facts = artifact.manifest.extra["verdict"]
    numbers = {
        name: dg.MetadataValue.float(facts[name])
        for name in ("measured", "error", "sigmas", "half_widths", "smallest_visible")
        if facts[name] is not None
    }
    return {"outcome": dg.MetadataValue.text(facts["outcome"]), "why": dg.MetadataValue.text(facts["why"] or "-"), **numbers}


def verdicts(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return how many forecasts were hit, missed and void, and the page."""
    facts = artifact.manifest.extra["verdicts"]
    counts = {name: dg.MetadataValue.int(count) for name, count in sorted(facts["outcomes"].items())}
    columns = ("verdict", "outcome", "measured", "error", "sigmas", "half_widths", "smallest_visible", "why")
    rows = [{name: "-" if row[name] is None else row[name] for name in columns} for row in facts["rows"]]
    return {**counts, "verdicts": records_table([{k: str(v) for k, v in row.items()} for row in rows], columns)}


def verdicts_page(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the page of verdicts."""
    return {"page": dg.MetadataValue.md(artifact.file("verdicts.md").read_text())}
