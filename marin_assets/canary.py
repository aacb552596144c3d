"""Canaries: one fixed run a day on one kind of hardware, and the verdict on it.

A canary fails for one of two reasons, and its check names which: the loss left its recorded band (a *regression* of code or
numerics), or the run could not finish (*infrastructure*). Low speed is a warning. It is compared with the median of recent
runs, never with one sample.
"""

import statistics
from collections.abc import Iterator
from itertools import chain

import dagster as dg

from lineage.artifact.store import Artifact
from lineage.build.nodes import Node, resolve
from marin_assets.areas import owners
from marin_assets.data import card_assets, mix_assets
from marin_assets.factory import AssetTemplate
from marin_assets.references import every_day
from marin_assets.runs import LOSS
from partitions.axes import FIRST_DAY, days
from recipes.canary import Canary, canary_run
from recipes.runs import checkpoint
from resources.lab import Lab


def canary_data(of: Canary) -> tuple[Iterator[AssetTemplate], list[Node]]:
    """Return canonical assets of the canary's fixed data, which are made once, and the nodes that must be among them."""
    run = canary_run(of.hardware, None)
    assets = chain(mix_assets(run), card_assets(run.tokens))
    return assets, list(_checkpoint(of, FIRST_DAY).parents())


def canary_training(of: Canary) -> AssetTemplate:
    """Return the asset of the day's training run."""
    return AssetTemplate(
        example=_checkpoint(of, FIRST_DAY),
        node_at=lambda lab, day: _checkpoint(of, str(day)),
        store_of=lambda lab: lab.store,
        builds_inputs=tuple(_checkpoint(of, FIRST_DAY).inputs),
        group="canary",
        description=f"Fixed data, fixed spec, trained again every day on {of.hardware}.",
        kinds=frozenset({"jax"}),
        partitions_def=days(),
        invariants=(LOSS,),
    )


def canary_asset(of: Canary) -> dg.AssetsDefinition:
    """Return the verdict of a day: loss inside the band (blocking), throughput near the recent median (warning)."""
    key = dg.AssetKey(["canary", of.hardware])

    @dg.asset(
        key=key,
        deps=[dg.AssetKey(list(_checkpoint(of, FIRST_DAY).key))],
        partitions_def=days(),
        group_name="canary",
        description="Did the fixed run land where it always lands, and as fast as lately?",
        owners=owners("canary"),
        kinds={"jax"},
        code_version="canary/1",
        freshness_policy=every_day("0 18 * * *"),
        check_specs=[
            dg.AssetCheckSpec(
                "loss_in_band",
                asset=key,
                blocking=True,
                description=f"final loss within {_band_text(of)}",
            ),
            dg.AssetCheckSpec(
                "throughput_near_median",
                asset=key,
                description=f"tokens a second at least {of.min_throughput_ratio:.0%} of the median of recent runs",
            ),
        ],
    )
    def canary(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        today = resolve(lab.store, _checkpoint(of, context.partition_key))
        loss = float(today.manifest.extra["checkpoint"]["loss_nats"])
        speed = _tokens_per_second(today)
        earlier = recent_throughputs(lab, of, before=context.partition_key)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(today.data_version),
            metadata={
                "loss_nats": loss,
                "tokens_per_second": speed,
                "median_of_recent": statistics.median(earlier) if earlier else 0.0,
                "recent_runs": len(earlier),
            },
            check_results=[loss_check(of, loss), throughput_check(of, speed, earlier)],
        )

    return canary


def loss_check(of: Canary, loss_nats: float) -> dg.AssetCheckResult:
    """Check that the loss is inside the band of the recorded runs. Without a recorded run it warns that nobody judged it."""
    if of.band is None:
        return dg.AssetCheckResult(
            check_name="loss_in_band",
            passed=False,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"not judged: no run on {of.hardware} is recorded, so there is no band for its loss of {loss_nats:.4f} "
            "nats. Look at its curve, then add the run to RECORDED in recipes/canary.py",
        )
    return dg.AssetCheckResult(
        check_name="loss_in_band",
        passed=of.band[0] <= loss_nats <= of.band[1],
        description=f"regression check: final loss {loss_nats:.4f} nats, band {_band_text(of)}",
    )


def _band_text(of: Canary) -> str:
    if of.band is None:
        return f"a band that no recorded run on {of.hardware} gives yet"
    return f"[{of.band[0]:.3f}, {of.band[1]:.3f}] nats, from {len(of.recorded)} recorded runs"


def throughput_check(of: Canary, speed: float, earlier: list[float]) -> dg.AssetCheckResult:
    """Warn about low throughput. It is judged only against a median of enough runs."""
    if len(earlier) < of.min_runs:
        description, passed = f"{len(earlier)} earlier runs, {of.min_runs} are needed for a median: not judged", True
    else:
        median = statistics.median(earlier)
        passed = speed >= of.min_throughput_ratio * median
        description = f"{speed:,.0f} tokens/s, median of the last {len(earlier)} runs {median:,.0f}"
    return dg.AssetCheckResult(
        check_name="throughput_near_median", passed=passed, severity=dg.AssetCheckSeverity.WARN, description=description
    )


def recent_throughputs(lab: Lab, of: Canary, before: str) -> list[float]:
    """Return tokens a second of the latest canary runs of earlier days, oldest first."""
    runs = {
        str(artifact.spec.partition): artifact
        for artifact in lab.store.artifacts(*_checkpoint(of, before).key)
        if str(artifact.spec.partition) < before
    }
    return [_tokens_per_second(runs[day]) for day in sorted(runs)[-of.window_runs :]]


def _tokens_per_second(checkpoint: Artifact) -> float:
    return float(checkpoint.manifest.extra["throughput"]["tokens_per_second"])


def _checkpoint(of: Canary, day: str) -> Node:
    run = canary_run(of.hardware, day)
    return checkpoint(run, run.spec.num_steps)
