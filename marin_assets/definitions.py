"""The one assembly of the graph: production, tests and notebooks use it."""

from collections.abc import Iterator, Sequence

import dagster as dg

from jobs import campaigns
from marin_assets.canary import canary_asset, canary_data_families, canary_run_family
from marin_assets.data import canonical_families, corpus_families, evaluation_families, own_families
from marin_assets.factory import Family, family_asset
from marin_assets.ferry import ferry_families
from marin_assets.models import model_families
from marin_assets.operations import ferry_expiry_asset, lineage_consistency_asset, pass_rate_asset
from marin_assets.runs import run_assets, run_families
from recipes.ferry import Ferry
from recipes.lab import best_half, cpu_band, default_line, other_lines, smoke_ferry
from recipes.lines import Line
from resources.lab import LabResource, lab_from_environment
from sensors.campaigns import canary_after_ferry, pass_rate_sensors
from sensors.checkpoints import checkpoint_sensor


def families(ferry: Ferry, line: Line, others: Sequence[Line], corpora: Sequence[Line] = ()) -> Iterator[Family]:
    """Every asset that is an artifact. What the other lines share with the first, as they share its nodes, is there once."""
    seen: set[tuple[str, ...]] = set()
    evaluated = map(evaluation_families, (line, *others))
    for each in (canonical_families(line), *map(own_families, others), *map(corpus_families, corpora), *evaluated):
        for family in each:
            if family.example.key not in seen:
                seen.add(family.example.key)
                yield family
    models = [other.start_model for other in others if other.start_model is not None]
    for model in models:
        yield from model_families(model, line)
    yield from canary_data_families("cpu")
    yield canary_run_family("cpu")
    yield from ferry_families(ferry)


def build_defs(
    lab: LabResource, *, ferry: Ferry, line: Line, others: Sequence[Line] = (), corpora: Sequence[Line] = ()
) -> dg.Definitions:
    """Assets, jobs, schedules and sensors over a lab: `ferry` sails daily, `line` and `others` have a declared run each.

    `corpora` are lines whose corpora over the same sources stand beside that of `line`.
    """
    sail, canary, rates = campaigns.ferry_job(), campaigns.canary_job("cpu"), campaigns.pass_rate_job()
    runs = [(each, campaigns.eval_job(each.run.name), campaigns.audit_job(each.run.name)) for each in (line, *others)]
    expiry, consistency = campaigns.expiry_job(), campaigns.consistency_job()
    definitions = dg.Definitions(
        assets=[
            *(family_asset(family) for family in families(ferry, line, others, corpora)),
            *(asset for each, _, _ in runs for asset in run_assets(each)),
            canary_asset(cpu_band()),
            pass_rate_asset("ferry"),
            pass_rate_asset("canary_cpu"),
            ferry_expiry_asset(),
            lineage_consistency_asset(lambda: definitions.resolve_asset_graph()),
        ],
        jobs=[sail, canary, rates, *(job for _, evaluate, audit in runs for job in (evaluate, audit)), expiry, consistency],
        schedules=campaigns.schedules(sail, expiry, consistency),
        sensors=[
            *(checkpoint_sensor(each, evaluate, audit) for each, evaluate, audit in runs),
            canary_after_ferry(canary),
            *pass_rate_sensors(rates),
        ],
        resources={"lab": lab},
    )
    return definitions


def declared_defs(lab: LabResource) -> dg.Definitions:
    """All that the lab declares today, over a lab."""
    return build_defs(lab, ferry=smoke_ferry(), line=default_line(), others=other_lines(), corpora=(best_half(),))


def declared_families() -> Iterator[Family]:
    """Every asset that is an artifact, those of the declared runs included (their checkpoints come from training)."""
    yield from families(smoke_ferry(), default_line(), other_lines(), (best_half(),))
    for line in (default_line(), *other_lines()):
        yield from run_families(line)


defs = declared_defs(lab_from_environment())
