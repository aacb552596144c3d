"""The tables of the ledger: names, columns, and what each column means.

Addresses are relative to a store's root. Times are ISO 8601 in UTC. `store` is the name of the store (`artifacts`, `ttl-7d`).
"""

from collections.abc import Mapping

import polars as pl

from lineage.accepted_rows import ACCEPTED_SCHEMA

VERSION = "3"
"""Raise it if a column is added or its meaning changes: saved tables of another version are made again."""
MONEY = pl.Decimal(38, 12)

ARTIFACTS = {
    "address": pl.String,
    "name": pl.String,
    "key": pl.String,
    "partition": pl.String,
    "prefix": pl.String,
    "stage": pl.String,
    "stage_version": pl.String,
    "data_version": pl.String,
    "created": pl.String,
    "run_id": pl.String,
    "owner": pl.String,
    "host": pl.String,
    "commit": pl.String,
    "seconds": pl.Float64,
    "cpu_seconds": pl.Float64,
    "peak_rss_bytes": pl.Int64,
    "num_files": pl.Int64,
    "num_bytes": pl.Int64,
    "process": pl.String,
    "step": pl.Int64,
    "omitted_shards": pl.Int64,
    "waivers": pl.Int64,
    "stamp": pl.String,
}
"""A row for each manifest. `prefix`: the first two parts of the key. `process`: equal for checkpoints of one training job."""

INPUTS = {"child": pl.String, "input": pl.String, "parent": pl.String, "parent_data_version": pl.String}
"""A row for each input of an artifact; `child` and `parent` are addresses."""

CHECKPOINTS = {
    "address": pl.String,
    "run": pl.String,
    "step": pl.Int64,
    "tokens_seen": pl.Int64,
    "loss_nats": pl.Float64,
    "parameters": pl.Int64,
    "tokens_per_second": pl.Float64,
    "model_flops": pl.Float64,
    "hardware_flops": pl.Float64,
    "mfu": pl.Float64,
    "num_steps": pl.Int64,
}
"""A row for each checkpoint. `model_flops` is the tokens seen times FLOPs a token (Levanter's count). `hardware_flops` is
`model_flops` divided by the MFU. NULL if they are not recorded."""

RESULTS = {
    "address": pl.String,
    "checkpoint": pl.String,
    "policy": pl.String,
    "policy_version": pl.String,
    "task": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "attempted": pl.Int64,
}
"""A row for each score. `checkpoint` is an address."""

AUDITS = {"address": pl.String, "checkpoint": pl.String, "verdict": pl.String}
FORECASTS = {
    "address": pl.String,
    "target": pl.String,
    "task": pl.String,
    "metric": pl.String,
    "point": pl.Float64,
    "low_90": pl.Float64,
    "high_90": pl.Float64,
    "frozen": pl.String,
}
FORECAST_VERDICTS = {
    "address": pl.String,
    "forecast": pl.String,
    "outcome": pl.String,
    "measured": pl.Float64,
    "why": pl.String,
    "judged": pl.String,
}
SOURCES = {"address": pl.String, "name": pl.String, "revision": pl.String, "licence": pl.String, "domain": pl.String}
"""A row for each raw artifact: the source that it contains."""

ROLLOUTS = {
    "address": pl.String,
    "run": pl.String,
    "iteration": pl.Int64,
    "policy": pl.String,
    "policy_step": pl.Int64,
    "rows": pl.Int64,
    "tokens": pl.Int64,
    "reward_mean": pl.Float64,
    "right": pl.Float64,
    "used": pl.Int64,
}
"""A row for each iteration of a run on rewards and each shard of a synthetic set, from the manifest alone.

`run` is `runs/<run>` or `synthetic/<set>`; `iteration` counts iterations or shards from 0. `policy`: the digest of the policy,
or the data version that the teacher's server reported. `right`: share of completions with a right answer. `used`: rows that an
update learned from. A synthetic set has no reward; what is used of it is in `accepted`."""

ACCEPTED = {"address": pl.String} | {name: kind for name, kind in ACCEPTED_SCHEMA.items() if name != "detail"}
"""A row for each accepted row of the synthetic set at `address`, if the ledger was opened with them."""

FROM_MANIFESTS: Mapping[str, Mapping[str, type[pl.DataType]]] = {
    "artifacts": ARTIFACTS,
    "inputs": INPUTS,
    "checkpoints": CHECKPOINTS,
    "results": RESULTS,
    "audits": AUDITS,
    "forecasts": FORECASTS,
    "forecast_verdicts": FORECAST_VERDICTS,
    "sources": SOURCES,
    "rollouts": ROLLOUTS,
}
KEYS = {name: "child" if name == "inputs" else "address" for name in FROM_MANIFESTS}
"""The column that names the artifact of a row."""

LAUNCHES = {
    "launch": pl.String,
    "address": pl.String,
    "process": pl.String,
    "name": pl.String,
    "stage": pl.String,
    "run_id": pl.String,
    "number": pl.Int64,
    "state": pl.String,
    "why": pl.String,
    "started": pl.String,
    "ended": pl.String,
    "place": pl.String,
    "hardware": pl.String,
    "one_host": pl.Boolean,
    "seconds": pl.Float64,
    "cpu_seconds": pl.Float64,
    "peak_rss_bytes": pl.Int64,
    "owner": pl.String,
    "host": pl.String,
    "recorded": pl.String,
}
"""A row for each attempt. `recorded`: `summary` of the attempt, or `manifest` for work from before summaries were kept."""

VERDICTS = {
    "number": pl.Int64,
    "name": pl.String,
    "data_version": pl.String,
    "verdict": pl.String,
    "kind": pl.String,
    "why": pl.String,
    "who": pl.String,
    "recorded_at": pl.String,
    "standing": pl.Boolean,
}
"""A row for each record of the verdict log; the last of a (name, data_version, verdict) is in force."""

WAIVERS = {
    "address": pl.String,
    "problem": pl.String,
    "artifact": pl.String,
    "target": pl.String,
    "who": pl.String,
    "why": pl.String,
    "expires": pl.String,
    "created": pl.String,
    "refused": pl.String,
}
"""A row for each waiver. `refused` says why it does not count; empty if it does until it expires."""

PROBES = {"probe": pl.String, "at": pl.String, "ok": pl.Boolean, "seconds": pl.Float64, "why": pl.String}
"""A row for each probe of the last `operations.ledger.ledger.PROBE_DAYS` days (`operations.probes`)."""

STORAGE = {
    "day": pl.String,
    "prefix": pl.String,
    "owner": pl.String,
    "storage_class": pl.String,
    "age": pl.String,
    "artifacts": pl.Int64,
    "bytes": pl.Int64,
    "last_read": pl.String,
    "dollars_a_month": MONEY,
    "unpriced": pl.String,
}
"""A row of the storage report of a day (`operations.storage.report`).

`last_read`: when something was last made, or made from it by a build; reads by people and servers leave no record.
`dollars_a_month` is NULL if `unpriced` names a class without a price."""

PRICES = {
    "what": pl.String,
    "unit": pl.String,
    "dollars": MONEY,
    "since": pl.String,
    "source": pl.String,
    "hosts": pl.Int64,
}
DAGSTER_RUNS = {
    "run_id": pl.String,
    "job": pl.String,
    "status": pl.String,
    "campaign": pl.String,
    "day": pl.String,
    "started": pl.String,
    "ended": pl.String,
}
CHECKS = {
    "asset": pl.String,
    "partition": pl.String,
    "check_name": pl.String,
    "passed": pl.Boolean,
    "severity": pl.String,
    "run_id": pl.String,
    "recorded_at": pl.String,
}
ONLY_IN_DAGSTER: Mapping[str, Mapping[str, type[pl.DataType]]] = {"dagster_runs": DAGSTER_RUNS, "checks": CHECKS}
"""Tables that only Dagster's database has; they are empty without it."""
