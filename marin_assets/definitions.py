"""The one assembly of the graph: production, tests and notebooks use it."""

import gc
import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

import dagster as dg

from evals.items.stage import EVAL_RESULT
from jobs import campaigns, upkeep
from marin_assets.alerts import alerts_asset
from marin_assets.annealings import verdict_template
from marin_assets.areas import owners
from marin_assets.canary import canary_asset, canary_data, canary_training
from marin_assets.comparisons import correlation_template, gap_families, leaderboard_asset, promotion_template
from marin_assets.data import card_assets, corpus_assets, evaluation_assets, mix_assets, policy_assets
from marin_assets.dependency_canary import dependency_canary_asset
from marin_assets.factory import AssetTemplate, asset_of
from marin_assets.ferry import ferry_assets, working_ferry
from marin_assets.histories import history_specs
from marin_assets.laws import forecast_templates, law_templates, verdicts_asset
from marin_assets.models import model_assets
from marin_assets.operations import ferry_expiry_asset, lineage_consistency_asset, pass_rate_asset
from marin_assets.probes import probes_asset
from marin_assets.rewards import environment_templates, reward_templates, reward_training
from marin_assets.runs import run_templates, training_asset
from marin_assets.scouts import SCOUTS, scout_asset, scouts_asset
from marin_assets.searches import search_asset, search_data, search_templates, trial_templates
from marin_assets.site import site_asset
from marin_assets.storage_report import storage_report_asset
from marin_assets.swarms import swarm_templates
from marin_assets.sweeps import sweep_asset, sweep_data, sweep_templates
from marin_assets.synthetic import synthetic_templates
from marin_assets.table import AssetTable
from marin_assets.telemetry import traces_asset
from marin_assets.transparency import transparency_log_asset
from marin_assets.weekly import weekly_report_asset
from recipes import data
from recipes.annealings import Annealing
from recipes.correlations import correlation_node
from recipes.ferry import Ferry
from recipes.gaps import gap_node
from recipes.histories.declared import declared_histories
from recipes.lab import Broken, Declarations, declarations
from recipes.models import PublishedModel
from recipes.promotions import promotion_node
from recipes.records.reward_run import RewardRun
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.records.synthetic import SyntheticSet
from recipes.runs import mixture, policy
from recipes.searches import Search
from recipes.swarms import Swarm
from recipes.sweeps import table as table_of_sweep
from resources.executor import one_here_many_apart
from resources.lab import LabResource, lab_from_environment
from sensors.campaigns import canary_after_ferry, pass_rate_sensors
from sensors.checkpoints import checkpoint_sensor
from sensors.committed import committed_sensor
from sensors.conditions import condition_sensor
from sensors.rewards import reward_sensor
from sensors.searches import search_sensor

log = logging.getLogger(__name__)


def tabled(declared: Declarations) -> tuple[AssetTable, Declarations]:
    """Return the canonical assets of what is declared, and the declarations without those that could never be built.

    A declaration whose ancestors are not what the assets of their keys make is moved to `broken` and logged.
    """
    table, broken = AssetTable(), list(declared.broken)

    def kept[T](records: Sequence[T], name, add) -> tuple[T, ...]:
        kept_records = []
        for record in records:
            try:
                add(record)
                kept_records.append(record)
            except ValueError as error:
                broken.append(Broken(name(record), declared.study_of.get(name(record), "?"), str(error)))
                log.error("%s", broken[-1])
        return tuple(kept_records)

    sweeps = kept(declared.sweeps, lambda sweep: sweep.name, lambda sweep: table.add(*_of_sweep(sweep)))
    declared_sweeps = {sweep.name for sweep in sweeps}
    searches = kept(declared.searches, lambda of: of.name, lambda search: table.add(*_of_search(search, declared_sweeps)))
    swarms = kept(declared.swarms, lambda swarm: swarm.name, lambda swarm: table.add(*_of_swarm(swarm)))
    runs = kept(declared.runs, lambda run: run.name, lambda run: table.add(*_of_run(run)))
    annealings = kept(declared.annealings, lambda of: of.name, lambda of: table.add(*_of_annealing(of)))
    rewards = kept(declared.rewards, lambda run: run.name, lambda run: table.add(*_of_rewards(run)))
    synthetic = kept(declared.synthetic, lambda of: of.name, lambda of: table.add(*_of_synthetic(of)))
    _add_cards(table, runs)
    corpora = kept(
        declared.corpora, lambda corpus: corpus.name, lambda corpus: table.add(corpus_assets(corpus), data.corpora(corpus))
    )
    policies = kept(
        declared.policies, lambda corpus: corpus.name, lambda corpus: table.add(policy_assets(corpus), data.corpora(corpus))
    )
    gaps = kept(declared.gaps, lambda gap: gap.name, lambda gap: table.add(gap_families([gap]), [gap_node(gap)]))
    promotions = kept(
        declared.promotions, lambda of: of.name, lambda of: table.add([promotion_template(of)], [promotion_node(of)])
    )
    correlations = kept(
        declared.correlations, lambda of: of.name, lambda of: table.add([correlation_template(of)], [correlation_node(of)])
    )
    canaries = kept(declared.canaries, lambda canary: canary.campaign, lambda canary: table.add(*canary_data(canary)))
    return table, replace(
        declared,
        runs=runs,
        sweeps=sweeps,
        searches=searches,
        swarms=swarms,
        annealings=annealings,
        rewards=rewards,
        synthetic=synthetic,
        corpora=corpora,
        policies=policies,
        gaps=gaps,
        promotions=promotions,
        correlations=correlations,
        canaries=canaries,
        broken=tuple(broken),
    )


def _of_run(run: Run) -> tuple[Iterator[AssetTemplate], list]:
    """Return all assets of a run, and the nodes whose ancestors must be among them."""
    models = {model.name: model for model in (run.start, run.tokens.base_tokenizer) if isinstance(model, PublishedModel)}
    templates = (*run_templates(run), *forecast_templates(run))
    of_models = (asset for model in models.values() for asset in model_assets(model, run))
    assets = chain(mix_assets(run), evaluation_assets(run), of_models, templates)
    return assets, [policy(run), *(template.example for template in templates)]


def _of_annealing(of: Annealing) -> tuple[Iterator[AssetTemplate], list]:
    """Return all assets of branches from one checkpoint, and the nodes whose ancestors must be among them."""
    verdict = verdict_template(of)
    return chain(sweep_data(of.trials), sweep_templates(of.trials), [verdict]), [verdict.example]


def _of_rewards(run: RewardRun) -> tuple[Iterator[AssetTemplate], list]:
    """Return all assets of a run on rewards, and the nodes whose ancestors must be among them."""
    templates = reward_templates(run)
    return chain(environment_templates(run), templates), [template.example for template in templates]


def _of_synthetic(of: SyntheticSet) -> tuple[Iterator[AssetTemplate], list]:
    """Return the assets of a synthetic set, and the nodes whose ancestors must be among them."""
    templates = tuple(synthetic_templates(of))
    return iter(templates), [template.example for template in templates]


def _of_sweep(sweep: Sweep) -> tuple[Iterator[AssetTemplate], list]:
    """Return all assets of a sweep, and the nodes whose ancestors must be among them."""
    laws = tuple(law_templates(sweep))
    return chain(sweep_data(sweep), sweep_templates(sweep), laws), [template.example for template in laws]


def _of_search(search: Search, sweeps: Collection[str]) -> tuple[Iterator[AssetTemplate], list]:
    """Return all assets of a search, and the nodes whose ancestors must be among them.

    Raises: ValueError if its first sweep is not declared.
    """
    if search.first.name not in sweeps:
        raise ValueError(f"search {search.name}: its first sweep {search.first.name} is not declared; add it to the study")
    assets = chain(search_data(search), trial_templates(search), search_templates(search))
    return assets, [mixture(search.example), table_of_sweep(search.first)]


def _of_swarm(swarm: Swarm) -> tuple[Iterator[AssetTemplate], list]:
    """Return all assets of a swarm, and the nodes whose ancestors must be among them."""
    made = tuple(swarm_templates(swarm))
    every = chain(*(chain(sweep_data(part), sweep_templates(part)) for part in swarm.parts), made)
    return every, [template.example for template in made]


def _add_cards(table: AssetTable, runs: Sequence[Run]) -> None:
    """Add cards of every corpus that is trained on. A card shows one token cache: that of a trained tokenizer, if any."""
    by_corpus = {}
    for run in sorted(runs, key=lambda run: isinstance(run.tokens.base_tokenizer, PublishedModel)):
        by_corpus.setdefault(run.corpus.name, run.tokens)
    for tokens in by_corpus.values():
        table.add(card_assets(tokens), [data.card(tokens, source) for source in tokens.sources])


type LabOrResource = LabResource | dg.ResourceDefinition
"""A lab as configured, or one that a command has opened (`dg.ResourceDefinition.hardcoded_resource`)."""


@contextmanager
def without_collections() -> Iterator[None]:
    """Pause the cyclic garbage collector: a graph keeps what it allocates, and the passes take a tenth of its load."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@without_collections()
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
    made = [template for template in every if not template.is_external]
    sweeps = [
        *declared.sweeps,
        *(part for swarm in declared.swarms for part in swarm.parts),
        *(annealing.trials for annealing in declared.annealings),
    ]
    of_sweeps = {template.example.key for sweep in sweeps for template in sweep_templates(sweep)}
    of_sweeps |= {template.example.key for search in declared.searches for template in trial_templates(search)}
    by_factory = [template for template in every if template.example.key not in of_sweeps]
    definitions = dg.Definitions(
        assets=[
            *(asset_of(template) for template in by_factory),
            *(sweep_asset(sweep) for sweep in sweeps),
            *(search_asset(search) for search in declared.searches),
            *(training_asset(run) for run in declared.runs),
            *(reward_training(run) for run in declared.rewards),
            leaderboard_asset(results_of(every), declared.runs),
            verdicts_asset(declared.runs),
            *(canary_asset(canary) for canary in declared.canaries),
            *(pass_rate_asset(name) for name in names),
            ferry_expiry_asset(),
            lineage_consistency_asset(lambda: definitions.resolve_asset_graph()),
            transparency_log_asset(),
            alerts_asset(names),
            weekly_report_asset(names),
            *(scout_asset(name) for name in SCOUTS),
            scouts_asset(),
            site_asset(names),
            probes_asset(),
            storage_report_asset(),
            dependency_canary_asset(),
            traces_asset(),
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
            committed_sensor(made),
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
