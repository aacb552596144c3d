"""The one assembly of the graph: production, tests and notebooks use it."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import dagster as dg

from evals.items.stage import EVAL_RESULT
from jobs import campaigns, upkeep
from lineage.memory import without_collections
from marin_assets.alerts import alerts_asset
from marin_assets.areas import owners
from marin_assets.canary import canary_asset, canary_training
from marin_assets.comparisons import leaderboard_asset
from marin_assets.declared_table import tabled
from marin_assets.dependency_canary import dependency_canary_asset
from marin_assets.factory import AssetTemplate, asset_of
from marin_assets.ferry import ferry_assets, working_ferry
from marin_assets.histories import history_specs
from marin_assets.laws import verdicts_asset
from marin_assets.operations import ferry_expiry_asset, lineage_consistency_asset, pass_rate_asset
from marin_assets.probes import probes_asset
from marin_assets.rewards import reward_training
from marin_assets.runs import training_asset
from marin_assets.scouts import SCOUTS, scout_asset, scouts_asset
from marin_assets.searches import search_asset, trial_templates
from marin_assets.site import site_asset
from marin_assets.storage_report import storage_report_asset
from marin_assets.sweeps import sweep_asset, sweep_templates
from marin_assets.telemetry import traces_asset
from marin_assets.transparency import transparency_log_asset
from marin_assets.weekly import weekly_report_asset
from recipes.ferry import Ferry
from recipes.histories.declared import declared_histories
from recipes.lab import Broken, Declarations, declarations
from resources.dagster_private import BaseAssetGraph
from resources.executor import one_here_many_apart
from resources.lab import LabResource, lab_from_environment
from sensors.campaigns import canary_after_ferry, pass_rate_sensors
from sensors.checkpoints import checkpoint_sensor
from sensors.committed import committed_sensor
from sensors.conditions import condition_sensor
from sensors.rewards import reward_sensor
from sensors.searches import search_sensor

log = logging.getLogger(__name__)


type LabOrResource = LabResource | dg.ResourceDefinition
"""A lab as configured, or one that a command has opened (`dg.ResourceDefinition.hardcoded_resource`)."""


@without_collections()  # a graph keeps what it allocates, and the passes take a tenth of its load
def build_defs(lab: LabOrResource, *, ferry: Ferry | None, declared: Declarations) -> dg.Definitions:
    """Assemble assets, jobs, schedules and sensors over a lab: `ferry` runs daily, and every declaration has its assets.

    Without a ferry there is no daily run; a mistake has disabled it.
    """
    table, declared = tabled(declared)
    names = [campaigns.FERRY, *(canary.campaign for canary in declared.canaries)]
    daily = [campaigns.ferry_job()] if ferry else []
    rates = upkeep.pass_rate_job(names)
    canaries = [campaigns.canary_job(canary) for canary in declared.canaries]
    every = [*table, *(canary_training(canary) for canary in declared.canaries), *(ferry_assets(ferry) if ferry else ())]
    materializable = [template for template in every if not template.is_external]
    definitions = dg.Definitions(
        assets=[
            *_research_assets(every, declared),
            *(canary_asset(canary) for canary in declared.canaries),
            *_operations_assets(names, lambda: definitions.resolve_asset_graph()),
            *history_specs(declared_histories()),
            *(broken_spec(broken) for broken in declared.broken),
        ],
        jobs=[*daily, *canaries, rates],
        schedules=[
            *(campaigns.ferry_schedule(job) for job in daily),
            campaigns.weekly_schedule(),
            *upkeep.upkeep_schedules(),
        ],
        sensors=[
            checkpoint_sensor(declared.runs),
            *([reward_sensor(declared.rewards)] if declared.rewards else []),
            *round_sensors(declared),
            *(canary_after_ferry(job) for job in canaries),
            committed_sensor(materializable),
            condition_sensor(),
            *pass_rate_sensors(rates),
        ],
        resources={"lab": lab},
        executor=one_here_many_apart,
    )
    return definitions


def round_sensors(declared: Declarations) -> list[dg.SensorDefinition]:
    """Return the sensor that adds rounds, if a search or a swarm has any."""
    swarms = [swarm for swarm in declared.swarms if swarm.second is not None]
    return [search_sensor(declared.searches, swarms)] if declared.searches or swarms else []


def _research_assets(every: Sequence[AssetTemplate], declared: Declarations) -> Iterator[dg.AssetsDefinition | dg.AssetSpec]:
    """Yield the assets of templates and of declared records; trials have one asset for each sweep or search."""
    sweeps = [
        *declared.sweeps,
        *(part for swarm in declared.swarms for part in swarm.parts),
        *(annealing.trials for annealing in declared.annealings),
        *(arm for proxy in declared.proxies for arm in proxy.arms),
    ]
    of_sweeps = {template.example.key for sweep in sweeps for template in sweep_templates(sweep)}
    of_sweeps |= {template.example.key for search in declared.searches for template in trial_templates(search)}
    yield from (asset_of(template) for template in every if template.example.key not in of_sweeps)
    yield from (sweep_asset(sweep) for sweep in sweeps)
    yield from (search_asset(search) for search in declared.searches)
    yield from (training_asset(run) for run in declared.runs)
    yield from (reward_training(run) for run in declared.rewards)
    yield leaderboard_asset(results_of(every), declared.runs)
    yield verdicts_asset(declared.runs)


def _operations_assets(names: list[str], graph: Callable[[], BaseAssetGraph]) -> Iterator[dg.AssetsDefinition]:
    """Yield the assets that watch the lab; `names` are those of its campaigns."""
    yield from (pass_rate_asset(name) for name in names)
    yield ferry_expiry_asset()
    yield lineage_consistency_asset(graph)
    yield transparency_log_asset()
    yield alerts_asset(names)
    yield weekly_report_asset(names)
    yield from (scout_asset(name) for name in SCOUTS)
    yield scouts_asset()
    yield site_asset(names)
    yield probes_asset()
    yield storage_report_asset()
    yield dependency_canary_asset()
    yield traces_asset()


def broken_spec(broken: Broken) -> dg.AssetSpec:
    """Return an entry of the group `broken`, so that the UI lists what a mistake has disabled."""
    return dg.AssetSpec(
        key=["broken", broken.name],
        group_name="broken",
        description=f"DISABLED: {broken}",
        owners=owners("broken"),
        kinds={"error"},
        code_version="broken/1",
    )


def results_of(templates: Sequence[AssetTemplate]) -> list[dg.AssetKey]:
    """Return the assets that hold results of evaluations, without those of ferries, which expire."""
    keys = [each.example.key for each in templates if each.example.stage is EVAL_RESULT and each.example.key[0] != "ferry"]
    return [dg.AssetKey(list(key)) for key in keys]


def declared_defs(lab: LabOrResource) -> dg.Definitions:
    """Assemble all that the lab declares today, over a lab."""
    declared = declarations()
    ferry = working_ferry()
    if isinstance(ferry, Broken):
        log.error("%s", ferry)
        return build_defs(lab, ferry=None, declared=replace(declared, broken=(*declared.broken, ferry)))
    return build_defs(lab, ferry=ferry, declared=declared)


def declared_templates() -> Iterator[AssetTemplate]:
    """Yield the template of every asset that is an artifact, of what is declared today."""
    table, declared = tabled(declarations())
    yield from table
    yield from (canary_training(canary) for canary in declared.canaries)
    if isinstance(ferry := working_ferry(), Ferry):
        yield from ferry_assets(ferry)


defs = declared_defs(lab_from_environment())
