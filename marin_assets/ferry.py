"""A ferry as assets: its roster, every stage of its run, and its report; one partition a day."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from datakit.sources.roster import registry_reachable
from evals.tasks.policy import POLICY
from lineage.build.nodes import Node
from marin_assets.data import daily_assets
from marin_assets.data_stages import FILES, ROWS
from marin_assets.factory import AssetTemplate, Invariant
from marin_assets.references import every_day
from marin_assets.runs import AUDITED, CLEAN, LOSS, SCORED_ITEMS, SCORES
from partitions.axes import FIRST_DAY, days
from recipes import ferry as recipe
from recipes.daily import daily_ferry
from recipes.ferry import Ferry
from recipes.lab import Broken
from recipes.records.run import Run
from recipes.runs import policy
from recipes.sources import own_recipes
from resources.lab import Lab


def working_ferry() -> Ferry | Broken:
    """Return the lab's daily ferry, or why it is disabled: a mistake in its declaration must not stop the lab."""
    try:
        return daily_ferry()
    except Exception as error:  # whatever a recipe file raises, the other assets load
        return Broken("ferry", " and ".join(own_recipes().ferries), f"{type(error).__name__}: {error}")


def ferry_assets(ferry: Ferry) -> Iterator[AssetTemplate]:
    """Return every asset of a ferry."""
    roster = recipe.roster(ferry, FIRST_DAY, reachable=True)
    yield AssetTemplate(
        example=roster,
        node_at=lambda lab, day: _roster_today(ferry, lab, str(day)),
        store_of=lambda lab: lab.ferry_store,
        group="ferry_data",
        description="Whether the package registry answers today, and so which sources the ferry runs on.",
        kinds=frozenset({"json"}),
        partitions_def=days(),
        invariants=(ROWS,),
    )
    yield from daily_assets(
        ferry.every_source(FIRST_DAY),
        ferry.suite_sources(),
        lambda store, day: recipe.rostered_run(ferry, store, day),
        days(),
        roster.key,
    )
    yield _final(ferry, recipe.final_checkpoint, "The smoke model, trained from scratch on the day's mixture.", "jax", LOSS)
    yield _final(ferry, policy, POLICY.description, "json", FILES)
    yield _final(
        ferry, recipe.final_eval, "Held-out bits per byte by domain, and benchmark scores with intervals.", "jax", SCORES
    )
    yield _final(ferry, recipe.final_contamination_scores, SCORED_ITEMS, "jax", ROWS)
    audit = _final(
        ferry,
        recipe.final_audit,
        "Which benchmark items the day's corpus held, before and after decontamination, which steps saw them, what it changed.",
        "parquet",
        AUDITED,
    )
    yield replace(audit, advisories=(CLEAN,))
    report = _final(ferry, recipe.report, "The page that ends a ferry: stages, loss curve, scores, verdict.", "html", FILES)
    yield replace(report, freshness=every_day())


def _roster_today(ferry: Ferry, lab: Lab, day: str) -> Node:
    """Check the registry, then record what the day runs on."""
    return recipe.roster(ferry, day, reachable=registry_reachable(recipe.pins(ferry), lab.ferry_store.downloads))


def _final(ferry: Ferry, node: Callable[[Run], Node], description: str, kind: str, invariant: Invariant) -> AssetTemplate:
    return AssetTemplate(
        example=node(ferry.every_source(FIRST_DAY)),
        node_at=lambda lab, day: node(recipe.rostered_run(ferry, lab.ferry_store, str(day))),
        store_of=lambda lab: lab.ferry_store,
        group="ferry_run",
        description=description,
        kinds=frozenset({kind}),
        partitions_def=days(),
        invariants=(invariant,),
    )
