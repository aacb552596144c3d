"""A cache of computed prompt blocks: few-shot prompts of a task share all but their last lines.

A block is `block_tokens` tokens of a prompt after a given beginning. The digest of everything up to its end names it, so one
name means the same attention keys and values. Blocks of different cache lengths have different names: sums over a longer cache
differ in the last bit, and an answer must not depend on earlier requests.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field

import jax
import numpy as np


@dataclass(frozen=True)
class Block:
    """Keys and values `[L, 1, P, K, H]` of P prompt tokens, and the last hidden states `[P, D]`."""

    keys: jax.Array
    values: jax.Array
    hidden: jax.Array

    @property
    def num_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes + self.hidden.nbytes


@dataclass
class PrefixCache:
    """Blocks by key; drops the least recently used beyond `max_bytes` (0 keeps none)."""

    max_bytes: int
    num_bytes: int = 0
    blocks: OrderedDict[bytes, Block] = field(default_factory=OrderedDict)

    def get(self, key: bytes) -> Block | None:
        if key in self.blocks:
            self.blocks.move_to_end(key)
        return self.blocks.get(key)

    def put(self, key: bytes, block: Block) -> None:
        if key in self.blocks or block.num_bytes > self.max_bytes:
            return
        self.blocks[key] = block
        self.num_bytes += block.num_bytes
        while self.num_bytes > self.max_bytes:
            _, oldest = self.blocks.popitem(last=False)
            self.num_bytes -= oldest.num_bytes


def block_keys(tokens: np.ndarray, block_tokens: int, cache_length: int, *, incomplete: bool = False) -> list[bytes]:
    """Return the keys of the full blocks of a prompt; each is a digest of the previous key and the block's tokens.

    `incomplete`: the last block gets a key too if it is not full.
    """
    keys, last = [], cache_length.to_bytes(8, "little")
    end = len(tokens) if incomplete else len(tokens) // block_tokens * block_tokens
    for start in range(0, end, block_tokens):
        piece = np.asarray(tokens[start : start + block_tokens], np.int64).tobytes()
        last = hashlib.blake2b(last + piece, digest_size=16).digest()
        keys.append(last)
    return keys
