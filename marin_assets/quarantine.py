"""Quarantined shards in the UI: a check that names them, and a table with the command that runs each alone."""

from collections.abc import Mapping, Sequence

import dagster as dg

from lineage.artifact.store import Artifact
from lineage.shards.failures import IncompleteError, ShardFailure
from marin_assets.values import records_table

SHARDS_CHECK = "shards_complete"
SHARDS_PROMISE = "every shard is done, or a recorded waiver says that it may be missing"
ERROR_CHARS = 300
TRACEBACK_CHARS = 4_000


def missing_shards(artifact: Artifact) -> list[str]:
    """Check for shards that an artifact lacks without a waiver in its manifest; an unfinished artifact is not committed
    at all.
    """
    allowed = any(waiver["problem"] == "incomplete" for waiver in artifact.manifest.extra.get("waivers", ()))
    return [] if allowed else [f"{name} is missing: {error}" for name, error in artifact.manifest.omitted.items()]


def failed_check(error: IncompleteError, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Return the check result of a stage that ended with shards missing: nothing was committed, so it describes the
    attempt.
    """
    return dg.AssetCheckResult(
        check_name=SHARDS_CHECK,
        asset_key=key,
        passed=False,
        description="; ".join(f"{failure.name}: {failure.error}"[:ERROR_CHARS] for failure in error.failures[:5]),
        metadata=quarantine_metadata(error),
    )


def quarantine_metadata(error: IncompleteError) -> Mapping[str, dg.MetadataValue]:
    """Return counts, the table of quarantined shards, and the first one's traceback."""
    first = error.failures[0]
    return {
        "shards_finished": dg.MetadataValue.int(error.num_finished),
        "shards_quarantined": dg.MetadataValue.int(len(error.failures)),
        "shards": dg.MetadataValue.int(error.num_shards),
        "quarantine": quarantine_table(error.failures),
        f"traceback of {first.name}": dg.MetadataValue.md(f"```\n{first.traceback[-TRACEBACK_CHARS:]}\n```"),
    }


def quarantine_table(failures: Sequence[ShardFailure]) -> dg.MetadataValue:
    """Return one row for each shard, with the command that runs it alone."""
    rows = [
        {
            "shard": failure.name,
            "kind": failure.kind,
            "attempts": failure.attempts,
            "peak_mib": 0 if failure.peak_rss_bytes is None else failure.peak_rss_bytes >> 20,
            "error": failure.error[:ERROR_CHARS],
            "given": ", ".join(failure.given)[:ERROR_CHARS],
            "run_it_alone": failure.command,
        }
        for failure in failures
    ]
    return records_table(rows, tuple(rows[0]) if rows else ())
