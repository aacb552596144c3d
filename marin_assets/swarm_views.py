"""What the UI shows of a swarm: its runs, signal to noise, surrogates, the proposal and its confirmation."""

import dagster as dg

from lineage.artifact.store import Artifact
from lineage.order.chosen import WEIGHTS
from marin_assets.pages import page_link
from marin_assets.values import inline, records_table


def runs(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return how many trials and sources there are, and which trials diverged."""
    facts = artifact.manifest.extra["swarm"]
    return {
        "trials": dg.MetadataValue.int(facts["trials"]),
        "sources": dg.MetadataValue.int(facts["sources"]),
        "diverged": dg.MetadataValue.text(", ".join(facts["diverged"]) or "none"),
    }


def snr(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return signal, noise and pairs by target."""
    facts = artifact.manifest.extra["snr"]
    rows = [
        {**row, "noise": ", ".join(f"{anchor} {value:.4g}" for anchor, value in row["noise"].items())}
        for row in facts["targets"]
    ]
    table = records_table(rows, ("target", "signal", "noise", "ratio", "pairs"))
    return {"signal_to_noise": table, "pairs_are_for_a_difference_of": dg.MetadataValue.float(facts["difference"])}


def fit(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the error of each surrogate by target."""
    rows = [
        {"target": row["target"], "surrogate": name, "error": error, "spread": row["spread"], "best": str(name == row["best"])}
        for row in artifact.manifest.extra["fit"]["targets"]
        for name, error in row["errors"].items()
    ]
    return {"surrogates": records_table(rows, ("target", "surrogate", "error", "spread", "best"))}


def fit_picture(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return measured against predicted loss."""
    return {"predicted_and_measured": inline(artifact.file("fit.png").read_bytes())}


def proposal(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the promise and the weights beside those of the contenders."""
    facts, weights = artifact.manifest.extra["proposal"], artifact.manifest.extra[WEIGHTS]
    rows = [
        {"source": source, "largest": limit, **{choice: weights[choice][source] for choice in weights}}
        for source, limit in facts["limits"].items()
    ]
    return {
        "predicted_gain": dg.MetadataValue.float(facts["gain"]),
        "low": dg.MetadataValue.float(facts["low"]),
        "high": dg.MetadataValue.float(facts["high"]),
        "weights": records_table(rows, ("source", "largest", *weights)),
        "left_out_for_noise": dg.MetadataValue.text(", ".join(facts["left_out"]) or "none"),
    }


def proposal_page(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the page."""
    return {"page": page_link(artifact, "proposal.md")}


def second_round(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the mixtures of the second round with what the first says of them."""
    facts, weights = artifact.manifest.extra["round"], artifact.manifest.extra[WEIGHTS]
    rows = [{**each, **weights[each["name"]]} for each in facts["trials"]]
    return {
        "known_runs": dg.MetadataValue.int(facts["known"]),
        "targets": dg.MetadataValue.text(", ".join(facts["targets"])),
        "trials": records_table(rows, ("name", "predicted", "spread", *facts["optimum"])),
    }


def second_round_page(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the page."""
    return {"page": page_link(artifact, "round.md")}


def confirmation(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the verdict on each contender, and whether the promise held."""
    facts = artifact.manifest.extra["confirmation"]
    columns = ("contender", "verdict", "gain", "low", "high", "pairs", "smallest_visible")
    return {
        "promise_held": dg.MetadataValue.text(facts["promise_held"]),
        "verdicts": records_table([{name: row[name] for name in columns} for row in facts["verdicts"]], columns),
    }


def confirmation_page(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the page."""
    return {"page": page_link(artifact, "confirmation.md")}
