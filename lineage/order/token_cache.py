"""The token cache, format `tokens/1`: flat token arrays, document ends, document ids - enough to go both ways.

A shard is three files: `<name>.tokens` (little-endian ids), `<name>.ends` (int64 document ends in tokens, relative to the
shard) and `<name>.ids` (16 raw bytes a document). A cache in which not every token counts in the loss has a fourth,
`<name>.weights`: the weight of each token as what is to be predicted, uint8 or float32 (since 2026-11-21; without it every
weight is one, and who does not know of it reads the tokens as before). The shards of one artifact, in name order, are one
long token array; the artifact's manifest says what they hold. Writer and reader are here so that the data engine and the
trainer share the format and nothing else (docs/design/house.md).
"""

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from lineage.artifact.store import Artifact
from lineage.artifact.verified import changed_on_bucket, verify_once
from lineage.order.document_ends import DocumentEnds
from lineage.order.document_index import DocumentIndex
from lineage.order.token_arrays import TokenArray, copy_pieces, copy_span
from lineage.storage.ranges import RemoteArray

log = logging.getLogger(__name__)

FORMAT = "tokens/1"
FOLDER = "tokens"
ID_BYTES = 16
WHOLE_BYTES = 1 << 30
"""A remote cache below this is downloaded when it is opened; of a larger one ends and ids only; tokens are read by ranges."""
CHECKED_ENDS = 1 << 20
DTYPES = ("uint16", "uint32")
WEIGHT_DTYPES = ("uint8", "float32")


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
    """What `manifest.extra["tokens"]` says of a cache; `tokenizer` is a data version, `weights` the type of its weights.
    `row_tokens` is the length of every document where each is a row of its own."""
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
    arrays: tuple[TokenArray, ...]
    shard_ends: tuple[np.ndarray, ...]
    """int64 [documents] a shard, mapped: end of every document in tokens of its shard."""
    shard_ids: tuple[np.ndarray, ...]
    """uint8 [documents, 16] a shard, mapped."""
    weights_dtype: str | None = None
    weight_arrays: tuple[TokenArray, ...] = ()
    """Loss weights of the tokens in `arrays`; empty where every weight is one."""
    row_tokens: int | None = None
    """Tokens of every document, where each is a row of its own: a preference pair of two padded sides. None: text."""

    @staticmethod
    def open(artifact: Artifact) -> "TokenCache":
        """Open a committed cache. Raises ValueError when its manifest and its files disagree."""
        facts = artifact.manifest.extra.get("tokens")
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise ValueError(f"{artifact.name} is no token cache of format {FORMAT}; its manifest says {facts!r}")
        by_ranges = is_read_by_ranges(artifact)
        if not by_ranges:
            artifact.folder()
        shards = tuple(ShardInfo(**shard) for shard in facts["shards"])
        arrays, ends, ids = [], [], []
        dtype, weights = np.dtype(facts["dtype"]).newbyteorder("<"), facts.get("weights")
        weights_dtype = None if weights is None else _weights_dtype(artifact.name, weights)
        for shard in shards:
            _check_sizes(artifact, shard, dtype, weights_dtype, by_ranges)
            arrays.append(_array(artifact, f"{shard.name}.tokens", dtype, by_ranges))
            ends.append(_mapped(artifact.file(f"{FOLDER}/{shard.name}.ends"), np.dtype("<i8")))
            ids.append(_mapped(artifact.file(f"{FOLDER}/{shard.name}.ids"), np.dtype(np.uint8)).reshape(-1, ID_BYTES))
            _check_ends(artifact.name, shard, ends[-1])
        _verify(artifact, by_ranges)
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
            shard_ends=tuple(ends),
            shard_ids=tuple(ids),
            weights_dtype=weights,
            row_tokens=_row_tokens(artifact.name, facts, shards, ends),
            weight_arrays=()
            if weights_dtype is None
            else tuple(_array(artifact, f"{shard.name}.weights", weights_dtype, by_ranges) for shard in shards),
        )

    @cached_property
    def is_remote(self) -> bool:
        """Whether a read may be a request, so that many are better made at once."""
        return any(isinstance(array, RemoteArray) for array in self.arrays)

    @property
    def has_weights(self) -> bool:
        """Whether some token may count less or more than one in the loss."""
        return self.weights_dtype is not None

    @cached_property
    def ends(self) -> DocumentEnds:
        """End of every document in tokens of the whole cache, read where the shards have it."""
        return DocumentEnds.of(self.shard_ends, self._bases)

    @cached_property
    def ids(self) -> np.ndarray:
        """uint8 [documents, 16], made when somebody asks: training never does."""
        return np.concatenate([np.zeros((0, ID_BYTES), np.uint8), *self.shard_ids])

    @cached_property
    def num_tokens(self) -> int:
        return self._bases[-1]

    @cached_property
    def num_documents(self) -> int:
        return sum(shard.num_documents for shard in self.shards)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens `[start, stop)` across shards, in the cache's dtype."""
        out = np.empty(max(0, stop - start), self.dtype)
        self._check_span(start, stop)
        copy_span(self.arrays, self._bases, start, out)
        return out

    def read_into(self, start: int, out: np.ndarray) -> None:
        """Fill `out` with the tokens from `start` on, in its dtype."""
        self._check_span(start, start + out.size)
        copy_span(self.arrays, self._bases, start, out)

    def read_weights(self, start: int, stop: int) -> np.ndarray:
        """Loss weights of the tokens `[start, stop)` as targets, float32; ones where the cache has none."""
        out = np.empty(max(0, stop - start), np.float32)
        self.read_weights_into(start, out)
        return out

    def read_weights_into(self, start: int, out: np.ndarray) -> None:
        """Fill `out` with the loss weights from `start` on."""
        self._check_span(start, start + out.size)
        if self.has_weights:
            copy_span(self.weight_arrays, self._bases, start, out)
        else:
            out[...] = 1

    def read_pieces_into(
        self, starts: np.ndarray, lengths: np.ndarray, out: np.ndarray, at: np.ndarray, *, weights: bool = False
    ) -> None:
        """Fill `out` [rows, seq_len] from each of its flat positions `at` on with the `lengths` tokens from `starts` on, or
        with their loss weights, which the cache must have. Raises: ValueError for a cache that stays in the bucket."""
        arrays = self.weight_arrays if weights else self.arrays
        mapped = [array for array in arrays if isinstance(array, np.ndarray)]
        if len(mapped) < len(self.shards):
            raise ValueError(f"{self.artifact_name}: {len(mapped)} of {len(self.shards)} arrays are mapped; use read_into")
        if starts.size:
            self._check_span(int(starts.min()), int((starts + lengths).max()))
        copy_pieces(mapped, self._bases, starts, lengths, out, at)

    def _check_span(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.num_tokens:
            raise ValueError(f"{self.artifact_name}: span [{start}, {stop}) is outside its {self.num_tokens} tokens")

    def document_ids(self) -> list[str]:
        """Ids in the order of the tokens."""
        return [row.tobytes().hex() for row in self.ids]

    def document_span(self, document_id: str) -> tuple[int, int] | None:
        """First token and end of a document, or None when it is not here."""
        index = self._index.find(bytes.fromhex(document_id))
        if index is None:
            return None
        start, end = [0, *self.ends[max(0, index - 1) : index + 1].tolist()][-2:]
        return start, end

    def documents_between(self, start: int, stop: int) -> list[tuple[str, int, int]]:
        """(id, start, stop) of every document with a token in `[start, stop)`; spans are the documents' own, none is empty."""
        first, last = self.ends.at_or_before(np.array([start, stop - 1])).tolist()
        edges = [0, *self.ends[max(0, first - 1) : last + 1].tolist()][0 if first == 0 else 1 :]
        spans = []
        for index, (low, high) in enumerate(itertools.pairwise(edges), start=first):
            if max(low, start) < min(high, stop):
                spans.append((self.ids[index].tobytes().hex(), low, high))
        return spans

    @cached_property
    def _bases(self) -> list[int]:
        """First token of each shard."""
        return [0, *itertools.accumulate(shard.num_tokens for shard in self.shards)]

    @cached_property
    def _index(self) -> DocumentIndex:
        return DocumentIndex.of(self.shard_ids)


def _verify(artifact: Artifact, by_ranges: bool) -> None:
    """Compare the bytes with the manifest, once for each state of the files; tokens that stay in the bucket by the checksum
    that it lists. Raises: ValueError naming a file that was changed."""
    if not by_ranges:
        verify_once(artifact)
        return
    remote = {entry for entry in artifact.manifest.files if entry.path.endswith((".tokens", ".weights"))}
    verify_once(artifact, {entry.path for entry in artifact.manifest.files if entry not in remote})
    listed = artifact.store.storage.listed(f"{artifact.spec.address}/{artifact.manifest.data_folder}")
    for entry in sorted(remote, key=lambda each: each.path):
        if changed_on_bucket(entry, listed.get(entry.path)):
            raise ValueError(f"{artifact.name}: object {entry.path} is not as it was committed: {listed.get(entry.path)}")
        if entry.crc32c is None:
            log.warning("%s: %s has no checksum in its manifest; only its size is compared", artifact.name, entry.path)


def is_read_by_ranges(artifact: Artifact) -> bool:
    """Whether a cache's tokens stay in the bucket."""
    return not artifact.store.storage.is_local and sum(entry.bytes for entry in artifact.manifest.files) >= WHOLE_BYTES


def _weights_dtype(name: str, dtype_name: str) -> np.dtype:
    if dtype_name not in WEIGHT_DTYPES:
        raise ValueError(f"{name}: its manifest says that its weights are {dtype_name!r}; allowed: {', '.join(WEIGHT_DTYPES)}")
    return np.dtype(dtype_name).newbyteorder("<")


def _row_tokens(name: str, facts: Mapping[str, object], shards: Sequence[ShardInfo], ends: Sequence[np.ndarray]) -> int | None:
    """Raises: ValueError where the manifest says that documents are rows of one length and they are not."""
    size = facts.get("row_tokens")
    if size is None:
        return None
    if not isinstance(size, int) or size < 2 or size % 2:
        raise ValueError(f"{name}: its manifest says that rows have {size!r} tokens; two sides need an even number")
    for shard, shard_ends in zip(shards, ends, strict=True):
        if not np.array_equal(shard_ends, size * np.arange(1, shard.num_documents + 1)):
            raise ValueError(f"{name}: the documents of shard {shard.name} are not rows of {size} tokens each")
    return size


def _check_sizes(
    artifact: Artifact, shard: ShardInfo, dtype: np.dtype, weights_dtype: np.dtype | None, by_ranges: bool
) -> None:
    """Raises: ValueError for a file of another size than the manifest's facts give (as committed, if read by ranges)."""
    committed = {entry.path: entry.bytes for entry in artifact.manifest.files}
    wanted = {
        "tokens": shard.num_tokens * dtype.itemsize,
        "ends": shard.num_documents * 8,
        "ids": shard.num_documents * ID_BYTES,
    }
    if weights_dtype is not None:
        wanted["weights"] = shard.num_tokens * weights_dtype.itemsize
    for suffix, num_bytes in wanted.items():
        path = f"{FOLDER}/{shard.name}.{suffix}"
        size = committed.get(path, 0) if by_ranges else artifact.file(path).stat().st_size
        if size != num_bytes:
            raise ValueError(
                f"{artifact.name}: shard {shard.name} holds {size} bytes of .{suffix}, not {num_bytes}; its manifest says "
                f"{shard.num_tokens} tokens and {shard.num_documents} documents, the tokens as {dtype.name}"
            )


def _array(artifact: Artifact, file: str, dtype: np.dtype, by_ranges: bool) -> TokenArray:
    if by_ranges:
        name = f"{artifact.spec.address}/{artifact.manifest.data_folder}/{FOLDER}/{file}"
        size = next(entry.bytes for entry in artifact.manifest.files if entry.path == f"{FOLDER}/{file}")
        return RemoteArray(artifact.store.storage.files, name, dtype, size // dtype.itemsize)
    return _mapped(artifact.file(f"{FOLDER}/{file}"), dtype)


def _mapped(path: Path, dtype: np.dtype) -> np.ndarray:
    return np.asarray(np.memmap(path, dtype=dtype, mode="r")) if path.stat().st_size else np.zeros(0, dtype)


def _check_ends(name: str, shard: ShardInfo, ends: np.ndarray) -> None:
    """Raises: ValueError for ends that fall, or do not reach the shard's tokens. A stretch at a time: the file may be large."""
    last = int(ends[-1]) if ends.size else 0
    falls = any(
        np.any(np.diff(ends[at : at + CHECKED_ENDS + 1]) < 0) or int(ends[at]) < 0 for at in range(0, ends.size, CHECKED_ENDS)
    )
    if last != shard.num_tokens or falls:
        raise ValueError(
            f"{name}: the document ends of shard {shard.name} must rise to its {shard.num_tokens} tokens; "
            f"the last end is {last}"
        )
