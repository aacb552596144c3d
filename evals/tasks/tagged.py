"""Bits per byte over tags: of every leaf, of every tag above it, micro and macro, in the manner of Paloma.

A tag is a path: `prose/kjv` is a leaf below `prose`. Micro is the sum of all bits over the sum of all bytes, so a large leaf
weighs much; macro is the mean over leaves, so each weighs the same whatever it holds. A leaf exists by having a document: an
empty one has no score and no part in a mean (Levanter's overall macro counted it as 0:
docs/references.md#levanter-bpb).
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from evals.scoring.intervals import macro_bootstrap, ratio_bootstrap
from evals.scoring.records import Score

log = logging.getLogger("evals")

LEVANTER_BATCH = 8
"""Sequences of a batch of `batch_weighted_bits_per_byte`; Levanter's own depends on the machine."""


@dataclass(frozen=True)
class Measured:
    """A document's leaf tag, its bits and its UTF-8 bytes."""

    tag: str
    bits: float
    num_bytes: int


def tag_scores(task: str, measured: Sequence[Measured], seed: int) -> list[Score]:
    """Leaves and the tags above them by name, then the whole: `micro_bits_per_byte` and `macro_bits_per_byte` over leaves.

    A tag's `bits_per_byte` is micro; `macro_bits_per_byte` stands beside it where it has several leaves. `n` is documents of a
    micro score, leaves of a macro one. Raises: ValueError for no document, and for a tag that is a leaf and lies above one.
    """
    leaves: dict[str, list[Measured]] = {}
    for each in measured:
        leaves.setdefault(each.tag, []).append(each)
    if not leaves:
        raise ValueError(f"task {task}: there is no document to score")
    groups = {leaf: _sums(found) for leaf, found in sorted(leaves.items())}
    above = {tag for leaf in groups for tag in tags_above(leaf)}
    if both := sorted(above & set(groups)):
        raise ValueError(f"task {task}: tag {both[0]} has documents of its own and tags below it; give them a tag of their own")
    scores = []
    for tag in sorted(above | set(groups)):
        below = [group for leaf, group in groups.items() if leaf == tag or leaf.startswith(f"{tag}/")]
        scores.append(_micro(f"{task}/{tag}", "bits_per_byte", below, seed))
        if len(below) > 1:
            scores.append(_macro(f"{task}/{tag}", below, seed))
    every = list(groups.values())
    return [*scores, _micro(task, "micro_bits_per_byte", every, seed), _macro(task, every, seed)]


def batch_weighted(
    task: str, tokenizer: Tokenizer, tokens: Sequence[np.ndarray], nats: Sequence[np.ndarray], window: int
) -> list[Score]:
    """Levanter's bits per byte, to compare with: each batch's nats over its bytes, averaged over batches by their tokens.

    Sequences are windows of `window` tokens, none across documents. It is no ratio of sums: where bytes a token vary between
    batches it differs from micro. No score for a tokenizer whose tokens are not bytes of the text.
    """
    lengths = byte_lengths(tokenizer)
    if lengths is None:
        log.warning("%s: the tokenizer's tokens are no bytes of the text: no batch-weighted bits per byte", task)
        return []
    sequences = [
        (
            float(found[start : start + window].sum()),
            int(lengths[ids[start : start + window]].sum()),
            ids[start : start + window].size,
        )
        for ids, found in zip(tokens, nats, strict=True)
        for start in range(0, ids.size, window)
    ]
    batches = [np.array(sequences[i : i + LEVANTER_BATCH]).sum(axis=0) for i in range(0, len(sequences), LEVANTER_BATCH)]
    total, sizes, counts = np.array(batches).T
    value = float((total / sizes * counts).sum() / counts.sum() / math.log(2))
    return [Score(task, "batch_weighted_bits_per_byte", value, value, value, len(batches))]


def byte_lengths(tokenizer: Tokenizer) -> np.ndarray | None:
    """Bytes of the text that each id stands for [vocabulary], special tokens none; None where tokens are not byte-level.

    A byte-level token has one character for each byte.
    """
    if type(tokenizer.decoder).__name__ != "ByteLevel" or tokenizer.normalizer is not None:
        return None
    specials = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    size = tokenizer.get_vocab_size()
    return np.array([0 if i in specials else len(tokenizer.id_to_token(i) or "") for i in range(size)], np.int64)


def tags_above(leaf: str) -> list[str]:
    """The tags that a leaf lies below, the widest first."""
    parts = leaf.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


type _Sums = tuple[np.ndarray, np.ndarray]


def _sums(found: Sequence[Measured]) -> _Sums:
    return np.array([each.bits for each in found]), np.array([each.num_bytes for each in found], dtype=np.float64)


def _micro(task: str, metric: str, groups: Sequence[_Sums], seed: int) -> Score:
    bits, sizes = (np.concatenate([group[side] for group in groups]) for side in (0, 1))
    return Score(task, metric, *ratio_bootstrap(bits, sizes, seed), bits.size)


def _macro(task: str, groups: Sequence[_Sums], seed: int) -> Score:
    return Score(task, "macro_bits_per_byte", *macro_bootstrap(groups, seed), len(groups))
