"""Write shards of a token cache, format `tokens/1`: flat token arrays, document ends, document ids.

A shard is three files: `<name>.tokens` (little-endian ids), `<name>.ends` (int64 document ends in tokens, relative to the
shard) and `<name>.ids` (16 raw bytes a document). A cache in which not every token counts in the loss has a fourth,
`<name>.weights`: the weight of each token as what is to be predicted, uint8 or float32 (since 2026-11-21; without it every
weight is one, and who does not know of it reads the tokens as before). The shards of one artifact, in name order, are one
long token array; the artifact's manifest says what they hold. `token_cache.py` reads them. Both are here so that the data
engine and the trainer share the format and nothing else (docs/design/house.md).
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

FORMAT = "tokens/1"
FOLDER = "tokens"
ID_BYTES = 16
DTYPES = ("uint16", "uint32")
WEIGHT_DTYPES = ("uint8", "float32")


@dataclass(frozen=True)
class ShardInfo:
    """One shard: its name and what it holds."""

    name: str
    num_tokens: int
    num_documents: int


def token_dtype(vocab_size: int) -> str:
    """Return the smallest token type that holds a vocabulary."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def write_token_shard(folder: Path, name: str, documents: Iterable[tuple[str, np.ndarray]], dtype: str) -> ShardInfo:
    """Write one shard from documents one by one, (id, tokens). Raises as `write_flat_shard` does."""
    ids, arrays = [], [np.zeros(0, np.int64)]
    for document_id, tokens in documents:
        ids.append(document_id)
        arrays.append(tokens)
    ends = np.cumsum([array.size for array in arrays[1:]], dtype=np.int64)
    return write_flat_shard(folder, name, ids, np.concatenate(arrays), ends, dtype)


def write_flat_shard(
    folder: Path,
    name: str,
    ids: Sequence[str],
    tokens: np.ndarray,
    ends: np.ndarray,
    dtype: str,
    weights: np.ndarray | None = None,
) -> ShardInfo:
    """Write one shard's files below `folder/tokens/`: all documents' tokens in one array, and where each document ends.

    `weights` [tokens], uint8 or float32, are written where they are given. Raises: ValueError for a type that the format does
    not have, a token that does not fit it, ends that do not rise to the number of tokens, or weights of another length, below
    zero or not finite.
    """
    if dtype not in DTYPES:
        raise ValueError(f"token dtype {dtype!r} of shard {name}; allowed: {', '.join(DTYPES)}")
    bad = np.flatnonzero((tokens > np.iinfo(dtype).max) | (tokens < 0))
    if bad.size:
        document_id = ids[int(np.searchsorted(ends, bad[0], side="right"))]
        raise ValueError(f"document {document_id}: token {int(tokens[bad[0]])} does not fit {dtype}")
    if len(ids) != ends.size or (int(ends[-1]) if ends.size else 0) != tokens.size or np.any(np.diff(ends, prepend=0) < 0):
        raise ValueError(f"shard {name}: {len(ids)} ids and {ends.size} ends, which must rise to {tokens.size} tokens")
    if weights is not None:
        _check_weights(name, weights, tokens.size)
    target = folder / FOLDER
    target.mkdir(parents=True, exist_ok=True)
    tokens.astype(np.dtype(dtype).newbyteorder("<")).tofile(target / f"{name}.tokens")
    ends.astype("<i8").tofile(target / f"{name}.ends")
    (target / f"{name}.ids").write_bytes(bytes.fromhex("".join(ids)))
    if weights is not None:
        weights.astype(weights.dtype.newbyteorder("<")).tofile(target / f"{name}.weights")
    return ShardInfo(name, int(tokens.size), len(ids))


def _check_weights(name: str, weights: np.ndarray, num_tokens: int) -> None:
    if weights.dtype.name not in WEIGHT_DTYPES:
        raise ValueError(f"weights of shard {name} are {weights.dtype.name}; allowed: {', '.join(WEIGHT_DTYPES)}")
    if weights.shape != (num_tokens,):
        raise ValueError(f"shard {name} has {num_tokens} tokens and weights of shape {weights.shape}; one a token is needed")
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise ValueError(f"weights of shard {name} go from {weights.min()} to {weights.max()}; they must be finite and >= 0")


def tokens_extra(
    component: str,
    dtype: str,
    vocab_size: int,
    tokenizer: str,
    bos: int | None,
    eos: int | None,
    shards: Sequence[ShardInfo],
    weights: str | None = None,
    row_tokens: int | None = None,
) -> dict[str, object]:
    """Return what `manifest.extra["tokens"]` says of a cache.

    `tokenizer` is a data version, `weights` the type of its weights. `row_tokens` is the length of every document where each
    is a row of its own.
    """
    return {
        "format": FORMAT,
        "component": component,
        "dtype": dtype,
        "vocab_size": vocab_size,
        "tokenizer": tokenizer,
        "bos": bos,
        "eos": eos,
        "num_tokens": sum(shard.num_tokens for shard in shards),
        "num_documents": sum(shard.num_documents for shard in shards),
        "shards": [asdict(shard) for shard in sorted(shards, key=lambda shard: shard.name)],
        **({} if weights is None else {"weights": weights}),
        **({} if row_tokens is None else {"row_tokens": row_tokens}),
    }
