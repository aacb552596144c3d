"""Arrays of a checkpoint in safetensors files: whole from one process, in parts from several, read in any slices by either.

One process writes `model.safetensors`, an array by its path in the tree. Of several, each writes the shards that it owns
(the first replica of each) into `model.00000-of-00002.safetensors`, as `path@first,first,...`; the whole shapes are in the
file's metadata. A reader asks for slices of whole arrays, so what one mesh wrote another can read.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import safe_open

from lineage.store import Artifact

DTYPES = {
    "F32": "float32", "F64": "float64", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool", "U8": "uint8", "I8": "int8",
    "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32", "U64": "uint64", "I64": "int64",
}  # fmt: skip
SHAPES = "shapes"
"""Key of a part's metadata: whole shapes by array, as JSON."""
type Index = tuple[slice, ...]


def open_arrays(artifact: Artifact, name: str) -> "ArrayFiles":
    """The arrays of a checkpoint under one name. Raises: ValueError where it has none, naming why that may be."""
    files = ArrayFiles.open(artifact.folder(), name, artifact.name)
    if files is None:
        why = {"ema": "; its run spec sets no ema, so weights must be 'raw'"}.get(name, "")
        raise ValueError(f"{artifact.name} has no {name}.safetensors{why}")
    return files


@dataclass(frozen=True)
class ArrayFiles:
    """The arrays of a checkpoint's folder under one name (`model`, `optimizer`, ...), read a slice at a time."""

    where: str
    pieces: Mapping[str, tuple["_Piece", ...]]
    shapes: Mapping[str, tuple[tuple[int, ...], str]]
    """Shape and dtype of every whole array."""

    @staticmethod
    def open(folder: Path, name: str, where: str) -> "ArrayFiles | None":
        """None where there is no such file. Raises: ValueError where a part is missing, naming it."""
        whole = folder / f"{name}.safetensors"
        paths = [whole] if whole.exists() else sorted(folder.glob(f"{name}.*-of-*.safetensors"))
        if not paths:
            return None
        if paths != [whole]:
            count = int(paths[0].stem.rpartition("-of-")[2])
            wanted = [folder / f"{name}.{index:05d}-of-{count:05d}.safetensors" for index in range(count)]
            missing = [path.name for path in wanted if path not in paths]
            if missing:
                raise ValueError(f"{where}: {missing[0]} is missing, one of {count} parts that as many processes wrote")
        pieces: dict[str, list[_Piece]] = defaultdict(list)
        shapes: dict[str, tuple[tuple[int, ...], str]] = {}
        for path in paths:
            with safe_open(path, framework="numpy") as opened:
                told = json.loads((opened.metadata() or {}).get(SHAPES, "{}"))
                for key in opened.keys():  # noqa: SIM118 (no mapping)
                    piece = opened.get_slice(key)
                    size = tuple(piece.get_shape())
                    array, _, first = key.rpartition("@") if told else (key, "", "")
                    start = tuple(int(number) for number in first.split(",")) if first else (0,) * len(size)
                    pieces[array].append(_Piece(path, key, start, size))
                    shapes[array] = tuple(told.get(array, size)), DTYPES[piece.get_dtype()]
        return ArrayFiles(where, {key: tuple(found) for key, found in pieces.items()}, shapes)

    def read(self, name: str, index: Index | None = None) -> np.ndarray:
        """A slice of an array, all of it without one. Raises: ValueError where the pieces do not cover it."""
        shape, _ = self.shapes[name]
        wanted = [axis.indices(size)[:2] for axis, size in zip(index or (slice(None),) * len(shape), shape, strict=True)]
        found: np.ndarray | None = None
        covered = 0
        for piece in self.pieces[name]:
            overlap = piece.overlap(wanted)
            if overlap is None:
                continue
            values = piece.read(overlap)
            if all(low == first and high == last for (low, high), (first, last) in zip(overlap, wanted, strict=True)):
                return values
            if found is None:
                found = np.empty([high - low for low, high in wanted], values.dtype)
            found[tuple(slice(low - first, high - first) for (low, high), (first, _) in zip(overlap, wanted, strict=True))] = (
                values
            )
            covered += values.size
        if found is None or covered != found.size:
            raise ValueError(f"{self.where}: the parts of array {name} do not cover {wanted} of its shape {shape}")
        return found

    def whole(self) -> dict[str, np.ndarray]:
        """Every array, whole."""
        return {name: self.read(name) for name in self.shapes}


@dataclass(frozen=True)
class _Piece:
    path: Path
    key: str
    start: tuple[int, ...]
    size: tuple[int, ...]

    def overlap(self, wanted: list[tuple[int, int]]) -> list[tuple[int, int]] | None:
        """What of a range lies in this piece, in the whole array's coordinates."""
        both = [
            (max(low, first), min(high, first + length))
            for (low, high), first, length in zip(wanted, self.start, self.size, strict=True)
        ]
        return None if any(low >= high for low, high in both) else both

    def read(self, overlap: list[tuple[int, int]]) -> np.ndarray:
        with safe_open(self.path, framework="numpy") as opened:
            if not self.size:
                return opened.get_tensor(self.key)
            inside = tuple(slice(low - first, high - first) for (low, high), first in zip(overlap, self.start, strict=True))
            return np.ascontiguousarray(opened.get_slice(self.key)[inside])
