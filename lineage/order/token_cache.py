"""Read a token cache, format `tokens/1` (`token_shards.py`): tokens by position, documents by id, and from one to the other."""

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lineage.artifact.store import Artifact
from lineage.order.document_ends import DocumentEnds
from lineage.order.document_index import DocumentIndex
from lineage.order.token_arrays import TokenArray, copy_pieces, copy_span
from lineage.order.token_files import (
    check_ends,
    check_sizes,
    checked_row_tokens,
    checked_weights_dtype,
    is_read_by_ranges,
    mapped_array,
    token_array,
    verify_files,
)
from lineage.order.token_shards import FOLDER, FORMAT, ID_BYTES, ShardInfo
from lineage.storage.ranges import RemoteArray


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
        weights_dtype = None if weights is None else checked_weights_dtype(artifact.name, weights)
        for shard in shards:
            check_sizes(artifact, shard, dtype, weights_dtype, by_ranges)
            arrays.append(token_array(artifact, f"{shard.name}.tokens", dtype, by_ranges))
            ends.append(mapped_array(artifact.file(f"{FOLDER}/{shard.name}.ends"), np.dtype("<i8")))
            ids.append(mapped_array(artifact.file(f"{FOLDER}/{shard.name}.ids"), np.dtype(np.uint8)).reshape(-1, ID_BYTES))
            check_ends(artifact.name, shard, ends[-1])
        verify_files(artifact, by_ranges)
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
            row_tokens=checked_row_tokens(artifact.name, facts, shards, ends),
            weight_arrays=()
            if weights_dtype is None
            else tuple(token_array(artifact, f"{shard.name}.weights", weights_dtype, by_ranges) for shard in shards),
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
        """Return the tokens `[start, stop)` across shards, in the cache's dtype."""
        out = np.empty(max(0, stop - start), self.dtype)
        self._check_span(start, stop)
        copy_span(self.arrays, self._bases, start, out)
        return out

    def read_into(self, start: int, out: np.ndarray) -> None:
        """Fill `out` with the tokens from `start` on, in its dtype."""
        self._check_span(start, start + out.size)
        copy_span(self.arrays, self._bases, start, out)

    def read_weights(self, start: int, stop: int) -> np.ndarray:
        """Return the loss weights of the tokens `[start, stop)` as targets, float32; ones where the cache has none."""
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
        """Return the ids in the order of the tokens."""
        return [row.tobytes().hex() for row in self.ids]

    def document_span(self, document_id: str) -> tuple[int, int] | None:
        """Return the first token and end of a document, or None when it is not here."""
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
