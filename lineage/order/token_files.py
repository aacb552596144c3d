"""The files of a token cache: map them or read them by ranges, and compare them with what the manifest says."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lineage.artifact.store import Artifact
from lineage.artifact.verified import changed_on_bucket, verify_once
from lineage.order.token_arrays import TokenArray
from lineage.order.token_shards import FOLDER, ID_BYTES, WEIGHT_DTYPES, ShardInfo
from lineage.storage.ranges import RemoteArray

log = logging.getLogger(__name__)

WHOLE_BYTES = 1 << 30
"""A remote cache below this is downloaded when it is opened; of a larger one ends and ids only; tokens are read by ranges."""
CHECKED_ENDS = 1 << 20


def verify_files(artifact: Artifact, by_ranges: bool) -> None:
    """Compare the bytes with the manifest, once for each state of the files.

    Tokens that stay in the bucket are compared by the checksum that it lists.
    Raises: ValueError naming a file that was changed.
    """
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


def checked_weights_dtype(name: str, dtype_name: str) -> np.dtype:
    """Return the little-endian type of loss weights. Raises: ValueError for one that the format does not have."""
    if dtype_name not in WEIGHT_DTYPES:
        raise ValueError(f"{name}: its manifest says that its weights are {dtype_name!r}; allowed: {', '.join(WEIGHT_DTYPES)}")
    return np.dtype(dtype_name).newbyteorder("<")


def checked_row_tokens(
    name: str, facts: Mapping[str, object], shards: Sequence[ShardInfo], ends: Sequence[np.ndarray]
) -> int | None:
    """Return the length of every document where each is a row of its own; None for text.

    Raises: ValueError if the manifest says that documents are rows of one length and they are not.
    """
    size = facts.get("row_tokens")
    if size is None:
        return None
    if not isinstance(size, int) or size < 2 or size % 2:
        raise ValueError(f"{name}: its manifest says that rows have {size!r} tokens; two sides need an even number")
    for shard, shard_ends in zip(shards, ends, strict=True):
        if not np.array_equal(shard_ends, size * np.arange(1, shard.num_documents + 1)):
            raise ValueError(f"{name}: the documents of shard {shard.name} are not rows of {size} tokens each")
    return size


def check_sizes(artifact: Artifact, shard: ShardInfo, dtype: np.dtype, weights_dtype: np.dtype | None, by_ranges: bool) -> None:
    """Compare the sizes of a shard's files with the manifest's facts; sizes as committed if the cache is read by ranges.

    Raises: ValueError.
    """
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


def token_array(artifact: Artifact, file: str, dtype: np.dtype, by_ranges: bool) -> TokenArray:
    """Open one flat array of a shard: mapped, or remote if it is read by ranges."""
    if by_ranges:
        name = f"{artifact.spec.address}/{artifact.manifest.data_folder}/{FOLDER}/{file}"
        size = next(entry.bytes for entry in artifact.manifest.files if entry.path == f"{FOLDER}/{file}")
        return RemoteArray(artifact.store.storage.files, name, dtype, size // dtype.itemsize)
    return mapped_array(artifact.file(f"{FOLDER}/{file}"), dtype)


def mapped_array(path: Path, dtype: np.dtype) -> np.ndarray:
    """Map a file of flat numbers. An empty file, which cannot be mapped, becomes an empty array."""
    return np.asarray(np.memmap(path, dtype=dtype, mode="r")) if path.stat().st_size else np.zeros(0, dtype)


def check_ends(name: str, shard: ShardInfo, ends: np.ndarray) -> None:
    """Check that document ends rise to the shard's tokens, some at a time because the file may be large. Raises: ValueError."""
    last = int(ends[-1]) if ends.size else 0
    falls = any(
        np.any(np.diff(ends[at : at + CHECKED_ENDS + 1]) < 0) or int(ends[at]) < 0 for at in range(0, ends.size, CHECKED_ENDS)
    )
    if last != shard.num_tokens or falls:
        raise ValueError(
            f"{name}: the document ends of shard {shard.name} must rise to its {shard.num_tokens} tokens; "
            f"the last end is {last}"
        )
