"""What the UI shows of synthetic sets: the teacher, what was dropped and why, and samples of both."""

import dagster as dg
import polars as pl

from lineage.artifact.store import Artifact
from marin_assets.reward_views import cell
from marin_assets.values import counts_table
from post_training.synthetic.accepted import DROPPED_FILE, SOURCE_FILE
from post_training.synthetic.rollouts import ROLLOUTS_FILE

SHOWN = 8


def facts(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the numbers of a manifest: those of a shard, or of what is accepted."""
    recorded = artifact.manifest.extra["synthetic"]
    if "accepted" in recorded:
        dropped = counts_table(recorded["dropped"], "reason", "rollouts")
        return {"accepted": dg.MetadataValue.int(recorded["accepted"]), "dropped": dropped}
    identity = f"version {recorded['teacher_version'] or 'unknown'}, known by its {recorded['teacher_known_by']}"
    return {
        "teacher": dg.MetadataValue.text(f"{recorded['teacher_model']}, {identity}"),
        "completion_tokens": dg.MetadataValue.int(recorded["tokens"]),
    }


def rollouts(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return some completions of a shard."""
    columns = ["rollout", "text", "finish_reason", "fault"]
    return {"samples": _table(pl.read_parquet(artifact.file(ROLLOUTS_FILE), columns=columns))}


def accepted(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return some accepted rows and some dropped ones."""
    kept = pl.read_ndjson(artifact.file(SOURCE_FILE)).select("rollout", "text", "verifier")
    dropped = pl.read_parquet(artifact.file(DROPPED_FILE)).select("rollout", "reason", "detail")
    return {"accepted_samples": _table(kept), "dropped_samples": _table(dropped)}


def _table(rows: pl.DataFrame) -> dg.MetadataValue:
    """Return some rows, spread over the whole, as a Markdown table."""
    shown = rows.gather_every(max(1, len(rows) // SHOWN)).head(SHOWN)
    lines = ["| " + " | ".join(rows.columns) + " |", "|" + "---|" * len(rows.columns)]
    lines += ["| " + " | ".join(cell(str(value)) for value in row) + " |" for row in shown.iter_rows()]
    return dg.MetadataValue.md("\n".join(lines))
