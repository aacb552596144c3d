"""What the UI shows of fits over batches and over repeated data, and of runs that are compared in pairs."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from lineage.artifact.store import Artifact
from marin_assets.pages import page_link
from marin_assets.values import inline, records_table


def critical_batch(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the critical batch by count of tokens, and the exponent of its growth if there are enough."""
    facts = artifact.manifest.extra["batch"]
    rows = [
        {"tokens": row["tokens"], "batch": row["batch"], "low": _end(row["low"]), "high": _end(row["high"])}
        | {"spread": row["spread"]}
        for row in facts["horizons"]
    ]
    law = facts["law"]
    shown = {"critical_batches": records_table(rows, ("tokens", "batch", "low", "high", "spread"))}
    if scales := [_noise(row) for row in facts["horizons"] if row.get("noise") is not None]:
        shown["noise_scales"] = records_table(scales, ("tokens", "noise_scale", "low", "high", "of_batch", "overlaps"))
    return shown if law is None else shown | {"grows_as_tokens_to_the": dg.MetadataValue.float(law["exponent"])}


def _noise(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the noise scale nearest to the critical batch of a count of tokens, and whether it agrees."""
    at, overlap_words = row["noise"]["at"], {True: "yes", False: "no", None: "no interval"}
    ends = {"low": _end(at["low"]), "high": _end(at["high"])}
    scale = {"tokens": row["tokens"], "noise_scale": _end(at["tokens"])}
    return scale | ends | {"of_batch": at["batch"], "overlaps": overlap_words[row["noise"]["overlap"]]}


def critical_batch_page(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return losses by batch, and the page."""
    return {"loss_by_batch": inline(artifact.file("batch.png").read_bytes()), "page": page_link(artifact, "batch.md")}


def repetition(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return R* with its interval, the test of the law, and what epochs are worth."""
    facts = artifact.manifest.extra["repetition"]
    worth = [{"epochs": int(epochs), "new_epochs": value} for epochs, value in facts["worth"].items()]
    return {
        "constant": dg.MetadataValue.float(facts["constant"]),
        "low": dg.MetadataValue.text(_end(facts["low"])),
        "high": dg.MetadataValue.text(_end(facts["high"])),
        "p_of_the_law": dg.MetadataValue.float(facts["p"]),
        "worth": records_table(worth, ("epochs", "new_epochs")),
    }


def repetition_page(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return losses by epochs, and the page."""
    picture = inline(artifact.file("repetition.png").read_bytes())
    return {"loss_by_epochs": picture, "page": page_link(artifact, "repetition.md")}


def annealing(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the verdict on each mix, with the smallest difference that would have shown."""
    facts = artifact.manifest.extra["annealing"]
    return {"start": dg.MetadataValue.text(facts["start"])} | _verdicts(facts, "mix")


def proxy(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the verdict on each corpus, with the smallest difference that would have shown, and what each run read."""
    facts = artifact.manifest.extra["proxy"]
    return _verdicts(facts, "corpus") | {"read": records_table(facts["read"], ("corpus", "tokens", "epochs"))}


def _verdicts(facts: Mapping[str, Any], arm: str) -> dict[str, dg.MetadataValue]:
    columns = (arm, "task", "verdict", "difference", "low", "high", "smallest_visible")
    rows = [{name: "-" if row[name] is None else str(row[name]) for name in columns} for row in facts["rows"]]
    return {"control": dg.MetadataValue.text(facts["control"]), "verdicts": records_table(rows, columns)}


def pairs_page(artifact: Artifact, kind: str) -> dict[str, dg.MetadataValue]:
    """Return differences from the control, and the page."""
    return {"differences": inline(artifact.file(f"{kind}.png").read_bytes()), "page": page_link(artifact, f"{kind}.md")}


def _end(end: float | None) -> str:
    return "open" if end is None else f"{end:.4g}"
