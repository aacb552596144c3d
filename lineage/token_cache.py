"""The token cache, format `tokens/1`: flat token arrays, document ends, document ids - enough to go both ways.

A shard is three files: `<name>.tokens` (little-endian ids), `<name>.ends` (int64 document ends in tokens, relative to the
shard) and `<name>.ids` (16 raw bytes a document). The shards of one artifact, in name order, are one long token array; the
artifact's manifest says what they hold. Writer and reader are here so that the data engine and the trainer share the format
and nothing else (DESIGN, section 4).
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from lineage.store import Artifact

FORMAT = "tokens/1"
FOLDER = "tokens"
ID_BYTES = 16
DTYPES = ("uint16", "uint32")


@dataclass(frozen=True)
class ShardInfo:
    """One shard: its name and what it holds."""

    name: str
    num_tokens: int
    num_documents: int


def token_dtype(vocab_size: int) -> str:
    """The smallest token type that holds a vocabulary."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def write_token_shard(folder: Path, name: str, documents: Iterable[tuple[str, np.ndarray]], dtype: str) -> ShardInfo:
    """Write one shard's three files below `folder/tokens/`.

    Raises: ValueError for a type that is not `uint16` or `uint32`, and for a token that does not fit it.
    """
    if dtype not in DTYPES:
        raise ValueError(f"token dtype {dtype!r} of shard {name}; allowed: {', '.join(DTYPES)}")
    limit = np.iinfo(dtype).max
    target = folder / FOLDER
    target.mkdir(parents=True, exist_ok=True)
    ends: list[int] = []
    total = 0
    with (target / f"{name}.tokens").open("wb") as tokens_file, (target / f"{name}.ids").open("wb") as ids_file:
        for document_id, tokens in documents:
            if tokens.size and (int(tokens.max()) > limit or int(tokens.min()) < 0):
                raise ValueError(f"document {document_id}: token {int(tokens.max())} does not fit {dtype}")
            tokens_file.write(np.ascontiguousarray(tokens, dtype=np.dtype(dtype).newbyteorder("<")).tobytes())
            ids_file.write(bytes.fromhex(document_id))
            total += int(tokens.size)
            ends.append(total)
    np.asarray(ends, dtype="<i8").tofile(target / f"{name}.ends")
    return ShardInfo(name, total, len(ends))


def tokens_extra(
    component: str,
    dtype: str,
    vocab_size: int,
    tokenizer: str,
    bos: int | None,
    eos: int | None,
    shards: Sequence[ShardInfo],
) -> dict[str, object]:
    """What `manifest.extra["tokens"]` says of a cache; `tokenizer` is a data version."""
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
    }


@dataclass(frozen=True)
class TokenCache:
    """A cache, memory-mapped. Token positions count across shards."""

    artifact_name: str
    component: str
    dtype: str
    vocab_size: int
    tokenizer: str
    bos: int | None
    eos: int | None
    shards: tuple[ShardInfo, ...]
    arrays: tuple[np.ndarray, ...]
    ends: np.ndarray
    """int64 [documents]: end of every document in tokens of the whole cache."""
    ids: np.ndarray
    """uint8 [documents, 16]."""

    @staticmethod
    def open(artifact: Artifact) -> "TokenCache":
        """Open a committed cache. Raises ValueError when its manifest and its files disagree."""
        facts = artifact.manifest.extra.get("tokens")
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise ValueError(f"{artifact.name} is no token cache of format {FORMAT}; its manifest says {facts!r}")
        folder = artifact.folder() / FOLDER
        shards = tuple(ShardInfo(**shard) for shard in facts["shards"])
        arrays, ends, ids, base = [], [np.zeros(0, np.int64)], [np.zeros((0, ID_BYTES), np.uint8)], 0
        dtype = np.dtype(facts["dtype"]).newbyteorder("<")
        for shard in shards:
            _check_sizes(artifact.name, folder, shard, dtype)
            shard_ends = np.fromfile(folder / f"{shard.name}.ends", dtype="<i8")
            shard_ids = np.fromfile(folder / f"{shard.name}.ids", dtype=np.uint8).reshape(-1, ID_BYTES)
            last_end = int(shard_ends[-1]) if shard_ends.size else 0
            if last_end != shard.num_tokens or np.any(np.diff(shard_ends, prepend=0) < 0):
                raise ValueError(
                    f"{artifact.name}: the document ends of shard {shard.name} must rise to its {shard.num_tokens} tokens; the "
                    f"last end is {last_end}"
                )
            arrays.append(_map(folder / f"{shard.name}.tokens", dtype))
            ends.append(shard_ends + base)
            ids.append(shard_ids)
            base += shard.num_tokens
        return TokenCache(
            artifact_name=artifact.name,
            component=facts["component"],
            dtype=facts["dtype"],
            vocab_size=facts["vocab_size"],
            tokenizer=facts["tokenizer"],
            bos=facts["bos"],
            eos=facts["eos"],
            shards=shards,
            arrays=tuple(arrays),
            ends=np.concatenate(ends),
            ids=np.concatenate(ids),
        )

    @property
    def num_tokens(self) -> int:
        return int(self.ends[-1]) if self.ends.size else 0

    @property
    def num_documents(self) -> int:
        return int(self.ends.size)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens `[start, stop)` across shards, in the cache's dtype."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise ValueError(f"{self.artifact_name}: span [{start}, {stop}) is outside its {self.num_tokens} tokens")
        pieces, base = [np.zeros(0, self.dtype)], 0
        for array in self.arrays:
            low, high = max(start - base, 0), min(stop - base, array.size)
            if low < high:
                pieces.append(array[low:high])
            base += array.size
        return np.concatenate(pieces)

    def document_ids(self) -> list[str]:
        """Ids in the order of the tokens."""
        return [row.tobytes().hex() for row in self.ids]

    def document_span(self, document_id: str) -> tuple[int, int] | None:
        """First token and end of a document, or None when it is not here."""
        index = self._index.get(bytes.fromhex(document_id))
        if index is None:
            return None
        return (int(self.ends[index - 1]) if index else 0), int(self.ends[index])

    def documents_between(self, start: int, stop: int) -> list[tuple[str, int, int]]:
        """(id, start, stop) of every document with a token in `[start, stop)`; spans are the documents' own, none is empty."""
        first = int(np.searchsorted(self.ends, start, side="right"))
        found = []
        for index in range(first, self.num_documents):
            low = int(self.ends[index - 1]) if index else 0
            if low >= stop:
                break
            high = int(self.ends[index])
            if max(low, start) < min(high, stop):
                found.append((self.ids[index].tobytes().hex(), low, high))
        return found

    @cached_property
    def _index(self) -> dict[bytes, int]:
        return {row.tobytes(): i for i, row in enumerate(self.ids)}


def _check_sizes(name: str, folder: Path, shard: ShardInfo, dtype: np.dtype) -> None:
    wanted = {
        "tokens": shard.num_tokens * dtype.itemsize,
        "ends": shard.num_documents * 8,
        "ids": shard.num_documents * ID_BYTES,
    }
    for suffix, num_bytes in wanted.items():
        found = (folder / f"{shard.name}.{suffix}").stat().st_size
        if found != num_bytes:
            raise ValueError(
                f"{name}: shard {shard.name} holds {found} bytes of .{suffix}, not {num_bytes}; its manifest says "
                f"{shard.num_tokens} tokens and {shard.num_documents} documents, the tokens as {dtype.name}"
            )


def _map(path: Path, dtype: np.dtype) -> np.ndarray:
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.zeros(0, dtype)
