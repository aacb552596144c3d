"""The reader of package `gguf`, bounded: a field that reaches beyond its file, and arrays of too many items, are refused.

Numpy cuts a read at the end of the data, so without a bound an array of 2^60 items yields empty items until the memory ends.
`make fuzz` found such a file of 5,739 bytes, which took 5.4 GB in two minutes (gguf 0.19.0).
"""

from pathlib import Path
from typing import Any, override

import numpy as np
from gguf import GGUFReader, GGUFValueType
from numpy.typing import DTypeLike, NDArray

MOST_ITEMS = 1 << 22
"""Items of all arrays together. A vocabulary of 256,000 has 1.3 million (tokens, types, scores, merges). The package keeps 300
bytes for each item."""


class BoundedReader(GGUFReader):
    """Reads a whole file's fields and the places of its tensors. Raises: ValueError for what lies beyond the file."""

    items: int = 0

    def __init__(self, path: Path):
        self.path = path
        super().__init__(path)

    @override
    def _get(self, offset: int, dtype: DTypeLike, count: int = 1, override_order: Any = None) -> NDArray[Any]:
        end = int(offset) + np.dtype(dtype).itemsize * int(count)
        if end > self.data.size:
            raise ValueError(f"{self.path.name}: a field reaches to byte {end:,}, and the file has {self.data.size:,} bytes")
        return super()._get(offset, dtype, count, override_order)

    @override
    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        if raw_type == GGUFValueType.ARRAY:
            self.items += int(self._get(orig_offs + 4, np.uint64)[0])
            if self.items > MOST_ITEMS:
                raise ValueError(f"{self.path.name}: its arrays have {self.items:,} items; at most {MOST_ITEMS:,} are read")
        return super()._get_field_parts(orig_offs, raw_type)
