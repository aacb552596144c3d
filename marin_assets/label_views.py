"""What the UI shows of a model's labels: the model and its prompt, the labels, and samples of both."""

import dagster as dg
import polars as pl

from datakit.quality.labels import LABELS_FILE
from lineage.artifact.store import Artifact
from marin_assets.reward_views import cell
from marin_assets.values import counts_table

SHOWN = 8


def facts(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return who labelled, the digest of the prompt, and how often each label and each fault occurs."""
    found = artifact.manifest.extra["labels"]
    identity = f"version {found['version'] or 'unknown'}, known by its {found['known_by']}"
    return {
        "model": dg.MetadataValue.text(f"{found['model']}, {identity}, by {found['reading']} answers"),
        "prompt": dg.MetadataValue.text(found["prompt"]),
        "labels": counts_table(found["labels"], "label", "documents"),
        "faults": counts_table(found["faults"], "fault", "documents"),
    }


def samples(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return some labels with the model's own words."""
    rows = pl.read_parquet(artifact.file(LABELS_FILE))
    shown = rows.gather_every(max(1, rows.height // SHOWN)).head(SHOWN)
    lines = [f"| {' | '.join(shown.columns)} |", "|" + "---|" * shown.width]
    lines += ["| " + " | ".join(cell(str(value)) for value in row) + " |" for row in shown.iter_rows()]
    return {"samples": dg.MetadataValue.md("\n".join(lines))}
