"""What a person sees of an artifact in the UI: numbers that plot over time, tables, and pictures where they would look.

Events are rows of a database, so pictures are small (below 100 kB) and everything larger is a path.
"""

import base64
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import dagster as dg
import polars as pl

from datakit.documents import document_paths
from evals.plots import scores_png
from lineage.plan import Built
from lineage.store import Artifact
from marin_assets.pictures import drops_png, lengths_png
from trainer.plots import loss_curve_png

PICTURE_BYTES = 100_000
TABLE_ROWS = 30
_NUMBERS = ("rows_in", "rows_out", "bytes_in", "bytes_out", "tokens_in", "tokens_out")


def describe(built: Built) -> dict[str, dg.MetadataValue]:
    """Dagster metadata of an artifact, in the order a reader wants it."""
    artifact = built.artifact
    manifest = artifact.manifest
    statistics = manifest.statistics
    metadata: dict[str, dg.MetadataValue] = {"reused": dg.MetadataValue.bool(built.reused)}
    if built.drifted:
        metadata["code_drift"] = dg.MetadataValue.text(
            "the stage's code has changed since these bytes were made, its stage version has not"
        )
    for name in _NUMBERS:
        if name in statistics:
            metadata[name] = dg.MetadataValue.int(int(statistics[name]))
    if "rows_out" in statistics:
        metadata["dagster/row_count"] = dg.MetadataValue.int(int(statistics["rows_out"]))
    metadata |= {
        "bytes": dg.MetadataValue.int(sum(entry.bytes for entry in manifest.files)),
        "files": dg.MetadataValue.int(len(manifest.files)),
        "seconds": dg.MetadataValue.float(manifest.resources.wall_seconds),
        "cpu_seconds": dg.MetadataValue.float(manifest.resources.cpu_seconds),
        "peak_memory_mib": dg.MetadataValue.float(round(manifest.resources.peak_rss_bytes / 2**20, 1)),
    }
    drops = statistics.get("drops")
    if drops:
        metadata["drops"] = counts_table(drops, "reason", "documents")
        metadata["drops_picture"] = picture(lambda path: drops_png(drops, artifact.name, path))
    if "waivers" in manifest.extra:
        metadata["waivers"] = records_table(manifest.extra["waivers"], ("problem", "artifact", "who", "why", "expires"))
    metadata |= _by_stage(artifact)
    metadata["artifact"] = dg.MetadataValue.path(artifact.uri)
    metadata["inputs"] = dg.MetadataValue.json([ref.identity() | {"address": ref.address} for ref in manifest.spec.inputs])
    return metadata


def _by_stage(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """What only artifacts of one stage have to show."""
    shown: Mapping[str, Callable[[Artifact], dict[str, dg.MetadataValue]]] = {
        "datakit.raw": _source,
        "datakit.normalize": _lengths,
        "trainer.checkpoint": _training,
        "evals.result": _scores,
        "evals.audit": _audit,
    }
    show = shown.get(artifact.spec.stage)
    return show(artifact) if show else {}


def _source(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    return {"source": dg.MetadataValue.json(dict(artifact.manifest.extra["source"]))}


def _lengths(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    characters = pl.scan_parquet(document_paths(artifact)).select(pl.col("text").str.len_chars()).collect().to_series()
    return {"document_lengths": picture(lambda path: lengths_png(characters.to_numpy(), artifact.name, path))}


def _training(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    checkpoint, throughput = artifact.manifest.extra["checkpoint"], artifact.manifest.extra["throughput"]
    metrics = pl.read_parquet(artifact.files("metrics.parquet")[0])
    return {
        "step": dg.MetadataValue.int(checkpoint["step"]),
        "loss_nats": dg.MetadataValue.float(checkpoint["loss_nats"]),
        "tokens_seen": dg.MetadataValue.int(checkpoint["tokens_seen"]),
        "tokens_per_second": dg.MetadataValue.float(throughput["tokens_per_second"]),
        "loss_curve": picture(lambda path: loss_curve_png(metrics, path, unigram_entropy=None)),
    }


def _scores(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    scores = artifact.manifest.extra["scores"]
    shown = {f"{s['task']}/{s['metric']}": dg.MetadataValue.float(float(s["value"])) for s in scores}
    return shown | {
        "scores": records_table(scores, ("task", "metric", "value", "low", "high", "n")),
        "scores_picture": picture(lambda path: scores_png(scores, artifact.name, path)),
    }


def _audit(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    audit = json.loads(artifact.files("audit.json")[0].read_text())
    counts = [{"task": task, **row} for task, row in audit["by_task"].items()]
    effects = [
        {"task": task, "group": group, "items": row["items"], "bits_per_byte": row["bits_per_byte"][0]}
        for task, found in audit["scores"].get("by_task", {}).items()
        for group, row in found["groups"].items()
    ]
    pictures = {path.stem: path for path in artifact.files(".png")}
    columns = ("task", "items", "matched_before", "matched_after", "seen_in_training", "matched_heldout", "unknown")
    return {
        "verdict": dg.MetadataValue.text(audit["verdict"]),
        "verdict_at_step": dg.MetadataValue.text(audit["verdict_at_step"]),
        "items": records_table(counts, columns),
        "strongest_matches": records_table(audit["worst"], ("task", "item_id", "tier", "component", "id", "num_steps", "text")),
        "item_scores": records_table(effects, ("task", "group", "items", "bits_per_byte")),
        **{name: _inline(path.read_bytes()) for name, path in pictures.items()},
        "page": dg.MetadataValue.path(str(artifact.files("audit.html")[0])),
        "audit": dg.MetadataValue.json({name: audit[name] for name in ("counts", "documents_by_fate", "scan", "legs")}),
    }


def counts_table(counts: Mapping[str, int], name: str, unit: str) -> dg.MetadataValue:
    """A two-column table, largest first."""
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:TABLE_ROWS]
    return dg.MetadataValue.table([dg.TableRecord({name: key, unit: int(value)}) for key, value in rows])


def records_table(records: list[dict], columns: tuple[str, ...]) -> dg.MetadataValue:
    """A table of some columns of records, as they come; "none" where there are no records (a table needs a schema)."""
    if not records:
        return dg.MetadataValue.text("none")
    rows = [dg.TableRecord({c: record[c] for c in columns}) for record in records[:TABLE_ROWS]]
    return dg.MetadataValue.table(rows)


def picture(draw: Callable[[Path], None]) -> dg.MetadataValue:
    """A PNG drawn by a function, inline as Markdown; too large a one says so instead."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.png"
        draw(path)
        return _inline(path.read_bytes())


def _inline(png: bytes) -> dg.MetadataValue:
    if len(png) > PICTURE_BYTES:
        return dg.MetadataValue.text(f"the picture has {len(png)} bytes; the UI is given at most {PICTURE_BYTES}")
    return dg.MetadataValue.md(f"![picture](data:image/png;base64,{base64.b64encode(png).decode()})")
