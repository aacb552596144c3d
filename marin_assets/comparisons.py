"""Assets that compare results: the leaderboard of all of them, perplexity gaps, promotions, correlations."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import dagster as dg

from evals.reports.leaderboard_stage import KEY, LEADERBOARD, build_leaderboard
from lineage.build.nodes import Node
from lineage.build.plan import Built
from marin_assets.areas import owners
from marin_assets.data_stages import FILES, ROWS
from marin_assets.describe import describe, identity_tags
from marin_assets.due import PROMISE, RESULTS_PRESENT, results_check
from marin_assets.event_log import STAGE_METADATA
from marin_assets.factory import AssetTemplate, checked, single
from marin_assets.references import after_inputs, within
from recipes.correlations import PoolCorrelation, correlation_node
from recipes.gaps import Gap, gap_node
from recipes.promotions import Promotion, promotion_node
from recipes.records.run import Run
from recipes.sweeps import result
from resources.lab import Lab

GROUP = "comparisons"


def gap_families(gaps: Sequence[Gap]) -> Iterator[AssetTemplate]:
    """Yield the perplexity gap of every declared pair."""
    for gap in gaps:
        node = gap_node(gap)
        yield AssetTemplate(
            example=node,
            node_at=lambda lab, partition, node=node: node,
            node=lambda partition, node=node: node,
            store_of=lambda lab: lab.store,
            group=GROUP,
            description=(
                f"Bits per byte of `{gap.second.checkpoint.name}` less those of `{gap.first.checkpoint.name}` on the "
                "same held-out bytes, by tag, with the documents to read first."
            ),
            kinds=frozenset({"jax", "parquet"}),
            invariants=(FILES, ROWS),
        )


def promotion_template(of: Promotion) -> AssetTemplate:
    """The verdict on a variant. It reads the results of every trial of both sweeps."""
    node, trials = promotion_node(of), (*of.baseline.trials, *of.variant.trials)
    described = f"Whether `{of.variant.name}` may replace `{of.baseline.name}`: two gates of effective speed-up."
    return _collecting(node, described, (result(trial) for trial in trials))


def correlation_template(of: PoolCorrelation) -> AssetTemplate:
    """Rank correlations of perplexity pools with task scores. It reads results of all its checkpoints."""
    described = f"Which held-out text goes with which task score over {len(of.points)} checkpoints, p values corrected."
    return _collecting(correlation_node(of), described, of.results)


def _collecting(node: Node, description: str, results: Iterable[Node]) -> AssetTemplate:
    """An asset that reads results of several partitions."""
    every = {each.key: dg.AllPartitionMapping() for each in results}
    return replace(single(node, lambda lab: node, GROUP, description, "json"), mappings=every, invariants=(FILES,))


def leaderboard_asset(results: Sequence[dg.AssetKey], runs: Sequence[Run]) -> dg.AssetsDefinition:
    """The board over every result that the canonical store holds. A check names results that are due and missing."""
    key = dg.AssetKey(list(KEY))

    @dg.asset(
        key=key,
        deps=[dg.AssetDep(result) for result in results],
        group_name=GROUP,
        description="Every result of every model and step, a board a policy: ranks, intervals, what is incomplete; one page.",
        owners=owners(GROUP),
        kinds={"duckdb", "parquet"},
        metadata={STAGE_METADATA: LEADERBOARD.name},
        code_version=f"{LEADERBOARD.name}@{LEADERBOARD.version}",
        freshness_policy=within(days=7),
        automation_condition=after_inputs(),
        check_specs=[
            dg.AssetCheckSpec(FILES.name, asset=key, description=FILES.promise, blocking=True),
            dg.AssetCheckSpec(RESULTS_PRESENT, asset=key, description=PROMISE),
        ],
    )
    def leaderboard(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        artifact, reused = build_leaderboard(lab.store, context.run.run_id)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(artifact.data_version),
            metadata=describe(Built(artifact, reused)),
            tags=identity_tags(artifact),
            check_results=[checked(FILES, artifact, context.run.run_id), results_check(lab, runs)],
        )

    return leaderboard
