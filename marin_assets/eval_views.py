"""What the UI shows about evaluations: scores, perplexity gaps, the leaderboard."""

import json
from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from evals.reports.leaderboard import cells
from evals.reports.leaderboard_page import newest_steps
from evals.scoring.pass_at_k import SHOWN
from evals.scoring.plots import BITS, SHARES, pass_at_k_png, scores_png
from evals.scoring.statistics import graded_of
from lineage.artifact.store import Artifact
from marin_assets.pages import page_link
from marin_assets.values import inline, picture, records_table

SHOWN_CHARACTERS = 300
"""Characters of a generated text."""


def scores(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return every score as a number that plots over steps, and as a table with its interval and how much was graded."""
    scores = artifact.manifest.extra["scores"]
    shown: dict[str, dg.MetadataValue] = {
        f"{s['task']}/{s['metric']}": dg.MetadataValue.float(float(s["value"])) for s in scores
    }
    rows = [{"attempted": s["n"], **s} for s in scores]  # Results of older evaluators do not say how many items they attempted.
    counted = [row | {"items": graded_of(row["n"], row["attempted"])} for row in rows]
    shown["incomplete"] = dg.MetadataValue.text(", ".join(artifact.manifest.extra.get("incomplete", ())) or "none")
    return shown | {"scores": records_table(counted, ("task", "metric", "value", "low", "high", "items"))}


def trial_result(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return scores as numbers that plot over trials, and whether the trial diverged."""
    result = artifact.manifest.extra["result"]
    shown: dict[str, dg.MetadataValue] = {
        f"{s['task']}/{s['metric']}": dg.MetadataValue.float(float(s["value"])) for s in result["scores"]
    }
    return shown | {"diverged": dg.MetadataValue.text(result["diverged"] or "no")}


def scores_picture(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return bars of what can be drawn: a model's own answers may be unparsed for every item."""
    scores, curves = artifact.manifest.extra["scores"], artifact.manifest.extra.get("pass_at_k", [])
    shown: dict[str, dg.MetadataValue] = {}
    if curves:
        rows = [_pass_row(curve) for curve in curves]
        columns = ("task", "problems", "samples", *(f"pass@{k}" for k in SHOWN))
        shown["pass_at_k"] = records_table(rows, columns)
        shown["pass_at_k_picture"] = picture(lambda path: pass_at_k_png(curves, artifact.name, path))
    if not any(score["metric"] in (*BITS, *SHARES) for score in scores):
        return {**shown, "scores_picture": dg.MetadataValue.text("nothing to draw: no item was graded")}
    return {**shown, "scores_picture": picture(lambda path: scores_png(scores, artifact.name, path))}


def _pass_row(curve: Mapping[str, Any]) -> dict[str, Any]:
    """pass@k of one task with its interval, for the k that the table shows."""
    row = {name: curve[name] for name in ("task", "problems", "samples")}
    for k in SHOWN:
        numbers = [curve[name][k - 1] for name in ("values", "lows", "highs")] if k <= curve["samples"] else None
        row[f"pass@{k}"] = "" if numbers is None else "{:.3f} ({:.3f} to {:.3f})".format(*numbers)
    return row


def gap(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the gap by tag, and where to look first."""
    gap_facts = artifact.manifest.extra["gap"]
    whole, *tags = gap_facts["tags"]
    return {
        "gap_bits_per_byte": dg.MetadataValue.float(whole["gap"]),
        "first": dg.MetadataValue.text(f"{gap_facts['first']}: {whole['first']:.4f} bits per byte"),
        "second": dg.MetadataValue.text(f"{gap_facts['second']}: {whole['second']:.4f} bits per byte"),
        "by_tag": records_table(tags, ("tag", "num_documents", "num_bytes", "first", "second", "gap", "low", "high")),
        "worst_documents": records_table(gap_facts["worst"], ("tag", "id", "first", "second", "stretch", "stretch_bits")),
    }


def gap_page(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the picture of a gap and the link to its page."""
    drawn = inline(artifact.files("gap.png")[0].read_bytes())
    return {"gap_picture": drawn, "page": page_link(artifact, "gap.html")}


def export_canary(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return counts of an export check, and which special tokens are wrong."""
    facts = artifact.manifest.extra["export_canary"]
    counts = {name: dg.MetadataValue.int(facts[name]) for name in ("samples", "ended", "max_new_tokens")}
    return {**counts, "special_tokens_wrong": dg.MetadataValue.text("; ".join(facts["special_tokens_wrong"]) or "none")}


def samples(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return what the exported model wrote."""
    rows = [row | {"text": row["text"][:SHOWN_CHARACTERS]} for row in json.loads(artifact.files("samples.json")[0].read_text())]
    return {"texts": records_table(rows, ("finish", "num_tokens", "text"))}


def leaderboard(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return counts of a leaderboard, its models and its policies."""
    facts = artifact.manifest.extra["leaderboard"]
    counts = {name: dg.MetadataValue.int(facts[name]) for name in ("results", "scores", "incomplete")}
    return {**counts, **{name: dg.MetadataValue.text(", ".join(facts[name])) for name in ("models", "policies")}}


def board(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the newest step of every model, and the page."""
    rows = newest_steps(pl.read_parquet(artifact.files("leaderboard.parquet")[0]))
    shown = [cells(row) for row in rows.iter_rows(named=True)]
    page: dict[str, dg.MetadataValue] = {"page": page_link(artifact, "leaderboard.html")}
    return page | {"board": records_table(shown, tuple(shown[0]))} if shown else page
