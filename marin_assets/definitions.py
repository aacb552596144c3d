"""The one assembly of the graph: production, tests and notebooks use it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import dagster as dg

from evals.items.stage import EVAL_RESULT
from jobs import campaigns
from lineage.build.plan import Node
from lineage.config import to_jsonable
from marin_assets.canary import canary_asset, canary_data_families, canary_run_family
from marin_assets.comparisons import gap_families, leaderboard_asset
from marin_assets.data import canonical_families, corpus_families, evaluation_families, own_families
from marin_assets.factory import AssetTemplate, family_asset
from marin_assets.ferry import ferry_families
from marin_assets.models import model_families
from marin_assets.operations import ferry_expiry_asset, lineage_consistency_asset, pass_rate_asset
from marin_assets.runs import run_assets, run_families
from recipes.ferry import Ferry
from recipes.gaps import Gap
from recipes.lab import best_half, cpu_band, default_line, gaps, other_lines, smoke_ferry
from recipes.lines import Line
from resources.dagster_private import UnresolvedAssetJobDefinition
from resources.executor import one_here_many_apart
from resources.lab import LabResource, lab_from_environment
from sensors.campaigns import canary_after_ferry, pass_rate_sensors
from sensors.checkpoints import checkpoint_sensor
from sensors.committed import committed_sensor
from sensors.evaluations import leaderboard_sensor


def families(ferry: Ferry, line: Line, others: Sequence[Line], corpora: Sequence[Line] = ()) -> Iterator[AssetTemplate]:
    """Every asset that is an artifact. What the other lines share with the first, as they share its nodes, is there once.

    Raises: ValueError when two lines mean different artifacts by one key.
    """
    seen: dict[tuple[str, ...], Node] = {}
    before = [line.corpus, *(other.corpus for other in others)]
    own = (own_families(other, has_cards=other.corpus in before[: at + 1]) for at, other in enumerate(others))
    evaluated = map(evaluation_families, (line, *others))
    for each in (canonical_families(line), *own, *map(corpus_families, corpora), *evaluated):
        for family in each:
            if family.example.key not in seen:
                seen[family.example.key] = family.example
                yield family
            elif unlike := difference(seen[family.example.key], family.example):
                raise ValueError(
                    f"two lines have the asset {'/'.join(family.example.key)} and mean different artifacts by it: {unlike}; "
                    "one of them can never be found, so give one line a name of its own for it (scope, policy, corpus, ...)"
                )
    models = [other.start_model for other in others if other.start_model is not None]
    for model in models:
        yield from model_families(model, line)
    yield from canary_data_families("cpu")
    yield canary_run_family("cpu")
    yield from ferry_families(ferry)


def difference(first: Node, second: Node) -> str:
    """What two nodes of one key do not share of what they are made by and from; "" where it is nothing.

    One step of the graph up: every key is compared, so the steps above are too. Partitions of an asset stand for each other.
    """
    if first.stage is not second.stage:
        return f"stage {first.stage.name} and {second.stage.name}"
    if first.partition == second.partition and to_jsonable(first.config) != to_jsonable(second.config):
        return f"config {first.config} and {second.config}"
    one, other = (Counter(_place(parent, node) for parent in node.parents()) for node in (first, second))
    unlike = [*(one - other), *(other - one)]
    return f"only one of them is made from {', '.join(unlike)}" if unlike else ""


def _place(parent: Node, child: Node) -> str:
    own = parent.partition is not None and parent.partition == child.partition
    return replace(parent, partition="<its own>").name if own else parent.name


def build_defs(
    lab: LabResource,
    *,
    ferry: Ferry,
    line: Line,
    others: Sequence[Line] = (),
    corpora: Sequence[Line] = (),
    gaps: Sequence[Gap] = (),
) -> dg.Definitions:
    """Assets, jobs, schedules and sensors over a lab: `ferry` sails daily, `line` and `others` have a declared run each.

    `corpora` are lines whose corpora over the same sources stand beside that of `line`; `gaps` are laid between their runs.
    """
    sail, canary, rates = campaigns.ferry_job(), campaigns.canary_job("cpu"), campaigns.pass_rate_job()
    board = campaigns.leaderboard_job()
    lines = (line, *others)
    asked = {each.run.name: _run_jobs(each.run.name) for each in lines}
    expiry, consistency = campaigns.expiry_job(), campaigns.consistency_job()
    every = [*families(ferry, line, others, corpora), *gap_families(gaps)]
    definitions = dg.Definitions(
        assets=[
            *(family_asset(family) for family in every),
            *(asset for each in lines for asset in run_assets(each)),
            leaderboard_asset(results_of(every, lines), lines),
            canary_asset(cpu_band()),
            pass_rate_asset("ferry"),
            pass_rate_asset("canary_cpu"),
            ferry_expiry_asset(),
            lineage_consistency_asset(lambda: definitions.resolve_asset_graph()),
        ],
        jobs=[
            sail,
            canary,
            rates,
            board,
            *(job for jobs in asked.values() for job in jobs),
            expiry,
            consistency,
        ],
        schedules=campaigns.schedules(sail, expiry, consistency),
        sensors=[
            *(checkpoint_sensor(each, *asked[each.run.name]) for each in lines),
            canary_after_ferry(canary),
            committed_sensor(every),
            leaderboard_sensor(board),
            *pass_rate_sensors(rates),
        ],
        resources={"lab": lab},
        executor=one_here_many_apart,
    )
    return definitions


def _run_jobs(run: str) -> tuple[UnresolvedAssetJobDefinition, ...]:
    """What is asked of a run's checkpoints: evaluations, audits, the export."""
    return campaigns.eval_job(run), campaigns.audit_job(run), campaigns.export_job(run)


def results_of(families: Sequence[AssetTemplate], lines: Sequence[Line]) -> list[dg.AssetKey]:
    """The assets that hold results of evaluations, those of ferries apart, which expire."""
    made = [*families, *(family for line in lines for family in run_families(line))]
    keys = [family.example.key for family in made if family.example.stage is EVAL_RESULT and family.example.key[0] != "ferry"]
    return [dg.AssetKey(list(key)) for key in keys]


def declared_defs(lab: LabResource) -> dg.Definitions:
    """All that the lab declares today, over a lab."""
    return build_defs(lab, ferry=smoke_ferry(), line=default_line(), others=other_lines(), corpora=(best_half(),), gaps=gaps())


def declared_families() -> Iterator[AssetTemplate]:
    """Every asset that is an artifact, those of the declared runs included (their checkpoints come from training)."""
    yield from families(smoke_ferry(), default_line(), other_lines(), (best_half(),))
    yield from gap_families(gaps())
    for line in (default_line(), *other_lines()):
        yield from run_families(line)


defs = declared_defs(lab_from_environment())
