"""Rows of the ledger from one manifest, by the formats that the engines write.

Facts that a manifest of an older stage version lacks are NULL.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lineage.artifact.manifest import Manifest
from lineage.artifact.spec import ArtifactSpec

REWARD_CHECKPOINT = ("post_training.checkpoint", "1")
"""Stage and version of the checkpoints of runs on rewards, whose job also commits rollouts."""
ROLLOUTS = "post_training.rollouts"

type Rows = dict[str, list[tuple[Any, ...]]]


def rows_of(address: str, manifest: Manifest, stamp: str) -> Rows:
    """Return the rows of a manifest by table, in the order of the columns of `operations.ledger.schema`."""
    spec, use, by = manifest.spec, manifest.resources, manifest.made_by
    artifact = (
        address,
        spec.name,
        "/".join(spec.key),
        spec.partition or "",
        "/".join(spec.key[:2]),
        spec.stage,
        spec.stage_version,
        manifest.data_version,
        manifest.created,
        manifest.run_id,
        by.user,
        by.host,
        by.commit,
        use.wall_seconds,
        use.cpu_seconds,
        use.peak_rss_bytes,
        len(manifest.files),
        sum(entry.bytes for entry in manifest.files),
        process_of(spec),
        int(_mapping(spec.config).get("step", -1)),
        len(manifest.omitted),
        len(manifest.extra.get("waivers", ())),
        stamp,
    )
    inputs = [(address, ref.name, ref.address, ref.data_version) for ref in spec.inputs]
    return {"artifacts": [artifact], "inputs": inputs} | _OF_STAGE.get(spec.stage, _nothing)(address, manifest)


def process_of(spec: ArtifactSpec) -> str:
    """Return the process that an artifact shares its bill with.

    The job of a run on rewards commits rollouts beside checkpoints, and their manifests have the costs of the job so far.
    """
    if spec.stage != ROLLOUTS:
        return spec.process
    config = {name: value for name, value in spec.config.items() if name != "iteration"} | {"step": 0}
    return replace(spec, key=(*spec.key[:-1], "checkpoint"), stage=REWARD_CHECKPOINT[0], stage_version=REWARD_CHECKPOINT[1],
                   config=config).process  # fmt: skip


def _nothing(address: str, manifest: Manifest) -> Rows:
    return {}


def _checkpoint(address: str, manifest: Manifest) -> Rows:
    facts, speed = _mapping(manifest.extra.get("checkpoint")), _mapping(manifest.extra.get("throughput"))
    run = _mapping(_mapping(manifest.spec.config).get("run"))
    tokens, per_token, mfu = facts.get("tokens_seen"), speed.get("flops_per_token"), _float(speed.get("mfu"))
    model_flops = None if tokens is None or per_token is None else float(tokens) * float(per_token)
    row = (
        address,
        "/".join(manifest.spec.key).removesuffix("/checkpoint"),
        _int(facts.get("step")),
        _int(facts.get("tokens_seen")),
        _float(facts.get("loss_nats")),
        _int(facts.get("parameters")),
        _float(speed.get("tokens_per_second")),
        model_flops,
        model_flops / mfu if model_flops is not None and mfu else None,
        mfu,
        _int(run.get("num_steps")),
    )
    return {"checkpoints": [row]}


def _rollouts(address: str, manifest: Manifest) -> Rows:
    facts, numbers = _mapping(manifest.extra.get("rollouts")), _mapping(manifest.extra.get("iteration"))
    synthetic = _mapping(manifest.extra.get("synthetic"))
    config, counts = _mapping(manifest.spec.config), _mapping(manifest.statistics)
    row = (
        address,
        "/".join(manifest.spec.key[:-1]),
        _int(config.get("iteration", config.get("shard"))),
        _text(facts.get("policy_digest", synthetic.get("teacher_version"))),
        _int(facts.get("policy_step")),
        _int(counts.get("rows_out")),
        _int(counts.get("tokens_out")),
        _float(numbers.get("reward")),
        _float(numbers.get("right")),
        _int(numbers.get("used")),
    )
    return {"rollouts": [row]}


def _held_out(address: str, manifest: Manifest) -> Rows:
    facts = _mapping(manifest.extra.get("held_out"))
    inputs = {ref.name: ref for ref in manifest.spec.inputs}
    checkpoint, environment = (inputs.get(name) for name in ("checkpoint", "environment"))
    about = (address, None if checkpoint is None else checkpoint.address, None, None)
    task, n = "" if environment is None else "/".join(environment.key), _int(facts.get("prompts"))
    scores = {"accuracy": facts.get("accuracy")} | {f"pass@{k}": value for k, value in _mapping(facts.get("pass_at_k")).items()}
    return {
        "results": [
            (*about, task, metric, _float(value), None, None, n, n) for metric, value in scores.items() if value is not None
        ]
    }


def _result(address: str, manifest: Manifest) -> Rows:
    policy = _mapping(manifest.extra.get("policy"))
    checkpoint = next((ref.address for ref in manifest.spec.inputs if ref.name in ("checkpoint", "trial")), None)
    scores = manifest.extra.get("scores") or _mapping(manifest.extra.get("result")).get("scores", ())
    about = (address, checkpoint, policy.get("name"), policy.get("data_version"))
    numbers = ("value", "low", "high")
    return {
        "results": [
            (
                *about,
                str(score.get("task")),
                str(score.get("metric")),
                *(_float(score.get(name)) for name in numbers),
                _int(score.get("n")),
                _int(score.get("attempted")),
            )
            for score in map(_mapping, scores)
        ]
    }


def _audit(address: str, manifest: Manifest) -> Rows:
    checkpoint = next((ref.address for ref in manifest.spec.inputs if ref.name == "checkpoint"), None)
    verdict = _mapping(manifest.extra.get("audit")).get("verdict")
    return {"audits": [(address, checkpoint, None if verdict is None else str(verdict))]}


def _forecast(address: str, manifest: Manifest) -> Rows:
    facts = _mapping(manifest.extra.get("forecast"))
    target, metric, intervals = (_mapping(facts.get(name)) for name in ("target", "metric", "intervals"))
    low, high = (intervals.get("0.9") or (None, None))[:2]
    row = (address, target.get("name"), metric.get("task"), metric.get("name"))
    return {"forecasts": [(*row, _float(facts.get("point")), _float(low), _float(high), manifest.created)]}


def _forecast_verdict(address: str, manifest: Manifest) -> Rows:
    facts = _mapping(manifest.extra.get("verdict"))
    forecast = next((ref.address for ref in manifest.spec.inputs if ref.name == "forecast"), None)
    row = (address, forecast, facts.get("outcome"), _float(facts.get("measured")), facts.get("why"), manifest.created)
    return {"forecast_verdicts": [row]}


def _raw(address: str, manifest: Manifest) -> Rows:
    facts = _mapping(manifest.extra.get("source"))
    loader = _mapping(facts.get("loader"))
    values = (facts.get("name"), loader.get("revision"), facts.get("licence"), facts.get("domain"))
    return {"sources": [(address, *(None if value is None else str(value) for value in values))]}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


_OF_STAGE = {
    "trainer.checkpoint": _checkpoint,
    "trainer.trial": _checkpoint,
    "evals.result": _result,
    "evals.trial_result": _result,
    "evals.audit": _audit,
    "science.forecast": _forecast,
    "science.ladder_forecast": _forecast,
    "science.verdict": _forecast_verdict,
    "datakit.raw": _raw,
    REWARD_CHECKPOINT[0]: _checkpoint,
    "post_training.held_out": _held_out,
    "post_training.audit": _audit,
    ROLLOUTS: _rollouts,
    "synthetic.rollouts": _rollouts,
}
