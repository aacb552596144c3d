"""What a person sees of an artifact in the UI: numbers that plot over time, tables, and pictures where they would look.

Events are rows of a database, so pictures are small (below 100 kB) and everything larger is a path.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

import dagster as dg
import polars as pl

from datakit.card_pictures import lengths_png
from datakit.card_tables import Lengths
from datakit.documents import document_paths
from datakit.leak_forms import LEAK_FORMS
from lineage.edges_check import manifest_digest
from lineage.jobs import Launched
from lineage.plan import Built
from lineage.store import Artifact
from marin_assets import eval_views
from marin_assets.event_log import INPUTS, MANIFEST_TAG, VERSION_TAG
from marin_assets.pictures import drops_png
from marin_assets.quality_views import card, cutoffs, rule_sets, scorer, scores
from marin_assets.values import counts_table, inline, picture, records_table
from trainer.plots import loss_curve_png

_CLEARED = ("suite", "task", "item_id", "documents")
_NUMBERS = ("rows_in", "rows_out", "bytes_in", "bytes_out", "tokens_in", "tokens_out")


def describe(built: Built) -> dict[str, dg.MetadataValue]:
    """Dagster metadata of an artifact, in the order a reader wants it."""
    metadata: dict[str, dg.MetadataValue] = {"reused": dg.MetadataValue.bool(built.reused)}
    if built.drift is not None:
        metadata["code_drift" if built.drifted else "code_verified"] = dg.MetadataValue.text(str(built.drift))
    metadata |= {} if built.launched is None else _launched(built.launched)
    return metadata | recorded(built.artifact) | _pictures(built.artifact) | provenance(built.artifact)


def _launched(launched: Launched) -> dict[str, dg.MetadataValue]:
    """Where a job ran, on what, and every attempt that it took."""
    return {
        "ran_as": dg.MetadataValue.text(f"{launched.place} on {launched.hardware}"),
        "attempts": records_table([asdict(attempt) for attempt in launched.attempts], ("number", "place", "seconds", "ended")),
    }


def provenance(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Where an artifact lies and what its manifest says that it was made from."""
    inputs = [ref.identity() | {"address": ref.address} for ref in artifact.spec.inputs]
    return {"artifact": dg.MetadataValue.path(artifact.uri), INPUTS: dg.MetadataValue.json(inputs)}


def identity_tags(artifact: Artifact) -> dict[str, str]:
    """Tags that say which artifact an event means and what its manifest was like (a tag has no room for an address)."""
    digest = manifest_digest(artifact.store, artifact.spec.address)
    return {VERSION_TAG: artifact.spec.version, MANIFEST_TAG: digest}


def materialization(
    artifact: Artifact,
    metadata: Mapping[str, dg.MetadataValue],
    description: str = "",
    standing_for: dg.AssetKey | None = None,
) -> dg.AssetMaterialization:
    """The event of an artifact that was made outside its own asset's step; `standing_for` is an asset without partitions.

    It has no `dagster/code_version`: an event with one and without input tags is Unsynced for good, because every dependency
    looks new to it; one with neither is compared by time (Dagster 1.13).
    """
    return dg.AssetMaterialization(
        asset_key=standing_for or dg.AssetKey(list(artifact.spec.key)),
        partition=None if standing_for else artifact.spec.partition,
        description=description or None,
        metadata=metadata,
        tags={"dagster/data_version": artifact.data_version, **identity_tags(artifact)},
    )


def recorded(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """What the manifest alone has to show; no data file is opened."""
    manifest = artifact.manifest
    statistics = manifest.statistics
    metadata: dict[str, dg.MetadataValue] = {}
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
    if statistics.get("drops"):
        metadata["drops"] = counts_table(statistics["drops"], "reason", "documents")
    if manifest.omitted:
        metadata["made_without_shards"] = records_table(
            [{"shard": name, "error": error} for name, error in manifest.omitted.items()], ("shard", "error")
        )
    if "waivers" in manifest.extra:
        metadata["waivers"] = records_table(manifest.extra["waivers"], ("problem", "artifact", "who", "why", "expires"))
    needs = _NEEDS.get(artifact.spec.stage, frozenset())
    return metadata | (_by_stage(_RECORDED, artifact) if needs <= manifest.extra.keys() else {})


def _pictures(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """What takes data files to show, or is drawn."""
    drops = artifact.manifest.statistics.get("drops")
    drawn = {"drops_picture": picture(lambda path: drops_png(drops, artifact.name, path))} if drops else {}
    return drawn | _by_stage(_DRAWN, artifact)


def _by_stage(shown: Mapping[str, "_Show"], artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """What only artifacts of one stage have to show."""
    show = shown.get(artifact.spec.stage)
    return show(artifact) if show else {}


def _source(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    return {"source": dg.MetadataValue.json(dict(artifact.manifest.extra["source"]))}


def training_numbers(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Step, loss, tokens and speed of a checkpoint."""
    checkpoint, throughput = artifact.manifest.extra["checkpoint"], artifact.manifest.extra["throughput"]
    compute = checkpoint.get("compute")  # checkpoints of before 2026-11-22 do not tell
    return {
        "step": dg.MetadataValue.int(checkpoint["step"]),
        "loss_nats": dg.MetadataValue.float(checkpoint["loss_nats"]),
        "tokens_seen": dg.MetadataValue.int(checkpoint["tokens_seen"]),
        "tokens_per_second": dg.MetadataValue.float(throughput["tokens_per_second"]),
        **({"computed_by": dg.MetadataValue.text(compute["notes"])} if compute else {}),
    }


def _tokens(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Which engine made the ids and what was compared to choose it; the share of tokens that the loss looks at."""
    engine, tokens = artifact.manifest.extra["engine"], artifact.manifest.extra["tokens"]
    shown: dict[str, dg.MetadataValue] = {"engine": dg.MetadataValue.text(engine["engine"])}
    if "reason" in engine:
        shown["engine_verdict"] = dg.MetadataValue.text(f"{engine['engine']} {engine['version']}: {engine['reason']}")
    weight = artifact.manifest.statistics.get("loss_weight")
    if weight is not None:
        shown["loss_weight_frac"] = dg.MetadataValue.float(round(weight / max(1, tokens["num_tokens"]), 4))
    return shown


def _imported(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    facts = artifact.manifest.extra["checkpoint"]
    told: dict[str, dg.MetadataValue] = {name: dg.MetadataValue.text(str(v)) for name, v in facts["imported"].items()}
    return told | {"parameters": dg.MetadataValue.int(facts["parameters"])}


def _audit(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Verdicts, and counts that plot over steps; older stage versions recorded fewer of them."""
    audit = artifact.manifest.extra["audit"]
    counts = audit.get("counts", {})
    numbers = ("matched_before", "matched_after", "seen_in_training", "unknown")
    return {
        **{name: dg.MetadataValue.text(audit[name]) for name in ("verdict", "verdict_at_step") if name in audit},
        **{f"items_{name}": dg.MetadataValue.int(counts[name]) for name in numbers if name in counts},
    }


def _lengths(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    lengths = Lengths.of(document_paths(artifact))
    return {"document_lengths": picture(lambda path: lengths_png(lengths, path, artifact.name))}


def _loss_curve(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    metrics = pl.read_parquet(artifact.files("metrics.parquet")[0])
    return {"loss_curve": picture(lambda path: loss_curve_png(metrics, path, unigram_entropy=None))}


def _audited(artifact: Artifact) -> dict[str, dg.MetadataValue]:
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
        "items": records_table(counts, columns),
        "strongest_matches": records_table(audit["worst"], ("task", "item_id", "tier", "component", "id", "num_steps", "text")),
        "item_scores": records_table(effects, ("task", "group", "items", "bits_per_byte")),
        **{name: inline(path.read_bytes()) for name, path in pictures.items()},
        "page": dg.MetadataValue.path(str(artifact.files("audit.html")[0])),
        "audit": dg.MetadataValue.json({name: audit[name] for name in ("counts", "documents_by_fate", "scan", "legs")}),
    }


def _marks(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """What a policy marked, and how well it finds what was planted."""
    counts, proof = artifact.manifest.extra["contamination"], artifact.manifest.extra["canaries"]
    items = [{"task": task, **row} for task, row in counts["items_by_task"].items()]
    forms = [{"form": form, "recall": value} for form, value in proof["recall"].items()]
    false = [{"text": text, "marked": value} for text, value in proof["false_positives"].items()]
    return {
        "policy": dg.MetadataValue.text(counts["policy"]),
        "contaminated": dg.MetadataValue.int(counts["contaminated"]),
        "items_matched": dg.MetadataValue.int(sum(row["matched"] for row in items)),
        "items": records_table(items, ("task", "clean", "matched", "unknown")),
        "documents_by_tier": counts_table(counts["documents_by_tier"], "tier", "documents"),
        "planted_items_found": records_table(forms, ("form", "recall")),
        "false_positives": records_table(false, ("text", "marked")),
        "cleared_by_templates": records_table(artifact.manifest.extra.get("templates", {}).get("most", []), _CLEARED),
    }


def _proof(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """What the policy finds of each task's items, and marks in text that holds none."""
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


def _recalled(found: Mapping[str, float] | None, num_items: int) -> str:
    """A share, and of how many where a form does not apply to every planted item."""
    if found is None:
        return ""
    return f"{found['found']:.2f}" + (f" of {found['planted']:.0f}" if found["planted"] < num_items else "")


def _removed(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """What each source loses as a duplicate, the worst first, and the share that plots over time."""
    found = artifact.manifest.extra["duplicates"]
    rows = [
        {"source": name, **counts, "removed_share": round((counts["exact"] + counts["near"]) / max(1, counts["documents"]), 4)}
        for name, counts in found["sources"].items()
    ]
    rows.sort(key=lambda row: -row["removed_share"])
    return {
        "clusters": dg.MetadataValue.int(found["clusters"]),
        "candidates": dg.MetadataValue.int(found["verified_candidates"]),
        "largest_removed_share": dg.MetadataValue.float(rows[0]["removed_share"]),
        "removed_by_source": records_table(rows, ("source", "documents", "exact", "near", "removed_share")),
    }


def _comparison(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Policies side by side, in tables narrow enough to read."""
    found = artifact.manifest.extra["comparison"]
    rows, agreement = found["policies"], found["agreement"]
    recall, false = (tuple(name for name in rows[0] if name.startswith(prefix)) for prefix in ("recall_", "false_"))
    counts = tuple(name for name in rows[0] if name not in recall + false)
    return {
        "policies": records_table(rows, counts),
        "planted_items_found": records_table(rows, ("policy", *recall)),
        "false_positives": records_table(rows, ("policy", *false)),
        "pairs": records_table(agreement, tuple(agreement[0]) if agreement else ()),
    }


type _Show = Callable[[Artifact], dict[str, dg.MetadataValue]]
_NEEDS: Mapping[str, frozenset[str]] = {
    "datakit.raw": frozenset({"source"}),
    "datakit.duplicates": frozenset({"full_bands"}),
    "datakit.token_cache": frozenset({"engine"}),
    "datakit.contamination": frozenset({"contamination", "canaries"}),
    "datakit.contamination_index": frozenset({"proof"}),
    "datakit.contamination_comparison": frozenset({"comparison"}),
    "trainer.checkpoint": frozenset({"checkpoint", "throughput"}),
    "evals.result": frozenset({"scores"}),
    "evals.gap": frozenset({"gap"}),
    "evals.export_canary": frozenset({"export_canary"}),
    "evals.leaderboard": frozenset({"leaderboard"}),
    "evals.audit": frozenset({"audit"}),
    "trainer.hf_import": frozenset({"checkpoint"}),
}
"""What of `extra` each of these shows: manifests of older stage versions may hold less, and are shown without."""
_RECORDED: Mapping[str, _Show] = {
    "datakit.raw": _source,
    "datakit.duplicates": _removed,
    "datakit.token_cache": _tokens,
    "datakit.contamination": _marks,
    "datakit.contamination_index": _proof,
    "datakit.contamination_comparison": _comparison,
    "trainer.checkpoint": training_numbers,
    "evals.result": eval_views.scores,
    "evals.gap": eval_views.gap,
    "evals.leaderboard": eval_views.leaderboard,
    "evals.export_canary": eval_views.export_canary,
    "evals.audit": _audit,
    "trainer.hf_import": _imported,
}
_DRAWN: Mapping[str, _Show] = {
    "datakit.normalize": _lengths,
    "datakit.quality_rules": rule_sets,
    "datakit.card": card,
    "datakit.scorer": scorer,
    "datakit.scores": scores,
    "datakit.score_cutoff": cutoffs,
    "trainer.checkpoint": _loss_curve,
    "evals.result": eval_views.scores_picture,
    "evals.gap": eval_views.gap_page,
    "evals.leaderboard": eval_views.board,
    "evals.export_canary": eval_views.samples,
    "evals.audit": _audited,
}
