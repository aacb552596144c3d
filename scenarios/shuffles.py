"""Act 6: the phase shift of the linear permutation on data in blocks, counted and trained."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lineage.order.permutation import ShuffleName
from scenarios import nodes
from scenarios.nodes import BUNDLE
from scenarios.phase_shift import (
    KINDS,
    Composition,
    blocks_mixture,
    composition,
    epoch_order,
    shares,
    trained_order,
    variance_ratio,
)
from scenarios.world import World, losses

SHUFFLED = "6 The linear permutation on data in blocks"


@dataclass(frozen=True)
class Traversal:
    """One epoch in one shuffle: shares [windows, blocks], their variance ratio, and the loss by window if it was trained."""

    shares: np.ndarray
    ratio: float
    losses: np.ndarray | None
    """nats a token [windows]."""


@dataclass(frozen=True)
class PhaseShift:
    """What act 6 found. `counts` are sequences by block, in order."""

    counts: Mapping[str, int]
    seed: int
    compositions: Mapping[ShuffleName, Composition]
    traversals: Mapping[ShuffleName, Traversal]


def shift_phases(world: World) -> PhaseShift:
    """Batch composition by window under every shuffle; at full size also the training loss under linear and the default."""
    say = world.teller.say
    world.teller.act(SHUFFLED)
    sources = (*world.scale.general, BUNDLE)
    window = world.scale.window_batches * world.scale.batch_size
    [probe] = world.make(blocks_mixture(world.after, sources, "linear", 0))
    counts: dict[str, int] = world.store.parents(probe)[0].manifest.extra["blocks"]
    sizes = list(counts.values())
    counts_text = ", ".join(f"{name} {count}" for name, count in counts.items())
    say(SHUFFLED, "blocks behind one another in one cache, in sequences", counts_text)
    by_kind = {kind: composition(kind, sizes, window, world.scale.shuffle_keys) for kind in KINDS}
    lines = "\n".join(str(each) for each in by_kind.values())
    claim = f"variance of the shares by window of {window} sequences over that of chance, {world.scale.shuffle_keys} keys"
    say(SHUFFLED, claim, lines)
    linear, default = by_kind["linear"].ratios, by_kind["splitmix"].ratios
    spread = f"worst key {linear.max():.1f} against {default.max():.1f}"
    say(SHUFFLED, "an unlucky key of the linear permutation makes phases beyond twice the worst that the default makes", spread,
        bool(linear.max() > 2 * default.max()))  # fmt: skip
    seed = by_kind["linear"].worst_seed
    traversals = {kind: _traverse(world, sources, kind, seed, sizes) for kind in KINDS}
    say(SHUFFLED, f"the worst linear key (seed {seed}), the same seed under the others",
        "\n".join(f"{kind:<9} variance ratio {each.ratio:.2f}" for kind, each in traversals.items()),
        traversals["splitmix"].ratio < 2 < traversals["linear"].ratio)  # fmt: skip
    if world.scale.train_shuffles:
        _compare_losses(world, traversals)
    return PhaseShift(counts, seed, by_kind, traversals)


def _traverse(world: World, sources: tuple[str, ...], kind: ShuffleName, seed: int, sizes: list[int]) -> Traversal:
    """An epoch by the trainer's own order, which must be the one that was counted."""
    scale = world.scale
    node = blocks_mixture(world.after, sources, kind, seed)
    [mixture] = world.make(node)
    window = scale.window_batches * scale.batch_size
    steps = sum(sizes) // window * scale.window_batches
    order = trained_order(mixture, scale.seq_len, steps * scale.batch_size)
    by_window = shares(order, sizes, window)
    counted = shares(epoch_order(kind, sum(sizes), seed), sizes, window)
    if not np.array_equal(by_window, counted):
        raise RuntimeError(f"{kind}: the windows of the order that is trained on differ from those that were counted")
    loss = None
    if scale.train_shuffles and kind in ("linear", "splitmix"):
        run = scale.cooldown(f"blocks-{kind}", steps)
        [trained] = world.make(nodes.checkpoint(run, node, nodes.base(world.after)))
        loss = losses(trained).to_numpy().reshape(-1, scale.window_batches).mean(axis=1)
    return Traversal(by_window, variance_ratio(by_window, sizes, window), loss)


def _compare_losses(world: World, traversals: Mapping[ShuffleName, Traversal]) -> None:
    """Training loss by window: how much it changes from one window to the next."""
    lines, swings = [], {}
    for kind in ("linear", "splitmix"):
        each = traversals[kind]
        assert each.losses is not None
        swings[kind] = float(np.abs(np.diff(each.losses)).max())
        lines.append(
            f"{kind:<9} largest step from one window to the next {swings[kind]:.3f} nats, standard deviation "
            f"{each.losses.std():.3f}"
        )
    claim = "training loss by window jumps more under the linear permutation, on the same data from the same checkpoint"
    world.teller.say(SHUFFLED, claim, "\n".join(lines), swings["linear"] > swings["splitmix"])
