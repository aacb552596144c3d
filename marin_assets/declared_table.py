"""Which assets each declared record has: runs, sweeps, searches, swarms, branches, corpora and more.

What one record means for the graph belongs here. Assembling jobs, schedules and sensors belongs in `definitions.py`.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from marin_assets.canary import canary_data
from marin_assets.comparisons import correlation_template, gap_families, promotion_template
from marin_assets.data import card_assets, corpus_assets, evaluation_assets, label_assets, mix_assets, policy_assets
from marin_assets.factory import AssetTemplate
from marin_assets.in_pairs import annealing_template, proxy_template
from marin_assets.laws import forecast_templates, law_templates
from marin_assets.models import model_assets
from marin_assets.rewards import environment_templates, reward_templates
from marin_assets.runs import run_templates
from marin_assets.searches import search_data, search_templates, trial_templates
from marin_assets.swarms import swarm_templates
from marin_assets.sweeps import sweep_data, sweep_templates
from marin_assets.synthetic import synthetic_templates
from marin_assets.table import AssetTable
from recipes import data, tokenized
from recipes.annealings import Annealing
from recipes.correlations import correlation_node
from recipes.gaps import gap_node
from recipes.lab import Broken, Declarations
from recipes.labels import labels
from recipes.models import PublishedModel
from recipes.promotions import promotion_node
from recipes.proxies import Proxy
from recipes.records.labels import DocumentLabels
from recipes.records.reward_run import RewardRun
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.records.synthetic import SyntheticSet
from recipes.runs import mixture, policy
from recipes.searches import Search
from recipes.swarms import Swarm
from recipes.sweeps import table as table_of_sweep

log = logging.getLogger(__name__)


def tabled(declared: Declarations) -> tuple[AssetTable, Declarations]:
    """Return the canonical assets of what is declared, and the declarations without those that could never be built.

    A declaration whose ancestors are not what the assets of their keys make is moved to `broken` and logged.
    """
    table, broken = AssetTable(), list(declared.broken)

    def sound[T](records: Sequence[T], name, add) -> tuple[T, ...]:
        sound_records = []
        for record in records:
            try:
                add(record)
                sound_records.append(record)
            except ValueError as error:
                broken.append(Broken(name(record), declared.study_of.get(name(record), "?"), str(error)))
                log.error("%s", broken[-1])
        return tuple(sound_records)

    sweeps = sound(declared.sweeps, lambda sweep: sweep.name, lambda sweep: table.add(*_of_sweep(sweep)))
    declared_sweeps = {sweep.name for sweep in sweeps}
    searches = sound(declared.searches, lambda of: of.name, lambda search: table.add(*_of_search(search, declared_sweeps)))
    swarms = sound(declared.swarms, lambda swarm: swarm.name, lambda swarm: table.add(*_of_swarm(swarm)))
    runs = sound(declared.runs, lambda run: run.name, lambda run: table.add(*_of_run(run)))
    annealings = sound(declared.annealings, lambda of: of.name, lambda of: table.add(*_of_annealing(of)))
    proxies = sound(declared.proxies, lambda of: of.name, lambda of: table.add(*_of_proxy(of)))
    rewards = sound(declared.rewards, lambda run: run.name, lambda run: table.add(*_of_rewards(run)))
    synthetic = sound(declared.synthetic, lambda of: of.name, lambda of: table.add(*_of_synthetic(of)))
    labelled = sound(declared.labels, lambda of: of.name, lambda of: table.add(*_of_labels(of)))
    _add_cards(table, runs)
    corpora = sound(
        declared.corpora, lambda corpus: corpus.name, lambda corpus: table.add(corpus_assets(corpus), data.corpora(corpus))
    )
    policies = sound(
        declared.policies, lambda corpus: corpus.name, lambda corpus: table.add(policy_assets(corpus), data.corpora(corpus))
    )
    gaps = sound(declared.gaps, lambda gap: gap.name, lambda gap: table.add(gap_families([gap]), [gap_node(gap)]))
    promotions = sound(
        declared.promotions, lambda of: of.name, lambda of: table.add([promotion_template(of)], [promotion_node(of)])
    )
    correlations = sound(
        declared.correlations, lambda of: of.name, lambda of: table.add([correlation_template(of)], [correlation_node(of)])
    )
    canaries = sound(declared.canaries, lambda canary: canary.campaign, lambda canary: table.add(*canary_data(canary)))
    return table, replace(
        declared,
        runs=runs,
        sweeps=sweeps,
        searches=searches,
        swarms=swarms,
        annealings=annealings,
        proxies=proxies,
        rewards=rewards,
        synthetic=synthetic,
        labels=labelled,
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
    return _of_trials([of.trials], [annealing_template(of)])


def _of_proxy(of: Proxy) -> tuple[Iterator[AssetTemplate], list]:
    """Return all assets of small models that judge a corpus, and the nodes whose ancestors must be among them."""
    return _of_trials(of.arms, [proxy_template(of)])


def _of_rewards(run: RewardRun) -> tuple[Iterator[AssetTemplate], list]:
    """Return all assets of a run on rewards, and the nodes whose ancestors must be among them."""
    templates = reward_templates(run)
    return chain(environment_templates(run), templates), [template.example for template in templates]


def _of_synthetic(of: SyntheticSet) -> tuple[Iterator[AssetTemplate], list]:
    """Return the assets of a synthetic set, and the nodes whose ancestors must be among them."""
    templates = tuple(synthetic_templates(of))
    return iter(templates), [template.example for template in templates]


def _of_labels(of: DocumentLabels) -> tuple[Iterator[AssetTemplate], list]:
    """Return the assets of a model's labels, and the nodes whose ancestors must be among them."""
    return label_assets(of), [labels(of, source) for source in of.sources]


def _of_sweep(sweep: Sweep) -> tuple[Iterator[AssetTemplate], list]:
    """Return all assets of a sweep, and the nodes whose ancestors must be among them."""
    return _of_trials([sweep], tuple(law_templates(sweep)))


def _of_trials(sweeps: Sequence[Sweep], after: Sequence[AssetTemplate]) -> tuple[Iterator[AssetTemplate], list]:
    """Return the assets of trials and what is made of them, and the nodes of the latter."""
    trials = (chain(sweep_data(sweep), sweep_templates(sweep)) for sweep in sweeps)
    return chain(*trials, after), [template.example for template in after]


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
    return _of_trials(swarm.parts, tuple(swarm_templates(swarm)))


def _add_cards(table: AssetTable, runs: Sequence[Run]) -> None:
    """Add cards of every corpus that is trained on. A card shows one token cache: that of a trained tokenizer, if any."""
    by_corpus = {}
    for run in sorted(runs, key=lambda run: isinstance(run.tokens.base_tokenizer, PublishedModel)):
        tokens = run.tokens
        while tokens is not None:
            by_corpus.setdefault(tokens.corpus.name, tokens)
            tokens = tokens.earlier
    for tokens in by_corpus.values():
        table.add(card_assets(tokens), [tokenized.card(tokens, source) for source in tokens.own_sources])
