"""The interface of a scorer: nats of every token given its prefix. `trainer.scoring.Scorer` implements it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from tokenizers import Tokenizer


class TokenScorer(Protocol):
    """A model that scores token sequences of 2 to `max_seq_len` tokens."""

    @property
    def max_seq_len(self) -> int: ...

    def token_nll(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the nats of tokens 1.. of each sequence, given the tokens before them."""
        ...

    def tail_nll(self, sequences: Sequence[np.ndarray], tails: Sequence[int]) -> list[np.ndarray]:
        """Return the nats of the last `tails[i]` tokens of each sequence; common prefixes are computed once."""
        ...

    def tail_is_greedy(self, sequences: Sequence[np.ndarray], tails: Sequence[int]) -> list[bool]:
        """Whether all of the last `tails[i]` tokens are the likeliest at their places."""
        ...


@dataclass(frozen=True)
class Scored:
    """Scores of one continuation: nats, UTF-8 bytes, prompt tokens that did not fit, and whether greedy decoding gives it
    (None if not computed)."""

    nats: float
    num_bytes: int
    truncated_tokens: int
    is_greedy: bool | None = None


def score_continuations(
    scorer: TokenScorer, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], start_token: int, *, greedy: bool = False
) -> list[Scored | None]:
    """Return the nats of each continuation after its prompt; equal pairs are scored once.

    `start_token` precedes the prompt, which is cut on the left to fit; None if the continuation alone is too long. Prompt and
    continuation are encoded separately. lm-eval encodes them together, so its accuracies may differ
    (docs/recipes/evaluate_over_a_url.md).
    """
    unique = list(dict.fromkeys(pairs))
    prompts = _encode(tokenizer, [prompt for prompt, _ in unique])
    endings = _encode_endings(tokenizer, [ending for _, ending in unique])
    sequences, facts = [], []
    for head, tail in zip(prompts, endings, strict=True):
        room = scorer.max_seq_len - 1 - tail.size
        facts.append((tail.size, max(0, head.size - max(room, 0)), room >= 0 and tail.size > 0))
        if facts[-1][2]:
            kept = head[head.size - room :] if head.size > room else head
            sequences.append(np.concatenate([[start_token], kept, tail]).astype(np.int32))
    tails = [size for size, _, fits in facts if fits]
    scored = iter(scorer.tail_nll(sequences, tails))
    greedy_flags = iter(scorer.tail_is_greedy(sequences, tails) if greedy else [None] * len(tails))
    results: dict[tuple[str, str], Scored | None] = {}
    for pair, (_, truncated, fits) in zip(unique, facts, strict=True):
        nats = float(next(scored).sum(dtype=np.float64)) if fits else 0.0
        results[pair] = Scored(nats, len(pair[1].encode()), truncated, next(greedy_flags)) if fits else None
    return [results[pair] for pair in pairs]


def _encode_endings(tokenizer: Tokenizer, endings: list[str]) -> list[np.ndarray]:
    """Encode texts that continue other texts.

    A SentencePiece tokenizer puts a space before every text, which an ending must not have. An ending is therefore encoded
    after a newline, and the newline's tokens are removed. A tokenizer that encodes "a" alike alone and after a newline, or
    that joins the two, puts no space there: its endings are encoded as they are.

    Raises: ValueError for an ending that such a tokenizer joins to the newline.
    """
    line_end, alone, behind = _encode(tokenizer, ["\n", "a", "\na"])
    rest = behind[line_end.size :]
    if not np.array_equal(behind[: line_end.size], line_end) or np.array_equal(rest, alone):
        return _encode(tokenizer, endings)
    pieces = _encode(tokenizer, [f"\n{ending}" for ending in endings])
    odd = [ending for ending, ids in zip(endings, pieces, strict=True) if not np.array_equal(ids[: line_end.size], line_end)]
    if odd:
        raise ValueError(
            f"the tokenizer joins {odd[0][:40]!r} to the line before it; so an ending cannot be separated from its prompt"
        )
    return [ids[line_end.size :] for ids in pieces]


def _encode(tokenizer: Tokenizer, texts: list[str]) -> list[np.ndarray]:
    encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [np.asarray(e.ids, dtype=np.int64) for e in encoded]
