"""A real, simple model for the evaluator's tests: a unigram over tokens, so that every score can be worked out by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

START = 256


@dataclass(frozen=True)
class UnigramScorer:
    """`nats[t]` for token `t`, whatever comes before it. It remembers its sequences."""

    nats: np.ndarray
    max_seq_len: int = 64
    seen: list[np.ndarray] = field(default_factory=list)

    def token_nll(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        for sequence in sequences:
            if not 2 <= len(sequence) <= self.max_seq_len:
                raise ValueError(f"a sequence has {len(sequence)} tokens")
        self.seen.extend(np.asarray(sequence) for sequence in sequences)
        return [self.nats[np.asarray(sequence)[1:]].astype(np.float32) for sequence in sequences]

    def tail_nll(self, sequences: Sequence[np.ndarray], tails: Sequence[int]) -> list[np.ndarray]:
        return [nll[len(nll) - tail :] for nll, tail in zip(self.token_nll(sequences), tails, strict=True)]

    def tail_is_greedy(self, sequences: Sequence[np.ndarray], tails: Sequence[int]) -> list[bool]:
        least = self.nats.min()
        return [bool((nll == np.float32(least)).all()) for nll in self.tail_nll(sequences, tails)]


def byte_tokenizer() -> Tokenizer:
    """One token a byte: ids 0 to 255 are the bytes, `START` opens a sequence."""
    alphabet = bytes_to_characters()
    vocab = {alphabet[byte]: byte for byte in range(256)} | {"<|endoftext|>": START}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def bytes_to_characters() -> dict[int, str]:
    """GPT-2's visible stand-in for each byte."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + rank) for rank, byte in enumerate(hidden)}
