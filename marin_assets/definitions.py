"""The one assembly of the graph: production, tests and notebooks use it."""

from collections.abc import Iterator

import dagster as dg

from jobs import campaigns
from marin_assets.canary import canary_asset, canary_data_families, canary_run_family
from marin_assets.data import canonical_families
from marin_assets.factory import Family, family_asset
from marin_assets.ferry import ferry_families
from marin_assets.operations import ferry_expiry_asset, lineage_consistency_asset, pass_rate_asset
from marin_assets.runs import run_assets
from recipes.ferry import Ferry
from recipes.lab import cpu_band, default_line, smoke_ferry
from recipes.lines import Line
from resources.lab import LabResource, lab_from_environment
from sensors.campaigns import canary_after_ferry, pass_rate_sensors
from sensors.checkpoints import checkpoint_sensor


def families(ferry: Ferry, line: Line) -> Iterator[Family]:
    """Every asset that is an artifact."""
    yield from canonical_families(line)
    yield from canary_data_families("cpu")
    yield canary_run_family("cpu")
    yield from ferry_families(ferry)


def build_defs(lab: LabResource, *, ferry: Ferry, line: Line) -> dg.Definitions:
    """Assets, jobs, schedules and sensors over a lab: `ferry` sails daily, `line` has the declared run."""
    sail, canary, rates = campaigns.ferry_job(), campaigns.canary_job("cpu"), campaigns.pass_rate_job()
    evaluate, audit = campaigns.eval_job(line.run.name), campaigns.audit_job(line.run.name)
    expiry, consistency = campaigns.expiry_job(), campaigns.consistency_job()
    definitions = dg.Definitions(
        assets=[
            *(family_asset(family) for family in families(ferry, line)),
            *run_assets(line),
            canary_asset(cpu_band()),
            pass_rate_asset("ferry"),
            pass_rate_asset("canary_cpu"),
            ferry_expiry_asset(),
            lineage_consistency_asset(lambda: definitions.resolve_asset_graph()),
        ],
        jobs=[sail, canary, rates, evaluate, audit, expiry, consistency],
        schedules=campaigns.schedules(sail, expiry, consistency),
        sensors=[
            checkpoint_sensor(line, evaluate, audit),
            canary_after_ferry(canary),
            *pass_rate_sensors(rates),
        ],
        resources={"lab": lab},
    )
    return definitions


defs = build_defs(lab_from_environment(), ferry=smoke_ferry(), line=default_line())
