"""Token caches of random tokens, and a mixture of eight of them, for `loader.py`."""

from dataclasses import dataclass

import numpy as np

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build_all
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.packing import Packing
from lineage.order.permutation import Shuffle
from lineage.order.token_shards import tokens_extra, write_flat_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer

COMPONENTS, SHARDS, VOCABULARY = 8, 4, 50_000


@dataclass(frozen=True)
class Component:
    """Random tokens in log-normal documents."""

    name: str
    num_tokens: int


def write_component(out: Writer, config: Component) -> None:
    random = np.random.default_rng(sum(config.name.encode()))
    shards = []
    for number in range(SHARDS):
        lengths = random.lognormal(6, 1.1, config.num_tokens // SHARDS // 500).astype(np.int64) + 1
        ends = np.cumsum(lengths)
        ends = ends[ends <= config.num_tokens // SHARDS]
        ids = [f"{number:08x}{i:024x}" for i in range(ends.size)]
        tokens = random.integers(0, VOCABULARY, int(ends[-1]), dtype=np.uint16)
        shards.append(write_flat_shard(out.folder, f"s{number}", ids, tokens, ends, "uint16"))
    out.facts["tokens"] = tokens_extra(config.name, "uint16", VOCABULARY, "random", None, None, shards)


CACHE = Stage("benchmarks.random_tokens", "1", write_component)


def mixture(root: str, num_tokens: int, packing: Packing | None, shuffle: Shuffle = "splitmix") -> Artifact:
    """A mixture of eight components with weights 1 to 8."""
    names = [f"component-{number}" for number in range(COMPONENTS)]
    parts = tuple(Component(name, num_tokens // COMPONENTS) for name in names)
    caches = tuple(Node(("cache", part.name), f"tokens-{num_tokens}", CACHE, part) for part in parts)
    weights = {name: 1.0 + number for number, name in enumerate(names)}
    config = MixtureConfig("loader", (Phase(0, weights),), seed=1, shuffle=shuffle, packing=packing)
    node = Node(("mixture",), None, MIXTURE, config, {"caches": caches})
    return build_all(Store(root), [node])[0]
