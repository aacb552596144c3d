"""What the UI shows about contamination: marks, policies and what they find, audits of checkpoints."""

import json
from collections.abc import Mapping

import dagster as dg

from datakit.contamination.leak_forms import LEAK_FORMS
from lineage.artifact.store import Artifact
from lineage.match_tiers import ITEM_STATUSES
from marin_assets.pages import page_link
from marin_assets.values import counts_table, inline, records_table

_CLEARED = ("suite", "task", "item_id", "documents")


def audit_verdict(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return verdicts, and counts that plot over steps; older stage versions recorded fewer of them."""
    audit = artifact.manifest.extra["audit"]
    counts = audit.get("counts", {})
    numbers = ("matched_before", "matched_after", "seen_in_training", "unknown", "whole_only")
    return {
        **{name: dg.MetadataValue.text(audit[name]) for name in ("verdict", "verdict_at_step") if name in audit},
        **{f"items_{name}": dg.MetadataValue.int(counts[name]) for name in numbers if name in counts},
    }


def audit_tables(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the tables and pictures of an audit for the UI."""
    audit = json.loads(artifact.files("audit.json")[0].read_text())
    counts = [{"task": task, **row} for task, row in audit["by_task"].items()]
    effects = [
        {"task": task, "group": group, "items": row["items"], "bits_per_byte": row["bits_per_byte"][0]}
        for task, scores in audit["scores"].get("by_task", {}).items()
        for group, row in scores["groups"].items()
    ]
    pictures = {path.stem: path for path in artifact.files(".png")}
    columns = (
        "task",
        "items",
        "matched_before",
        "matched_after",
        "seen_in_training",
        "matched_heldout",
        "unknown",
        "whole_only",
    )
    return {
        "items": records_table(counts, columns),
        "strongest_matches": records_table(audit["worst"], ("task", "item_id", "tier", "component", "id", "num_steps", "text")),
        "item_scores": records_table(effects, ("task", "group", "items", "bits_per_byte")),
        **{name: inline(path.read_bytes()) for name, path in pictures.items()},
        "page": page_link(artifact, "audit.html"),
        "audit": dg.MetadataValue.json({name: audit[name] for name in ("counts", "documents_by_fate", "scan", "legs")}),
    }


def marks(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return what a policy marked, and how well it finds planted items."""
    counts, proof = artifact.manifest.extra["contamination"], artifact.manifest.extra["canaries"]
    items = [{"task": task, **row} for task, row in counts["items_by_task"].items()]
    forms = [{"form": form, "recall": value} for form, value in proof["recall"].items()]
    false = [{"text": text, "marked": value} for text, value in proof["false_positives"].items()]
    return {
        "policy": dg.MetadataValue.text(counts["policy"]),
        "contaminated": dg.MetadataValue.int(counts["contaminated"]),
        "items_matched": dg.MetadataValue.int(sum(row["matched"] for row in items)),
        "items": records_table(items, ("task", *ITEM_STATUSES)),
        "documents_by_tier": counts_table(counts["documents_by_tier"], "tier", "documents"),
        "planted_items_found": records_table(forms, ("form", "recall")),
        "false_positives": records_table(false, ("text", "marked")),
        "cleared_by_templates": records_table(artifact.manifest.extra.get("templates", {}).get("most", []), _CLEARED),
    }


def proof_of_policy(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return what the policy finds of each task's items, and marks in text that holds none."""
    proof = artifact.manifest.extra["proof"]
    forms = [
        {"form": form} | {task: _recalled(row["forms"].get(form), row["items"]) for task, row in proof["recall"].items()}
        for form in LEAK_FORMS
    ]
    clean = [{"source": source, **row} for source, row in proof["clean_text"].items()]
    return {
        "recall_by_task": records_table(forms, ("form", *proof["recall"])),
        "planted_by_task": counts_table({task: row["items"] for task, row in proof["recall"].items()}, "task", "items"),
        "marked_in_clean_text": records_table(clean, ("source", "documents", "marked", "share"))
        if clean
        else dg.MetadataValue.text("not measured: the line has no clean source (recipes/contamination.py: CLEAN_SOURCES)"),
    }


def _recalled(recall: Mapping[str, float] | None, num_items: int) -> str:
    """Return a share, and the number of items if a form does not apply to every planted item."""
    if recall is None:
        return ""
    return f"{recall['found']:.2f}" + (f" of {recall['planted']:.0f}" if recall["planted"] < num_items else "")
