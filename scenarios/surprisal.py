"""Surprisal of benchmark answers under checkpoints, in lm-eval's text and in OLMES's, item by item.

The answer follows `Question: ...\\nAnswer:` with no example before it: lm-eval's default of five examples does not fit the
replay's context, so a model knows the notation from its training alone. Where texts are compared, it is in bits per byte.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from evals.intervals import ratio_bootstrap
from evals.items import Item
from evals.prompts import CALCULATION
from evals.scorer import TokenScorer
from scenarios.bundle import lm_eval_answer, olmes_answer, prompt

FORMS = {"lm-eval": lm_eval_answer, "OLMES": olmes_answer}
SEED = 5


@dataclass(frozen=True)
class Surprisal:
    """One form of some items under one checkpoint, arrays over items: the answer's bits and UTF-8 bytes, its tags' bits.

    A token is a tag's when it overlaps `<<...>>`; OLMES's form has none. `truncated` counts prompts cut on the left.
    """

    bits: np.ndarray
    num_bytes: np.ndarray
    tag_bits: np.ndarray
    num_tag_tokens: np.ndarray
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
    """Bits of every item's answer in a form. Raises: ValueError for an answer that alone is longer than the context."""
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
    in_tag = [_overlaps_tag(answer, tail.offsets) for answer, tail in zip(answers, tails, strict=True)]
    return Surprisal(
        bits=np.array([each.sum() for each in nats]) / math.log(2),
        num_bytes=np.array([len(answer.encode()) for answer in answers], np.float64),
        tag_bits=np.array([each[mask].sum() for each, mask in zip(nats, in_tag, strict=True)]) / math.log(2),
        num_tag_tokens=np.array([mask.sum() for mask in in_tag], np.float64),
        truncated=truncated,
    )


def _overlaps_tag(text: str, offsets: Sequence[tuple[int, int]]) -> np.ndarray:
    """Which tokens, given as character spans, share a character with a calculator tag."""
    tags = [match.span() for match in CALCULATION.finditer(text)]
    return np.array([any(start < high and low < stop for low, high in tags) for start, stop in offsets], bool)


def bits_per_byte(measured: Surprisal, which: np.ndarray) -> Estimate:
    """Of some items (a mask)."""
    return Estimate(*ratio_bootstrap(measured.bits[which], measured.num_bytes[which], SEED))


def paired_difference(one: Surprisal, other: Surprisal, which: np.ndarray) -> Estimate:
    """`one` minus `other` in bits per byte of the same answers, items resampled in pairs."""
    return Estimate(*ratio_bootstrap((one.bits - other.bits)[which], one.num_bytes[which], SEED))


def paired_tag_difference(one: Surprisal, other: Surprisal, which: np.ndarray) -> Estimate:
    """`one` minus `other` in bits a tag token; items without a tag are left out."""
    chosen = which & (one.num_tag_tokens > 0)
    return Estimate(*ratio_bootstrap((one.tag_bits - other.tag_bits)[chosen], one.num_tag_tokens[chosen], SEED))


type Measured = Mapping[tuple[str, str], Surprisal]
"""By (checkpoint, form)."""


def measure_all(
    scorers: Mapping[str, TokenScorer], tokenizer: Tokenizer, start_token: int, items: Sequence[Item]
) -> dict[tuple[str, str], Surprisal]:
    """Every checkpoint in both forms."""
    return {
        (name, form): measure(scorer, tokenizer, start_token, items, form) for name, scorer in scorers.items() for form in FORMS
    }
