"""The daily smoke ferry as assets: its roster, every stage of its line, and its report; one partition a day."""

from collections.abc import Iterator
from dataclasses import replace

from datakit.roster import registry_reachable
from lineage.plan import Node
from lineage.store import Store
from marin_assets.data import FILES, ROWS, daily_families
from marin_assets.factory import Family, Invariant
from marin_assets.runs import AUDITED, LOSS, SCORES
from partitions.axes import FIRST_DAY, days
from recipes import ferry
from recipes.lab import FERRY_SOURCES, ferry_line
from recipes.lines import Line
from resources.lab import Lab


def example_line() -> Line:
    """A ferry over every source that some day may use: what the graph shows."""
    return replace(ferry_line(FIRST_DAY, online=True), sources=FERRY_SOURCES)


def roster_node(lab: Lab, day: str | None) -> Node:
    """Ask the registry, then say what the day runs on."""
    pins = ferry.ferry_pins()
    return ferry.roster(str(day), reachable=registry_reachable(pins, lab.ferry_store.downloads))


def ferry_families() -> Iterator[Family]:
    """Every asset of the ferry."""
    line = example_line()
    roster = ferry.roster(FIRST_DAY, reachable=True)
    yield Family(
        example=roster,
        node_at=roster_node,
        store_of=lambda lab: lab.ferry_store,
        group="ferry_sources",
        description="Whether the package registry answers today, and so which sources the ferry runs on.",
        kinds=frozenset({"json"}),
        partitions_def=days(),
        invariants=(ROWS,),
    )
    yield from daily_families(line, ferry.rostered_line, days(), roster.key)
    yield _daily(ferry.final_checkpoint, "The smoke model, trained from scratch on the day's mixture.", {"jax"}, LOSS)
    yield _daily(ferry.ferry_eval, "Held-out bits per byte by domain, and benchmark scores with intervals.", {"jax"}, SCORES)
    yield _daily(
        ferry.ferry_audit,
        "Which benchmark items the day's corpus held, before and after decontamination, and which steps saw them.",
        {"parquet"},
        AUDITED,
    )
    report = _daily(ferry.report, "The page that ends a ferry: stages, loss curve, scores, verdict.", {"html"}, FILES)
    yield replace(report, group="ferry")


def _daily(node, description: str, kinds: set[str], invariant: Invariant) -> Family:
    def at(store: Store, day: str) -> Node:
        return node(ferry.rostered_line(store, day))

    return Family(
        example=node(example_line()),
        node_at=lambda lab, day: at(lab.ferry_store, str(day)),
        store_of=lambda lab: lab.ferry_store,
        group="ferry_runs",
        description=description,
        kinds=frozenset(kinds),
        partitions_def=days(),
        invariants=(invariant,),
    )
