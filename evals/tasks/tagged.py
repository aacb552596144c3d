"""Bits per byte by tag: of every leaf and every tag above it, micro and macro, as in Paloma (arXiv:2312.10523).

A tag is a path: `prose/kjv` is a leaf below `prose`. Micro is the sum of all bits over the sum of all bytes, so a large leaf
counts more. Macro is the mean over leaves, so all leaves count equally. A leaf exists only if it has a document: an empty
leaf has no score and no part in a mean (Levanter's overall macro counted it as 0:
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
"""Sequences in a batch of `batch_weighted_bits_per_byte`; in Levanter the number depends on the machine."""


@dataclass(frozen=True)
class Measured:
    """A document's leaf tag, its bits and its UTF-8 bytes."""

    tag: str
    bits: float
    num_bytes: int


def tag_scores(task: str, measured: Sequence[Measured], seed: int) -> list[Score]:
    """Score leaves and the tags above them by name, then all documents: micro and macro bits per byte over leaves.

    A tag's `bits_per_byte` is micro; a tag with several leaves also has `macro_bits_per_byte`. `n` counts documents for a micro
    score and leaves for a macro score. Raises: ValueError without documents, or if a tag is a leaf and above another leaf.
    """
    leaves: dict[str, list[Measured]] = {}
    for each in measured:
        leaves.setdefault(each.tag, []).append(each)
    if not leaves:
        raise ValueError(f"task {task}: there is no document to score")
    groups = {leaf: _sums(documents) for leaf, documents in sorted(leaves.items())}
    above = {tag for leaf in groups for tag in tags_above(leaf)}
    if both := sorted(above & set(groups)):
        raise ValueError(f"task {task}: tag {both[0]} has both documents and tags below it; give its documents another tag")
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
    """Levanter's bits per byte, for comparison: nats over bytes of each batch, averaged over batches weighted by tokens.

    Sequences are windows of `window` tokens inside one document. The score is not a ratio of sums, so it differs from micro if
    bytes a token vary between batches. A tokenizer whose tokens are not bytes of the text gets no score.
    """
    lengths = byte_lengths(tokenizer)
    if lengths is None:
        log.warning("%s: the tokenizer's tokens are not bytes of the text, so there are no batch-weighted bits per byte", task)
        return []
    sequences = [
        (
            float(document_nats[start : start + window].sum()),
            int(lengths[ids[start : start + window]].sum()),
            ids[start : start + window].size,
        )
        for ids, document_nats in zip(tokens, nats, strict=True)
        for start in range(0, ids.size, window)
    ]
    batches = [np.array(sequences[i : i + LEVANTER_BATCH]).sum(axis=0) for i in range(0, len(sequences), LEVANTER_BATCH)]
    total, sizes, counts = np.array(batches).T
    value = float((total / sizes * counts).sum() / counts.sum() / math.log(2))
    return [Score(task, "batch_weighted_bits_per_byte", value, value, value, len(batches))]


def byte_lengths(tokenizer: Tokenizer) -> np.ndarray | None:
    """Return the bytes of text of each id [vocabulary], 0 for special tokens; None for a tokenizer that is not byte-level.

    A byte-level token has one character for each byte.
    """
    if type(tokenizer.decoder).__name__ != "ByteLevel" or tokenizer.normalizer is not None:
        return None
    specials = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    size = tokenizer.get_vocab_size()
    return np.array([0 if i in specials else len(tokenizer.id_to_token(i) or "") for i in range(size)], np.int64)


def tags_above(leaf: str) -> list[str]:
    """Return the tags above a leaf, the widest first."""
    parts = leaf.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


type _Sums = tuple[np.ndarray, np.ndarray]


def _sums(measured: Sequence[Measured]) -> _Sums:
    return np.array([each.bits for each in measured]), np.array([each.num_bytes for each in measured], dtype=np.float64)


def _micro(task: str, metric: str, groups: Sequence[_Sums], seed: int) -> Score:
    bits, sizes = (np.concatenate([group[side] for group in groups]) for side in (0, 1))
    return Score(task, metric, *ratio_bootstrap(bits, sizes, seed), bits.size)


def _macro(task: str, groups: Sequence[_Sums], seed: int) -> Score:
    return Score(task, "macro_bits_per_byte", *macro_bootstrap(groups, seed), len(groups))
