"""What a person sees of an artifact in the UI: numbers that plot over time, tables, and pictures.

Events are rows of a database, so pictures are small (below 100 kB) and anything larger is a path.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial

import dagster as dg
import polars as pl
import pyarrow.parquet as pq

from datakit.cards.pictures import lengths_png
from datakit.cards.tables import Lengths
from datakit.documents.parts import document_paths
from lineage.artifact.store import Artifact
from lineage.build.plan import Built
from lineage.graph.check_tables import manifest_digest
from lineage.jobs.job import LaunchRecord
from marin_assets import (
    contamination_views,
    eval_views,
    fit_views,
    label_views,
    reward_views,
    science_views,
    swarm_views,
    synthetic_views,
)
from marin_assets.event_log import INPUTS, MANIFEST_TAG, VERSION_TAG
from marin_assets.pages import page_link
from marin_assets.pictures import drops_png
from marin_assets.quality_views import (
    card,
    contained,
    cutoffs,
    domain_model,
    rule_sets,
    scorer,
    scores,
    semantic_duplicates,
    tags,
)
from marin_assets.values import counts_table, picture, records_table
from trainer.plots import load_map_png, loss_curve_png
from trainer.router_table import FILE as ROUTER_FILE

_NUMBERS = ("rows_in", "rows_out", "bytes_in", "bytes_out", "tokens_in", "tokens_out")


def describe(built: Built) -> dict[str, dg.MetadataValue]:
    """Return Dagster metadata of an artifact, in the order in which a reader needs it."""
    metadata: dict[str, dg.MetadataValue] = {"reused": dg.MetadataValue.bool(built.reused)}
    if built.drift is not None:
        metadata["code_drift" if built.drifted else "code_verified"] = dg.MetadataValue.text(str(built.drift))
    metadata |= {} if built.launched is None else _launched(built.launched)
    return metadata | recorded(built.artifact) | _pictures(built.artifact) | provenance(built.artifact)


def _launched(launched: LaunchRecord) -> dict[str, dg.MetadataValue]:
    """Return where a job ran, on what, and every attempt."""
    return {
        "ran_as": dg.MetadataValue.text(f"{launched.place} on {launched.hardware}"),
        "attempts": records_table([asdict(attempt) for attempt in launched.attempts], ("number", "place", "seconds", "ended")),
    }


def provenance(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return where an artifact is, and which inputs its manifest names."""
    inputs = [ref.identity() | {"address": ref.address} for ref in artifact.spec.inputs]
    return {"artifact": dg.MetadataValue.path(artifact.uri), INPUTS: dg.MetadataValue.json(inputs)}


def identity_tags(artifact: Artifact) -> dict[str, str]:
    """Return tags that name the artifact of an event and the state of its manifest (a tag has no room for an address)."""
    digest = manifest_digest(artifact.store, artifact.spec.address)
    return {VERSION_TAG: artifact.spec.version, MANIFEST_TAG: digest}


def materialization(
    artifact: Artifact,
    metadata: Mapping[str, dg.MetadataValue],
    description: str = "",
    standing_for: dg.AssetKey | None = None,
) -> dg.AssetMaterialization:
    """Return the event of an artifact that was made outside its own asset's step; `standing_for` is an asset without
    partitions.

    It has no `dagster/code_version`: an event with one and without input tags stays Unsynced, because every dependency
    looks new to it; an event with neither is compared by time (Dagster 1.13).
    """
    return dg.AssetMaterialization(
        asset_key=standing_for or dg.AssetKey(list(artifact.spec.key)),
        partition=None if standing_for else artifact.spec.partition,
        description=description or None,
        metadata=metadata,
        tags={"dagster/data_version": artifact.data_version, **identity_tags(artifact)},
    )


def recorded(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return what the manifest alone shows; no data file is opened."""
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
    if statistics.get("redacted"):
        metadata["redacted"] = counts_table(statistics["redacted"], "kind", "placeholders")
    if manifest.omitted:
        metadata["made_without_shards"] = records_table(
            [{"shard": name, "error": error} for name, error in manifest.omitted.items()], ("shard", "error")
        )
    if "waivers" in manifest.extra:
        metadata["waivers"] = records_table(manifest.extra["waivers"], ("problem", "artifact", "who", "why", "expires"))
    stage = artifact.spec.stage
    needs = _NEEDS.get(stage, _NEEDS.get(stage.partition(".")[0], frozenset()))
    return metadata | (_by_stage(_RECORDED, artifact) if needs <= manifest.extra.keys() else {})


def _pictures(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return what needs data files, or is drawn."""
    drops = artifact.manifest.statistics.get("drops")
    drawn = {"drops_picture": picture(lambda path: drops_png(drops, artifact.name, path))} if drops else {}
    return drawn | _columns(artifact) | _by_stage(_DRAWN, artifact)


def _columns(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the columns of the first Parquet file, by name; none of a remote artifact, whose file would be fetched for it."""
    tables = sorted(path for path in artifact.manifest.paths if path.endswith(".parquet"))
    if not tables or not artifact.store.storage.is_local:
        return {}
    schema = pq.read_schema(artifact.file(tables[0]))
    columns = [dg.TableColumn(field.name, str(field.type)) for field in schema]
    return {"dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns))}


def _by_stage(shown: Mapping[str, "_Show"], artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return what only artifacts of one stage show, or of one family of stages (`environments.*`)."""
    show = shown.get(artifact.spec.stage, shown.get(artifact.spec.stage.partition(".")[0]))
    return show(artifact) if show else {}


def _source(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    return {"source": dg.MetadataValue.json(dict(artifact.manifest.extra["source"]))}


def training_numbers(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return step, loss, tokens and speed of a checkpoint."""
    checkpoint, throughput = artifact.manifest.extra["checkpoint"], artifact.manifest.extra["throughput"]
    compute = checkpoint.get("compute")  # Checkpoints from before 2026-11-22 do not record it.
    return {
        "step": dg.MetadataValue.int(checkpoint["step"]),
        "loss_nats": dg.MetadataValue.float(checkpoint["loss_nats"]),
        "tokens_seen": dg.MetadataValue.int(checkpoint["tokens_seen"]),
        "tokens_per_second": dg.MetadataValue.float(throughput["tokens_per_second"]),
        **({"computed_by": dg.MetadataValue.text(compute["notes"])} if compute else {}),
    }


def _tokens(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return which engine made the ids and what was compared to choose it, and the share of tokens that the loss
    counts.
    """
    engine, tokens = artifact.manifest.extra["engine"], artifact.manifest.extra["tokens"]
    shown: dict[str, dg.MetadataValue] = {"engine": dg.MetadataValue.text(engine["engine"])}
    if "reason" in engine:
        shown["engine_verdict"] = dg.MetadataValue.text(f"{engine['engine']} {engine['version']}: {engine['reason']}")
    weight = artifact.manifest.statistics.get("loss_weight")
    if weight is not None:
        shown["loss_weight_frac"] = dg.MetadataValue.float(round(weight / max(1, tokens["num_tokens"]), 4))
    return shown


def _report(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    return {"page": page_link(artifact, "report.html"), "verdict": dg.MetadataValue.text(artifact.manifest.extra["verdict"])}


def _imported(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    facts = artifact.manifest.extra["checkpoint"]
    metadata: dict[str, dg.MetadataValue] = {name: dg.MetadataValue.text(str(v)) for name, v in facts["imported"].items()}
    return metadata | {"parameters": dg.MetadataValue.int(facts["parameters"])}


def _lengths(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    lengths = Lengths.of(document_paths(artifact))
    return {"document_lengths": picture(lambda path: lengths_png(lengths, path, artifact.name))}


def _loss_curve(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    metrics = pl.read_parquet(artifact.file("metrics.parquet"))
    shown = {"loss_curve": picture(lambda path: loss_curve_png(metrics, path, unigram_entropy=None))}
    if ROUTER_FILE in artifact.manifest.paths:
        loads = pl.read_parquet(artifact.file(ROUTER_FILE))
        shown["expert_loads"] = picture(lambda path: load_map_png(loads, path))
    return shown


def _removed(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return what each source loses as duplicates, the worst first, and the share that plots over time."""
    duplicates = artifact.manifest.extra["duplicates"]
    rows = [
        {"source": name, **counts, "removed_share": round((counts["exact"] + counts["near"]) / max(1, counts["documents"]), 4)}
        for name, counts in duplicates["sources"].items()
    ]
    rows.sort(key=lambda row: -row["removed_share"])
    return {
        "clusters": dg.MetadataValue.int(duplicates["clusters"]),
        "candidates": dg.MetadataValue.int(duplicates["verified_candidates"]),
        "largest_removed_share": dg.MetadataValue.float(rows[0]["removed_share"]),
        "removed_by_source": records_table(rows, ("source", "documents", "exact", "near", "removed_share")),
    }


type _Show = Callable[[Artifact], dict[str, dg.MetadataValue]]
_NEEDS: Mapping[str, frozenset[str]] = {
    "datakit.raw": frozenset({"source"}),
    "datakit.duplicates": frozenset({"full_bands"}),
    "datakit.token_cache": frozenset({"engine"}),
    "datakit.contamination": frozenset({"contamination", "canaries"}),
    "datakit.contamination_index": frozenset({"proof"}),
    "labels": frozenset({"labels"}),
    "trainer.checkpoint": frozenset({"checkpoint", "throughput"}),
    "trainer.trial": frozenset({"checkpoint", "throughput"}),
    "evals.trial_result": frozenset({"result"}),
    "evals.result": frozenset({"scores"}),
    "evals.gap": frozenset({"gap"}),
    "evals.export_canary": frozenset({"export_canary"}),
    "evals.leaderboard": frozenset({"leaderboard"}),
    "evals.audit": frozenset({"audit"}),
    "evals.report": frozenset({"verdict"}),
    "trainer.hf_import": frozenset({"checkpoint"}),
    "environments": frozenset({"environment"}),
    "post_training.checkpoint": frozenset({"checkpoint"}),
    "post_training.rollouts": frozenset({"iteration", "rollouts"}),
    "post_training.held_out": frozenset({"held_out"}),
    "post_training.audit": frozenset({"audit"}),
    "synthetic": frozenset({"synthetic"}),
    "science.table": frozenset({"sweep"}),
    "science.fit": frozenset({"fit"}),
    "science.swarm_runs": frozenset({"swarm"}),
    "science.swarm_snr": frozenset({"snr"}),
    "science.swarm_fit": frozenset({"fit"}),
    "science.swarm_proposal": frozenset({"weights", "proposal"}),
    "science.swarm_confirmation": frozenset({"confirmation"}),
    "science.swarm_round": frozenset({"weights", "round"}),
    "science.round": frozenset({"round"}),
    "science.ladder_forecast": frozenset({"forecast"}),
    "science.annealing": frozenset({"annealing"}),
    "science.proxy": frozenset({"proxy"}),
    "science.critical_batch": frozenset({"batch"}),
    "science.repetition": frozenset({"repetition"}),
    "science.forecast": frozenset({"forecast"}),
    "science.verdict": frozenset({"verdict"}),
    "science.promotion": frozenset({"promotion"}),
    "science.correlations": frozenset({"correlations"}),
    "science.seed_variance": frozenset({"seeds"}),
    "science.verdicts": frozenset({"verdicts"}),
}
"""The part of `extra` that each stage shows. Manifests of older stage versions may hold less."""
_RECORDED: Mapping[str, _Show] = {
    "datakit.raw": _source,
    "datakit.duplicates": _removed,
    "datakit.token_cache": _tokens,
    "datakit.contamination": contamination_views.marks,
    "datakit.contamination_index": contamination_views.proof_of_policy,
    "labels": label_views.facts,
    "trainer.checkpoint": training_numbers,
    "trainer.trial": training_numbers,
    "evals.trial_result": eval_views.trial_result,
    "evals.result": eval_views.scores,
    "evals.gap": eval_views.gap,
    "evals.leaderboard": eval_views.leaderboard,
    "evals.export_canary": eval_views.export_canary,
    "evals.audit": contamination_views.audit_verdict,
    "evals.report": _report,
    "trainer.hf_import": _imported,
    "environments": reward_views.environment,
    "post_training.checkpoint": reward_views.checkpoint,
    "post_training.rollouts": reward_views.iteration,
    "post_training.held_out": reward_views.held_out,
    "post_training.audit": reward_views.audit,
    "synthetic": synthetic_views.facts,
    "science.table": science_views.table,
    "science.fit": science_views.law,
    "science.swarm_runs": swarm_views.runs,
    "science.swarm_snr": swarm_views.snr,
    "science.swarm_fit": swarm_views.fit,
    "science.swarm_proposal": swarm_views.proposal,
    "science.swarm_confirmation": swarm_views.confirmation,
    "science.swarm_round": swarm_views.second_round,
    "science.round": science_views.proposed_round,
    "science.ladder_forecast": science_views.forecast,
    "science.annealing": fit_views.annealing,
    "science.proxy": fit_views.proxy,
    "science.critical_batch": fit_views.critical_batch,
    "science.repetition": fit_views.repetition,
    "science.forecast": science_views.forecast,
    "science.verdict": science_views.verdict,
    "science.promotion": science_views.promotion,
    "science.correlations": science_views.correlations,
    "science.seed_variance": science_views.seed_variance,
    "science.verdicts": science_views.verdicts,
}
_DRAWN: Mapping[str, _Show] = {
    "datakit.normalize": _lengths,
    "datakit.quality_rules": rule_sets,
    "datakit.languages": tags,
    "datakit.code_licences": tags,
    "datakit.domains": tags,
    "datakit.domain_model": domain_model,
    "labels": label_views.samples,
    "datakit.semantic_duplicates": semantic_duplicates,
    "datakit.containment": contained,
    "datakit.card": card,
    "datakit.scorer": scorer,
    "datakit.scores": scores,
    "datakit.score_cutoff": cutoffs,
    "trainer.checkpoint": _loss_curve,
    "post_training.checkpoint": reward_views.curves,
    "post_training.rollouts": reward_views.sampled_rollouts,
    "synthetic.rollouts": synthetic_views.rollouts,
    "synthetic.accepted": synthetic_views.accepted,
    "evals.result": eval_views.scores_picture,
    "evals.gap": eval_views.gap_page,
    "evals.leaderboard": eval_views.board,
    "evals.export_canary": eval_views.samples,
    "evals.audit": contamination_views.audit_tables,
    "science.fit": science_views.law_picture,
    "science.round": science_views.round_page,
    "science.annealing": partial(fit_views.pairs_page, kind="annealing"),
    "science.proxy": partial(fit_views.pairs_page, kind="proxy"),
    "science.critical_batch": fit_views.critical_batch_page,
    "science.repetition": fit_views.repetition_page,
    "science.promotion": science_views.promotion_page,
    "science.correlations": science_views.correlations_page,
    "science.seed_variance": science_views.seed_page,
    "science.verdicts": science_views.verdicts_page,
    "science.swarm_fit": swarm_views.fit_picture,
    "science.swarm_proposal": swarm_views.proposal_page,
    "science.swarm_confirmation": swarm_views.confirmation_page,
    "science.swarm_round": swarm_views.second_round_page,
}
