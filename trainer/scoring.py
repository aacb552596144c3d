"""Scoring for evaluations: nats of every token given its prefix, under a checkpoint's model."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from lineage.artifact.store import Artifact
from trainer.checkpoint import read_model, read_model_config
from trainer.model.build import model_shapes
from trainer.model.cross_entropy import row_nll
from trainer.model.precision import exact_float32
from trainer.model.protocol import LanguageModel
from trainer.objectives import token_nll
from trainer.shared_prefixes import pack
from trainer.spec.mesh import Layout, batch_axes
from trainer.spec.stage import Weights

type Measure = Callable[[Array, Array, Array], Array]
"""(hidden states [N, D], head [V, D], target tokens [N]) -> one value per place, [N]."""

SMALLEST_BUCKET = 32
BATCH_TOKENS = 8192
MOST_WANTED = 1 << 30
"""Upper bound of the scores in a row."""


@dataclass(frozen=True)
class Scorer:
    """A model that scores token sequences of at most `max_seq_len`."""

    model: LanguageModel
    max_seq_len: int
    vocab_size: int
    step: int
    layout: Layout | None = None
    """Devices that hold the model; None: one device. With several, only `token_nll` works, and all processes call it alike."""

    def token_nll(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Nats of tokens 1.. of each sequence given the tokens before them: float32 arrays, one shorter than the sequences.

        Sequences are padded on the right to powers of two, so a handful of shapes are compiled; causality keeps padding from
        changing a score. Raises: ValueError for a sequence shorter than 2 or longer than `max_seq_len`.
        """
        for index, sequence in enumerate(sequences):
            if not 2 <= len(sequence) <= self.max_seq_len:
                raise ValueError(f"sequence {index} has {len(sequence)} tokens; 2 to {self.max_seq_len} can be scored")
        out: list[np.ndarray] = [np.zeros(0, np.float32)] * len(sequences)
        for rows, tokens in _padded_batches(sequences, self.max_seq_len):
            nll = np.asarray(_batch_nll(self.model, jnp.asarray(tokens))) if self.layout is None else self._spread(tokens)
            for position, row in enumerate(rows):
                out[row] = nll[position, : len(sequences[row]) - 1]
        return out

    def _spread(self, tokens: np.ndarray) -> np.ndarray:
        """Return the nats of every token of a batch whose rows are split over devices. Every process gets all of them."""
        assert self.layout is not None
        height = -(-len(tokens) // self.layout.batch_shards) * self.layout.batch_shards
        padded = np.pad(tokens, ((0, height - len(tokens)), (0, 0)))
        rows = self.layout.rows(height, lambda first, number: padded[first : first + number])
        with self.layout.pinned():
            nll = _spread_nll(self.model, rows)
        return np.asarray(nll.addressable_data(0))[: len(tokens)]

    def tail_nll(self, sequences: Sequence[np.ndarray], tails: Sequence[int]) -> list[np.ndarray]:
        """Nats of the last `tails[i]` tokens of each sequence given the tokens before them, as float32 arrays.

        `token_nll(sequences)[i][-tails[i]:]` up to the order of float sums, with less work: shared prefixes are computed once
        (`trainer.shared_prefixes`), and the head only where a score is wanted.

        Raises: ValueError for a sequence longer than `max_seq_len`, or not longer than its tail.
        """
        return self._in_trees(_nll, sequences, tails)

    def tail_is_greedy(self, sequences: Sequence[np.ndarray], tails: Sequence[int]) -> list[bool]:
        """Whether each of the last `tails[i]` tokens of a sequence is the most likely one there.

        A token that ties with another counts; lm-eval's `is_greedy` accepts only the first of equals.
        """
        return [bool(greedy.all()) for greedy in self._in_trees(_is_greedy, sequences, tails)]

    def _in_trees(self, measure: Measure, sequences: Sequence[np.ndarray], tails: Sequence[int]) -> list[np.ndarray]:
        """The values of all wanted places, by sequence."""
        for index, (sequence, tail) in enumerate(zip(sequences, tails, strict=True)):
            if not 0 <= tail < len(sequence) <= self.max_seq_len:
                raise ValueError(
                    f"sequence {index} has {len(sequence)} tokens and a tail of {tail}; at most {self.max_seq_len} can be "
                    "scored, at least one of them before the tail"
                )
        out = [np.zeros(0, np.float32)] * len(sequences)
        for row in pack(sequences, tails):
            places = np.concatenate([wanted.places for wanted in row.wanted])
            targets = np.concatenate([wanted.targets for wanted in row.wanted])
            padding = _bucket(len(places), MOST_WANTED) - len(places)  # so that few shapes of the head are compiled
            places, targets = (jnp.asarray(np.pad(part, (0, padding)), jnp.int32) for part in (places, targets))
            tree = jnp.asarray(row.tokens), jnp.asarray(row.positions), jnp.asarray(row.reach)
            values = np.asarray(_in_tree(measure, self.model, *tree, places, targets))
            ends = np.cumsum([len(wanted.places) for wanted in row.wanted])
            for wanted, end in zip(row.wanted, ends, strict=True):
                out[wanted.sequence] = values[end - len(wanted.places) : end]
        return out


def load_scorer(checkpoint: Artifact, weights: Weights = "raw") -> Scorer:
    """The scorer of a committed checkpoint, on its raw weights or on their average (`RunSpec.ema`)."""
    config = read_model_config(checkpoint)
    model = read_model(checkpoint, model_shapes(config), weights)
    return Scorer(model, config.max_seq_len, config.vocab_size, checkpoint.manifest.extra["checkpoint"]["step"])


@eqx.filter_jit
@exact_float32()
def _batch_nll(model: LanguageModel, tokens: Int[Array, "B S"]) -> Float[Array, "B S1"]:
    """One function for the whole process, so that a shape is compiled once, not once per task."""
    return token_nll(model, tokens)


@eqx.filter_jit
@exact_float32()
def _spread_nll(model: LanguageModel, tokens: Int[Array, "B S"]) -> Float[Array, "B S1"]:
    """`_batch_nll` for rows that are split over a mesh: every device computes its own tiles, and all get the whole result."""
    axes, of_rows = batch_axes(), _nll
    rows, replicated = PartitionSpec(axes), PartitionSpec()
    if axes:
        split = {"in_specs": (rows, replicated, rows), "out_specs": rows, "axis_names": set(axes), "check_vma": False}
        of_rows = jax.shard_map(_nll, **split)
    x = model.hidden(tokens[:, :-1])
    nll = of_rows(x.reshape(-1, x.shape[-1]), model.head_weight(), tokens[:, 1:].reshape(-1))
    return jax.lax.with_sharding_constraint(nll, replicated).reshape(tokens.shape[0], -1)


@eqx.filter_jit
@exact_float32()
def _in_tree(
    measure: Measure,
    model: LanguageModel,
    tokens: Int[Array, " S"],
    positions: Int[Array, " S"],
    reach: Bool[Array, "S S"],
    places: Int[Array, " N"],
    targets: Int[Array, " N"],
) -> Array:
    """Values of the wanted places of a tree of shared prefixes, [N]; `measure` is compiled in."""
    return measure(model.hidden_in_tree(tokens, positions, reach)[places], model.head_weight(), targets)


def _nll(hidden: Float[Array, "N D"], head: Float[Array, "V D"], targets: Int[Array, " N"]) -> Float[Array, " N"]:
    return row_nll(hidden, head, targets)[0]


def _is_greedy(hidden: Float[Array, "N D"], head: Float[Array, "V D"], targets: Int[Array, " N"]) -> Bool[Array, " N"]:
    """One place after another: the logits of all at once would take N times the vocabulary."""

    def is_top(place: tuple[Array, Array]) -> Array:
        logits = head @ place[0]
        return logits[place[1]] >= logits.max()

    return jax.lax.map(is_top, (hidden, targets))


def _padded_batches(sequences: Sequence[np.ndarray], longest: int) -> Iterator[tuple[list[int], np.ndarray]]:
    """(row numbers, int32 [rows, bucket]): rows of similar length together; the number of rows is fixed per bucket."""
    buckets: dict[int, list[int]] = {}
    for row, sequence in enumerate(sequences):
        buckets.setdefault(_bucket(len(sequence), longest), []).append(row)
    for bucket in sorted(buckets):
        height = max(1, BATCH_TOKENS // bucket)
        rows = buckets[bucket]
        for start in range(0, len(rows), height):
            chosen = rows[start : start + height]
            tokens = np.zeros((height, bucket), np.int32)
            for position, row in enumerate(chosen):
                tokens[position, : len(sequences[row])] = sequences[row]
            yield chosen, tokens


def _bucket(length: int, longest: int) -> int:
    size = SMALLEST_BUCKET
    while size < length:
        size *= 2
    return min(size, longest)
