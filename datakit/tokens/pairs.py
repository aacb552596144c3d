"""Preference pairs become rows of tokens: the chosen side, then the rejected side, each padded to one length.

So a document of such a cache is a row of a batch, and the data order, its inverse and the audit treat pairs as documents.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from datakit.readers.pairs import PREFERENCE_FIELD, Pair
from datakit.tokens.chat_template import Conversation
from datakit.tokens.engines import Encoder
from datakit.tokens.formats import Dropped, Encoded, Preferences, TokenPolicy, conversation_encoder

PADDING = 0


def encode_pairs(
    format: Preferences, metadata: Sequence[str], encoder: Encoder, policy: TokenPolicy, tokenizer: Path
) -> list[Encoded | Dropped]:
    """Encode every pair, or say why it has no tokens.

    Reasons, beside those of the template: `no_pair`, `prompt_too_long` and `answer_too_long` for a side of `side_tokens`,
    `prompts_differ` if the template renders the prompt in two ways, `equal_sides` if the tokens do not differ.
    """
    encode = conversation_encoder(format, encoder, policy, tokenizer)
    encoded: list[Encoded | Dropped] = []
    for line in metadata:
        pair = Pair.from_json(json.loads(line).get(PREFERENCE_FIELD))
        if pair is None:
            encoded.append(Dropped("no_pair"))
            continue
        sides = [encode(Conversation((*pair.prompt, answer))) for answer in (pair.chosen, pair.rejected)]
        encoded.append(_row(format.side_tokens, sides))
    return encoded


def _row(size: int, sides: Sequence[Encoded | Dropped]) -> Encoded | Dropped:
    answers = []
    for side in sides:
        if isinstance(side, Dropped):
            return side
        assert side.weights is not None
        begin, end = _last_turn(side.weights)
        if begin >= size:
            return Dropped("prompt_too_long")
        if end > size:
            return Dropped("answer_too_long")
        answers.append((side.tokens[:end], begin))
    (chosen, first), (rejected, second) = answers
    if first != second or not np.array_equal(chosen[:first], rejected[:first]):
        return Dropped("prompts_differ")
    if np.array_equal(chosen, rejected):
        return Dropped("equal_sides")
    tokens, weights = np.full((2, size), PADDING, np.uint32), np.zeros((2, size), np.uint8)
    for number, (side, begin) in enumerate(answers):
        tokens[number, : side.size] = side
        weights[number, begin : side.size] = 1
    return Encoded(tokens.reshape(-1), weights.reshape(-1))


def _last_turn(weights: np.ndarray) -> tuple[int, int]:
    """Return the first token and end of the assistant's last turn, which alone is the answer."""
    counted = np.flatnonzero(weights)
    gaps = np.flatnonzero(np.diff(counted) > 1)
    return int(counted[gaps[-1] + 1] if gaps.size else counted[0]), int(counted[-1]) + 1
