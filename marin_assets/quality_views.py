"""What the UI shows about quality tables."""

import re

import dagster as dg

from lineage.artifact.store import Artifact
from marin_assets.pages import page_link
from marin_assets.quality_pictures import deciles_png, reliability_png, rule_sets_png
from marin_assets.values import counts_table, inline, picture, records_table


def rule_sets(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return what each published set would drop, rule by rule: the first rule of the set that a document breaks."""
    drops, documents = artifact.manifest.extra["rule_sets"], int(artifact.manifest.statistics["rows_in"])
    if not drops:
        return {"rule_sets": dg.MetadataValue.text("prose rules do not judge this domain")}
    totals = {name: sum(reasons.values()) for name, reasons in drops.items()}
    rows = [
        {"set": name, "rule": reason, "documents": count, "percent": round(100 * count / documents, 2)}
        for name, reasons in drops.items()
        for reason, count in sorted(reasons.items(), key=lambda item: -item[1])
    ]
    return {
        **{f"percent_dropped/{name}": dg.MetadataValue.float(round(100 * n / documents, 2)) for name, n in totals.items()},
        "rule_sets": records_table(rows, ("set", "rule", "documents", "percent")),
        "rules_picture": picture(lambda path: rule_sets_png(drops, documents, artifact.name, path)),
    }


def tags(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return how many documents have each tag (a language, a stated licence)."""
    ((name, counts),) = [(name, counts) for name, counts in artifact.manifest.extra["tags"].items() if name != "model"]
    if not counts:
        return {name: dg.MetadataValue.text("documents of this domain are not judged")}
    documents = sum(counts.values())
    rows = [
        {name: tag or "none stated", "documents": count, "percent": round(100 * count / documents, 2)}
        for tag, count in counts.items()
    ]
    return {name: records_table(rows, (name, "documents", "percent"))}


def semantic_duplicates(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return how many documents each cosine would remove, from which sources, and pairs to look at."""
    facts = artifact.manifest.extra["semantic_duplicates"]
    removed = [{**row, "percent": round(100 * row["documents"] / max(1, facts["documents"]), 3)} for row in facts["removed_at"]]
    return {
        "removed_at": records_table(removed, ("cosine", "documents", "percent")),
        "semantic_duplicates_by_source": counts_table(facts["removed_by_source"], "source", "documents"),
        "pairs": records_table(facts["examples"], ("removed_at", "cosine", "text", "kept_text")),
    }


def contained(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return how many documents of each source lie inside longer ones, the worst first."""
    facts = artifact.manifest.extra["containment"]
    rows = [
        {"source": name, **counts, "contained_share": round(counts["contained"] / max(1, counts["documents"]), 4)}
        for name, counts in facts["sources"].items()
    ]
    rows.sort(key=lambda row: -row["contained_share"])
    return {
        "contained": dg.MetadataValue.int(facts["contained"]),
        "contained_by_source": records_table(rows, ("source", "documents", "contained", "words", "contained_share")),
        "full_samples": dg.MetadataValue.int(facts["full_samples"]),
    }


def domain_model(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return how well a domain model does on held-out documents, what it takes for what, and its heaviest words."""
    facts = artifact.manifest.extra["domain_model"]
    numbers = ("accuracy", "mean_recall", "expected_calibration_error")
    rows = [
        {"domain": domain, "said": said, "documents": count}
        for domain, row in facts["confusion"].items()
        for said, count in row.items()
    ]
    top = [{"domain": domain, "words": ", ".join(words)} for domain, words in facts["top"].items()]
    return {
        **{name: dg.MetadataValue.float(float(facts[name])) for name in numbers},
        "examples": records_table(facts["examples"], ("source", "domain", "documents")),
        "confusion": records_table(rows, ("domain", "said", "documents")),
        "top_features": records_table(top, ("domain", "words")),
    }


def scorer(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return how well the scorer separates held-out seeds, whether its probabilities are calibrated, and its strongest
    words.
    """
    facts = artifact.manifest.extra["scorer"]
    numbers = ("auc", "accuracy", "expected_calibration_error", "expected_calibration_error_uncalibrated")
    top = [{"side": side, **row} for side in ("positive", "negative") for row in facts["top"][side][:12]]
    return {
        "backend": dg.MetadataValue.text(facts.get("backend", "hashed")),  # Version 1 had no other back-end.
        **{name: dg.MetadataValue.float(float(facts[name])) for name in numbers},
        "seeds": records_table(facts["seeds"], ("source", "label", "documents")),
        "judges": records_table(facts.get("judges", []), ("source", "name", "model", "version", "prompt")),
        "reliability": records_table(facts["reliability"], ("low", "documents", "predicted", "positive")),
        "reliability_picture": picture(lambda path: reliability_png(facts["reliability"], artifact.name, path)),
        "top_features": records_table(top, ("side", "feature", "weight", "windows")),
    }


def scores(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return deciles of a source's scores, each with the openings of a few documents."""
    deciles = artifact.manifest.extra["scores"]["deciles"]
    rows = [{**row, "opening": sample["text"]} for row in deciles for sample in row["samples"]]
    return {
        "median_score": dg.MetadataValue.float(float(deciles[len(deciles) // 2]["low"])),
        "deciles": records_table(rows, ("decile", "low", "high", "opening")),
        "deciles_picture": picture(lambda path: deciles_png(deciles, artifact.name, path)),
    }


def cutoffs(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the last document that stays, by source."""
    rows = [{"source": source, **cutoff} for source, cutoff in artifact.manifest.extra["cutoffs"].items()]
    return {"cutoffs": records_table(rows, ("source", "score", "id"))}


def card(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the card itself, its pictures, and the link to its page."""
    folder = artifact.folder()
    words = re.sub(r"!\[[^]]*\]\([^)]*\)\n*", "", (folder / "card.md").read_text())
    return {
        "card": dg.MetadataValue.md(words),
        **{f"{path.stem}_picture": inline(path.read_bytes()) for path in artifact.files(".png")},
        "page": page_link(artifact, "card.html"),
    }
