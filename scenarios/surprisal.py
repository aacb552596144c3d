"""Surprisal of benchmark answers under checkpoints, in lm-eval's text and in OLMES's, for each item.

The answer follows `Question: ...\\nAnswer:` with no example before it: lm-eval's default of five examples does not fit the
replay's context. So a model knows the notation only from its training. Comparisons of texts are in bits per byte.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from evals.items.item import Item
from evals.items.rendering import CALCULATION
from evals.scoring.intervals import RESAMPLES, ratio_bootstrap
from evals.tasks.scorer import TokenScorer
from scenarios.bundle import lm_eval_answer, olmes_answer, prompt

FORMS = {"lm-eval": lm_eval_answer, "OLMES": olmes_answer}
PARTS = {"calculator tags": CALCULATION, "openings of tags": re.compile("<<")}
"""All of `<<16-7=9>>`, and only its `<<`, which shows whether the model expects a tag there."""
SEED = 5


@dataclass(frozen=True)
class Surprisal:
    """One form of some items under one checkpoint, arrays over items: bits and UTF-8 bytes of the answer, and of PARTS of it.

    A token belongs to a part if it overlaps it. OLMES's form has neither part. `truncated` counts prompts cut on the left.
    """

    bits: np.ndarray
    num_bytes: np.ndarray
    part_bits: Mapping[str, np.ndarray]
    part_tokens: Mapping[str, np.ndarray]
    truncated: int


@dataclass(frozen=True)
class Estimate:
    """A ratio of sums with its 95 % bootstrap interval over items; `f"{estimate:.3f}"` writes it."""

    value: float
    low: float
    high: float

    def __format__(self, form: str) -> str:
        """Value and interval, each in a number's format: `.3f`, or `+.3f` for a difference."""
        return f"{self.value:{form}} [{self.low:{form}}, {self.high:{form}}]"


def measure(scorer: TokenScorer, tokenizer: Tokenizer, start_token: int, items: Sequence[Item], form: str) -> Surprisal:
    """Bits of every item's answer in a form. Raises: ValueError for an answer that is longer than the context."""
    answers = [FORMS[form](item.solution, item.answer) for item in items]
    heads = tokenizer.encode_batch_fast([prompt(item.question) for item in items], add_special_tokens=False)
    tails = tokenizer.encode_batch(answers, add_special_tokens=False)
    sequences, truncated = [], 0
    for item, head, tail in zip(items, heads, tails, strict=True):
        room = scorer.max_seq_len - 1 - len(tail.ids)
        if room < 0:
            raise ValueError(f"item {item.item_id}: its answer has {len(tail.ids)} tokens, the context {scorer.max_seq_len}")
        truncated += len(head.ids) > room
        kept = head.ids[max(0, len(head.ids) - room) :]
        sequences.append(np.array([start_token, *kept, *tail.ids], np.int32))
    nats = [
        scores[-len(tail.ids) :].astype(np.float64) for scores, tail in zip(scorer.token_nll(sequences), tails, strict=True)
    ]
    masks = {
        part: [_overlaps(pattern, answer, tail.offsets) for answer, tail in zip(answers, tails, strict=True)]
        for part, pattern in PARTS.items()
    }
    return Surprisal(
        bits=np.array([each.sum() for each in nats]) / math.log(2),
        num_bytes=np.array([len(answer.encode()) for answer in answers], np.float64),
        part_bits={part: _sums(nats, each) / math.log(2) for part, each in masks.items()},
        part_tokens={part: np.array([mask.sum() for mask in each], np.float64) for part, each in masks.items()},
        truncated=truncated,
    )


def _sums(nats: Sequence[np.ndarray], masks: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([each[mask].sum() for each, mask in zip(nats, masks, strict=True)])


def _overlaps(pattern: re.Pattern[str], text: str, offsets: Sequence[tuple[int, int]]) -> np.ndarray:
    """Which tokens, given as character spans, share a character with a match."""
    spans = [match.span() for match in pattern.finditer(text)]
    return np.array([any(start < high and low < stop for low, high in spans) for start, stop in offsets], bool)


def bits_per_byte(measured: Surprisal, which: np.ndarray) -> Estimate:
    """Of some items (a mask)."""
    return Estimate(*ratio_bootstrap(measured.bits[which], measured.num_bytes[which], SEED))


def paired_difference(one: Surprisal, other: Surprisal, which: np.ndarray) -> Estimate:
    """`one` minus `other` in bits per byte of the same answers. Items are resampled in pairs."""
    return Estimate(*ratio_bootstrap((one.bits - other.bits)[which], one.num_bytes[which], SEED))


def paired_part_difference(one: Surprisal, other: Surprisal, which: np.ndarray, part: str) -> Estimate:
    """`one` minus `other` in bits for each token of a part. Items without the part are left out."""
    chosen = which & (one.part_tokens[part] > 0)
    bits = (one.part_bits[part] - other.part_bits[part])[chosen]
    return Estimate(*ratio_bootstrap(bits, one.part_tokens[part][chosen], SEED))


def contrast(one: Surprisal, other: Surprisal, leaked: np.ndarray, control: np.ndarray) -> Estimate:
    """The paired difference of leaked items minus that of control items, in bits per byte: the effect of the leak.

    Each group is resampled separately, its items in pairs.
    Raises: ValueError without leaked items, or without controls: then nothing is a measure of the leak.
    """
    if not leaked.any() or not control.any():
        raise ValueError(f"{leaked.sum()} leaked items and {control.sum()} controls; a contrast needs both")
    generator = np.random.Generator(np.random.PCG64(SEED))
    bits, sizes = one.bits - other.bits, one.num_bytes
    values, resampled = [], []
    for which in (leaked, control):
        members = np.flatnonzero(which)
        rows = members[generator.integers(0, members.size, size=(RESAMPLES, members.size))]
        values.append(float(bits[members].sum() / sizes[members].sum()))
        resampled.append(bits[rows].sum(axis=1) / sizes[rows].sum(axis=1))
    low, high = np.quantile(resampled[0] - resampled[1], [0.025, 0.975])
    return Estimate(values[0] - values[1], float(low), float(high))


type Measured = Mapping[tuple[str, str], Surprisal]
"""By (checkpoint, form)."""


def measure_all(
    scorers: Mapping[str, TokenScorer], tokenizer: Tokenizer, start_token: int, items: Sequence[Item]
) -> dict[tuple[str, str], Surprisal]:
    """Every checkpoint in both forms."""
    return {
        (name, form): measure(scorer, tokenizer, start_token, items, form) for name, scorer in scorers.items() for form in FORMS
    }
