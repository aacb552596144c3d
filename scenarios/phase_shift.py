"""The effect of a shuffle on data in blocks: batch composition by window, compared with chance.

The linear permutation is `a x + b mod n`, so neighbours in the order are always `a` apart. If `a / n` is near a fraction with a
small denominator, the order moves slowly through the blocks. A stretch of training then reads more of one block than its
share: a phase. The lab's own caches are in order of content hashes, which breaks up blocks inside a source. The stage here puts
several caches one after another, like a directory of shards.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.order import DataOrder
from lineage.order.permutation import Permutation, ShuffleName, derive_key
from lineage.order.token_cache import TokenCache
from lineage.order.token_shards import tokens_extra, write_token_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer
from scenarios.nodes import Recipe, token_cache

COMPONENT = "blocks"
KINDS: tuple[ShuffleName, ...] = ("linear", "feistel_levanter", "splitmix")
"""Bison's shuffle, Levanter's five-round Feistel (Mantis's), and this lab's default."""


@dataclass(frozen=True)
class BlocksConfig:
    """How many sequences of every input are used, in the order of the inputs."""

    seq_len: int
    max_sequences: int


def lay_blocks(out: Writer, config: BlocksConfig, caches: tuple[Artifact, ...]) -> None:
    """Write one cache of the first whole sequences of each input. A sequence is a document, named by block and number."""
    opened = [TokenCache.open(cache) for cache in caches]
    counts = [min(config.max_sequences, cache.num_tokens // config.seq_len) for cache in opened]
    documents = (
        (f"{block:016x}{number:016x}", cache.read(number * config.seq_len, (number + 1) * config.seq_len))
        for block, (cache, count) in enumerate(zip(opened, counts, strict=True))
        for number in range(count)
    )
    first = opened[0]
    shard = write_token_shard(out.folder, "blocks", documents, first.dtype)
    out.facts["tokens"] = tokens_extra(COMPONENT, first.dtype, first.vocab_size, first.tokenizer, first.bos, first.eos, [shard])
    out.extra["blocks"] = {cache.component: count for cache, count in zip(opened, counts, strict=True)}
    out.record(rows_in=sum(cache.num_documents for cache in opened), rows_out=sum(counts), tokens_out=shard.num_tokens)


BLOCKS = Stage("scenarios.blocks", "1", lay_blocks)


def blocks(recipe: Recipe, sources: Sequence[str]) -> Node:
    """The concatenated caches of some sources."""
    config = BlocksConfig(recipe.scale.seq_len, recipe.scale.block_sequences)
    caches = tuple(token_cache(recipe, source) for source in sources)
    return Node(("token_cache", COMPONENT), None, BLOCKS, config, {"caches": caches})


def blocks_mixture(recipe: Recipe, sources: Sequence[str], shuffle: ShuffleName, seed: int) -> Node:
    """A mixture of the blocks in one shuffle; its block is one batch, so that only the shuffle mixes."""
    phase = Phase(0, {COMPONENT: 1.0})
    config = MixtureConfig(f"blocks-{shuffle}", (phase,), seed, shuffle, recipe.scale.batch_size)
    return Node(("mixture", f"blocks-{shuffle}"), None, MIXTURE, config, {"caches": (blocks(recipe, sources),)})


def epoch_order(shuffle: ShuffleName, num_sequences: int, seed: int) -> np.ndarray:
    """Sequences of the first epoch in the order of their turns, int64 [sequences]: what `lineage.order` reads."""
    permutation = Permutation(shuffle, num_sequences, derive_key(seed, "component", COMPONENT, 0))
    return permutation.forward(np.arange(num_sequences))


def shares(order: np.ndarray, counts: Sequence[int], window: int) -> np.ndarray:
    """Share of every block in each complete window of `window` sequences, float64 [windows, blocks]."""
    block = np.searchsorted(np.cumsum(counts), order, side="right")
    windows = block[: len(block) // window * window].reshape(-1, window)
    return np.stack([(windows == number).mean(axis=1) for number in range(len(counts))], axis=1)


def variance_ratio(drawn: np.ndarray, counts: Sequence[int], window: int) -> float:
    """Variance of the shares about the true ones, divided by that of drawing without replacement: 1 for a random permutation.

    A window's count of a block is hypergeometric: `Var(share) = p (1 - p) / w * (n - w) / (n - 1)`.

    >>> variance_ratio(np.array([[0.5, 0.5], [0.5, 0.5]]), [8, 8], 8)
    0.0
    """
    total = sum(counts)
    p = np.asarray(counts) / total
    expected = p * (1 - p) / window * (total - window) / (total - 1)
    return float(((drawn - p) ** 2).mean(axis=0).sum() / expected.sum())


@dataclass(frozen=True)
class Composition:
    """Variance ratios of a shuffle, one for each mixture seed."""

    shuffle: ShuffleName
    ratios: np.ndarray

    @property
    def worst_seed(self) -> int:
        return int(self.ratios.argmax())

    def __str__(self) -> str:
        low, middle, high = np.quantile(self.ratios, [0.05, 0.5, 0.95])
        over = float((self.ratios > 2).mean())
        ratios_text = f"median {middle:.2f}, 5 to 95 % {low:.2f} to {high:.2f}, worst {self.ratios.max():.1f}"
        return f"{self.shuffle:<16} {ratios_text}; more than twice chance for {over:.1%} of keys"


def composition(shuffle: ShuffleName, counts: Sequence[int], window: int, keys: int) -> Composition:
    """Variance ratios of the first epoch under seeds 0 to `keys` - 1."""
    total = sum(counts)
    orders = (epoch_order(shuffle, total, seed) for seed in range(keys))
    return Composition(shuffle, np.array([variance_ratio(shares(order, counts, window), counts, window) for order in orders]))


def trained_order(mixture: Artifact, seq_len: int, num_sequences: int) -> np.ndarray:
    """Sequences in the order in which a run reads them, from the trainer's function and not from `epoch_order`."""
    return DataOrder.open(mixture, seq_len).locate(np.arange(num_sequences))[1]
