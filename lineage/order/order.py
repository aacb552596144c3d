"""The data order: a pure function from (mixture, sequence length, global sequence index) to tokens, and its inverse.

The trainer reads forward. The audit goes backward, from the sequences that hold a document (`lineage.order.exposure`) to
the exact steps that read them. No answer depends on earlier ones (caches only save time), so resuming is slicing. Weights
hold in every block of `block_size` sequences (`lineage.order.apportion`): long-run shares are exact,
and a weight far below 1/block_size is still sampled (Levanter truncates: it never samples a
weight below 1/2048; docs/references.md#levanter-permutations).

Inside a component every epoch has its own permutation, and each of its sequences comes once an epoch. Under simulated
epoching only the used sequences come; one more permutation chooses them, so the inverse costs no more.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lineage.artifact.store import Artifact
from lineage.order.apportion import Apportioning, OrderPhase, Shares, check_apportioning, shares_of
from lineage.order.mixture import FORMAT, MIXTURE_FILE, SimulatedEpoching, caches_of
from lineage.order.packing import Packed, plan_files
from lineage.order.permutation import BlockShuffle, Permutation, Shuffle, decode_shuffle, derive_key, forward_each
from lineage.order.rows import Pieces, Rows, pieces_of, read_rows, split_by_document
from lineage.order.sequences import Chunked, Sequences
from lineage.order.token_cache import TokenCache

CACHED_BLOCKS = 64
"""Blocks whose permuted slots are kept."""
KEPT_BLOCKS = 4
"""Blocks whose pieces are kept: a few hundred KiB each, some MiB if packed sequences hold many documents."""


@dataclass
class DataOrder:
    """Open it with `DataOrder.open`."""

    names: tuple[str, ...]
    caches: tuple[TokenCache, ...]
    sequences: tuple[Sequences, ...]
    """The sequences of each component."""
    seq_len: int
    block_size: int
    shuffle: Shuffle
    seed: int
    phases: tuple[OrderPhase, ...]
    simulate: SimulatedEpoching | None = None
    apportioning: Apportioning = "carried"
    _shares: Shares = field(init=False)
    _blocks: dict[int, np.ndarray] = field(default_factory=dict)
    _pieces: dict[tuple[int, bool], Pieces] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._shares = shares_of(self.apportioning, self.phases, self.block_size)

    @staticmethod
    def open(mixture: Artifact, seq_len: int) -> "DataOrder":
        """Open a mixture and its caches; check that they are the bytes it was frozen with.

        Raises: ValueError for a component with less than one sequence, or a mixture packed for another sequence length;
        what `Store.parents` raises.
        """
        record = json.loads(mixture.files(MIXTURE_FILE)[0].read_text())
        if record["format"] != FORMAT:
            raise ValueError(f"{mixture.name}: format {record['format']!r}; this checkout reads {FORMAT}")
        caches = tuple(TokenCache.open(cache) for cache in caches_of(mixture))
        names = tuple(component["name"] for component in record["components"])
        phases = tuple(
            OrderPhase(phase["start_sequence"] // record["block_size"], _normalized(phase["weights"], names))
            for phase in record["phases"]
        )
        simulate = SimulatedEpoching(**record["simulate"]) if "simulate" in record else None
        shuffle = decode_shuffle(record["shuffle"], f"{mixture.name}.shuffle"), record["seed"]
        sequences = _sequences(mixture, record, caches, seq_len)
        kind = record.get("apportioning", "carried")
        check_apportioning(kind, f"{mixture.name}.")
        order = DataOrder(names, caches, sequences, seq_len, record["block_size"], *shuffle, phases, simulate, kind)
        used = np.any([phase.weights > 0 for phase in phases], axis=0)
        for index in np.flatnonzero(used):
            if order.num_used(int(index)) < 1:
                share = "" if simulate is None else f", and {simulate} leaves none"
                raise ValueError(
                    f"{mixture.name}: component {names[index]} has {caches[index].num_tokens} tokens, less than one sequence "
                    f"of {seq_len}{share}; give it weight 0 or a shorter sequence"
                )
        return order

    @property
    def vocab_size(self) -> int:
        return self.caches[0].vocab_size

    def num_sequences(self, component: int) -> int:
        """Return the number of sequences of a component."""
        return self.sequences[component].count

    def num_used(self, component: int) -> int:
        """Return the sequences that an epoch of a component reads: all, or the simulated share."""
        length = self.num_sequences(component)
        return length if self.simulate is None else self.simulate.used(length)

    def sequence_at(self, index: int) -> tuple[str, int]:
        """Return the component and sequence at a global index."""
        components, sequences = self.locate(np.array([index]))
        return self.names[int(components[0])], int(sequences[0])

    @property
    def has_weights(self) -> bool:
        """Whether some component has tokens with another weight than one in the loss, or padding."""
        return any(cache.has_weights for cache in self.caches) or any(layout.is_packed for layout in self.sequences)

    def batch(self, start: int, count: int) -> np.ndarray:
        """Return tokens of global sequences `[start, start + count)`, int32 [count, seq_len]; 0 in padding."""
        return self.rows(start, count).tokens

    def rows(self, start: int, count: int, *, within_documents: bool = False) -> Rows:
        """Return tokens of global sequences `[start, start + count)`, with their loss weights if the mixture
        `has_weights`; if attention stays `within_documents` also segment ids, and weights in any case.
        """
        documents = self.pieces(start, count, by_document=True) if within_documents else None
        batch = read_rows(self.caches, self.pieces(start, count), documents, count, self.seq_len)
        if batch.weights is None and self.has_weights:  # A batch without padding has the same arrays as any other batch.
            return batch._replace(weights=np.ones(batch.tokens.shape, np.float32))
        return batch

    def pieces(self, start: int, count: int, *, by_document: bool = False) -> Pieces:
        """Return the pieces of the rows of `batch`. They are computed for whole blocks, which are kept, because a run's
        batches are consecutive.
        """
        if start < 0:
            raise ValueError(f"global sequence index {start} is negative")
        pieces = []
        for block in range(start // self.block_size, -(-(start + count) // self.block_size)):
            base = block * self.block_size
            first, end = max(0, start - base), min(self.block_size, start + count - base)
            pieces.append(self._pieces_of_block(block, by_document).of_rows(first, end, base + first - start))
        return Pieces.joined(pieces)

    def _pieces_of_block(self, block: int, by_document: bool) -> Pieces:
        if (block, by_document) not in self._pieces:
            base = block * self.block_size
            if by_document:
                pieces = split_by_document(self.caches, self.sequences, self._pieces_of_block(block, False))
            else:
                pieces = pieces_of(self.sequences, *self.locate(np.arange(base, base + self.block_size)))
            while len(self._pieces) >= KEPT_BLOCKS:
                self._pieces.pop(next(iter(self._pieces)))
            self._pieces[block, by_document] = pieces
        return self._pieces[block, by_document]

    def inverse(self, component: str, sequence: int, below: int) -> list[int]:
        """Return every global index below `below` at which a component's sequence is read, ascending (at most one an
        epoch).
        """
        return self.reads(component, np.array([sequence]), below)[1].tolist()

    def reads(self, component: str, sequences: np.ndarray, below: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (which, indices), int64 [reads]: sequence `sequences[which]` is read at the global index, for all
        indices below `below`.

        Sorted by `which`, then index. It takes one inverse permutation an epoch for all sequences, and one for each
        block that holds some. Raises: ValueError for a component that is not in the mixture, or a sequence that it does
        not have.
        """
        if component not in self.names:
            raise ValueError(f"component {component!r} is not in the mixture; it has: {', '.join(self.names)}")
        number = self.names.index(component)
        length = self.num_sequences(number)
        values = np.asarray(sequences, dtype=np.int64)
        if values.size and not 0 <= int(values.min()) <= int(values.max()) < length:
            odd = int(values.min()) if int(values.min()) < 0 else int(values.max())
            raise ValueError(f"sequence {odd} of {component}; it has {length}")
        if below <= 0 or not values.size:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        end = -(-below // self.block_size)
        reads_before = int(self._shares.before(np.array([end]))[0, number])
        ranks, used = self._subset(number).inverse(values), self.num_used(number)
        held = np.flatnonzero(ranks < used)
        reads = [np.zeros((2, 0), np.int64)]
        for epoch in range(-(-reads_before // used) if used else 0):
            ordinals = epoch * used + self._epoch(number, epoch).inverse(ranks[held])
            early = ordinals < reads_before
            reads.append(np.stack([held[early], self._indices(number, ordinals[early])]))
        which, indices = np.concatenate(reads, axis=1)
        order = np.lexsort((indices, which))
        order = order[indices[order] < below]
        return which[order], indices[order]

    def _indices(self, number: int, ordinals: np.ndarray) -> np.ndarray:
        """Return global indices at which sequences of a component are read, given its turns `ordinals`."""
        blocks = self._shares.blocks_of(number, ordinals)
        order = np.argsort(blocks, kind="stable")
        named, firsts, which = np.unique(blocks[order], return_index=True, return_inverse=True)
        before = self._shares.before(named)
        lower = (self._shares.before(named + 1) - before)[:, :number].sum(axis=1)
        slots = np.empty_like(ordinals)
        slots[order] = (lower - before[:, number])[which] + ordinals[order]
        positions = np.empty_like(slots)
        for block, first, end in zip(named.tolist(), firsts, np.append(firsts[1:], len(order)), strict=named.size > 0):
            members = order[first:end]
            positions[members] = self._block(block).inverse(slots[members])
        return blocks * self.block_size + positions

    def locate(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return components (by number) and sequences, int64 like `indices`, at global indices.

        It takes one permutation a block and those of all (component, epoch) at once, not one an index: 2,048 sequences
        of 8 components take 1.6 ms, 2.4 with a block shuffle (benchmarks/notes/2026-11-22-loader.md).
        """
        values = np.asarray(indices, dtype=np.int64)
        if values.size and int(values.min()) < 0:
            raise ValueError(f"global sequence index {int(values.min())} is negative")
        blocks, positions = np.divmod(values, self.block_size)
        components, ordinals = np.empty_like(values), np.empty_like(values)
        named = np.unique(blocks)
        befores = self._shares.before(named)
        counts = self._shares.before(named + 1) - befores
        for block, before, count in zip(named.tolist(), befores, counts, strict=True):
            here = blocks == block
            slots = self._slots(block)[positions[here]]
            edges = np.cumsum(count)
            components[here] = np.searchsorted(edges, slots, side="right")
            ordinals[here] = (before - edges + count)[components[here]] + slots
        return components, self._sequences(components, ordinals)

    def _sequences(self, components: np.ndarray, ordinals: np.ndarray) -> np.ndarray:
        """Return the sequences that components read at their turns `ordinals`."""
        used = np.array([self.num_used(number) for number in range(len(self.names))], np.int64)
        epochs, turns = np.divmod(ordinals, used[components])
        named, which = np.unique(epochs * used.size + components, return_inverse=True)
        each = [divmod(pair, used.size) for pair in named.tolist()]
        ranks = forward_each([self._epoch(component, epoch) for epoch, component in each], which, turns)
        return forward_each([self._subset(component) for _, component in each], which, ranks)

    def _slots(self, block: int) -> np.ndarray:
        """Return the permuted slots of a block [block_size]: the component (by edges) and its turn at each position."""
        if block not in self._blocks:
            if len(self._blocks) >= CACHED_BLOCKS:
                self._blocks.pop(next(iter(self._blocks)))
            self._blocks[block] = self._block(block).forward(np.arange(self.block_size))
        return self._blocks[block]

    def _block(self, block: int) -> Permutation:
        return Permutation("splitmix", self.block_size, derive_key(self.seed, "block", block))

    def _epoch(self, component: int, epoch: int) -> Permutation:
        key = derive_key(self.seed, "component", self.names[component], epoch)
        return Permutation(self.shuffle, self.num_used(component), key)

    def _subset(self, component: int) -> Permutation:
        """Return the permutation that puts the used sequences first; the identity if all are used. Whole blocks if the
        shuffle reads blocks.
        """
        kind = "none" if self.simulate is None else self.shuffle
        if isinstance(kind, BlockShuffle):
            kind = replace(kind, window_blocks=1)
        key = derive_key(self.seed, "subset", self.names[component])
        return Permutation(kind, self.num_sequences(component), key)


def _normalized(weights: dict[str, float], names: tuple[str, ...]) -> np.ndarray:
    values = np.array([weights.get(name, 0.0) for name in names], dtype=np.float64)
    return values / values.sum()


def _sequences(
    mixture: Artifact, record: Mapping[str, Any], caches: Sequence[TokenCache], seq_len: int
) -> tuple[Sequences, ...]:
    if "packing" not in record:
        return tuple(Chunked(seq_len, cache.num_tokens) for cache in caches)
    packed = record["packing"]["seq_len"]
    if packed != seq_len:
        raise ValueError(
            f"{mixture.name} is packed into sequences of {packed} tokens; a run of {seq_len} needs another mixture"
        )
    return tuple(Packed.open(mixture.file(plan_files(number)[0]).parent) for number in range(len(caches)))
