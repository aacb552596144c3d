"""Arrays that stay in the bucket: one flat array in a file, read by ranges, with recent blocks kept in memory.

They are for token caches too large to download to every host: a batch reads a few KiB from each of many places.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from lineage.storage.files import Files

BLOCK_BYTES = 64 << 10
"""Smallest range of one request. A sequence of 4,096 uint16 tokens is 8 KiB, so eight times the bytes are read."""
KEPT_BLOCKS = 1024
"""Blocks kept of one array: 64 MiB."""


@dataclass
class RemoteArray:
    """A one-dimensional array in a file of a root, sliced like numpy's (step 1, no negative ends). Threads may share it."""

    files: Files
    name: str
    dtype: np.dtype
    size: int
    """Number of items."""

    block_bytes: int = BLOCK_BYTES
    kept_blocks: int = KEPT_BLOCKS
    _blocks: OrderedDict[int, bytes] = field(default_factory=OrderedDict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __getitem__(self, span: slice) -> np.ndarray:
        start, stop, step = span.indices(self.size)
        if step != 1:
            raise ValueError(f"{self.name}: step is {step}; only 1 is read from a bucket")
        low, high = start * self.dtype.itemsize, stop * self.dtype.itemsize
        if low >= high:
            return np.zeros(0, self.dtype)
        first, last = low // self.block_bytes, (high - 1) // self.block_bytes
        blocks = self._read(first, last)
        joined = b"".join(blocks[number] for number in range(first, last + 1))
        skip = low - first * self.block_bytes
        return np.frombuffer(joined[skip : skip + high - low], self.dtype)

    def _read(self, first: int, last: int) -> dict[int, bytes]:
        """Return the blocks of a run: kept ones, and the others by one request for each gap."""
        with self._lock:
            held_blocks = {number: self._blocks[number] for number in range(first, last + 1) if number in self._blocks}
        missing = [number for number in range(first, last + 1) if number not in held_blocks]
        while missing:
            run = next((i for i, number in enumerate(missing) if number != missing[0] + i), len(missing))
            held_blocks |= self._request(missing[0], missing[run - 1])
            missing = missing[run:]
        with self._lock:
            for number in range(first, last + 1):
                self._blocks[number] = held_blocks[number]
                self._blocks.move_to_end(number)
            while len(self._blocks) > self.kept_blocks:
                self._blocks.popitem(last=False)
        return held_blocks

    def _request(self, first: int, last: int) -> dict[int, bytes]:
        start, stop = first * self.block_bytes, min((last + 1) * self.block_bytes, self.size * self.dtype.itemsize)
        data = self.files.read_range(self.name, start, stop)
        if len(data) != stop - start:
            raise ValueError(
                f"{self.name}: {len(data)} bytes came of [{start}, {stop}); the file is shorter than its manifest says"
            )
        return {first + i: data[i * self.block_bytes : (i + 1) * self.block_bytes] for i in range(last - first + 1)}
