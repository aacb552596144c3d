"""A synthetic set as assets: the prompts, the completions of the teacher by shard, and what is accepted."""

from collections.abc import Iterator

from lineage.build.plan import Node
from marin_assets.data import of_all
from marin_assets.data_stages import FILES
from marin_assets.factory import AssetTemplate
from partitions.axes import shards
from post_training.synthetic.spec import shard_partition
from recipes.records.synthetic import SyntheticSet
from recipes.synthetic import accepted, shard


def synthetic_templates(of: SyntheticSet) -> Iterator[AssetTemplate]:
    """Yield the environment, the rollouts with the shard as partition, and the accepted rows."""
    yield of_all(of.environment)
    yield _rollouts(of)
    yield of_all(accepted(of))


def _rollouts(of: SyntheticSet) -> AssetTemplate:
    names = {shard_partition(number): number for number in range(of.synthesis.shards)}

    def at(partition: str | None) -> Node:
        return shard(of, names[str(partition)])

    return AssetTemplate(
        example=shard(of, 0),
        node_at=lambda lab, partition: at(partition),
        node=at,
        store_of=lambda lab: lab.store,
        group="sources",
        description=f"{of.synthesis.samples} completions of each prompt by `{of.synthesis.teacher.model}`, by shard.",
        kinds=frozenset({"parquet"}),
        partitions_def=shards(list(names)),
        invariants=(FILES,),
    )
