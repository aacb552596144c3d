"""A synthetic set as assets: the prompts, the completions of the teacher by shard, and what is accepted."""

from collections.abc import Iterator

from marin_assets.data import of_all
from marin_assets.data_stages import FILES
from marin_assets.factory import AssetTemplate, of_partitions
from partitions.axes import shards
from post_training.synthetic.spec import shard_partition
from recipes.records.synthetic import SyntheticSet
from recipes.synthetic import accepted, shard


def synthetic_templates(of: SyntheticSet) -> Iterator[AssetTemplate]:
    """Yield the assets of a synthetic set: environment, rollouts (partitioned by shard), accepted rows."""
    numbers = {shard_partition(number): number for number in range(of.synthesis.shards)}
    described = f"{of.synthesis.samples} completions of each prompt by `{of.synthesis.teacher.model}`, by shard."
    parts = shards(list(numbers))
    yield of_all(of.environment)
    yield of_partitions(shard(of, 0), lambda name: shard(of, numbers[name]), parts, "sources", described, {"parquet"}, FILES)
    yield of_all(accepted(of))
