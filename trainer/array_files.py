"""Arrays of a checkpoint in safetensors files: whole from one process, in parts from several; readers ask for any
slices.

One process writes `model.safetensors`, with each array under its path in the tree. Each of several processes writes the
shards that it owns (the first replica of each) into `model.00000-of-00002.safetensors`, as `path@first,first,...`; the
whole shapes are in the file's metadata. A reader asks for slices of whole arrays, so any mesh can read what another
wrote, and from files in a bucket only the bytes of those slices are read (`Files`).
"""

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lineage.artifact.store import Artifact

DTYPES = {
    "F32": "float32", "F64": "float64", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool", "U8": "uint8", "I8": "int8",
    "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32", "U64": "uint64", "I64": "int64",
}  # fmt: skip
SHAPES = "shapes"
"""Key of a part's metadata: whole shapes by array, as JSON."""
GAP_BYTES = 1 << 20
"""Two ranges with a gap of at most this many bytes are read in one request, which costs less than two."""
HEADER_BYTES = 8 << 10
"""Bytes of the first read of a file: its header, unless it names about a hundred arrays or more."""
type Index = tuple[slice, ...]
type Box = list[tuple[int, int]]


@dataclass
class Files:
    """Files that are read by ranges of bytes, and the number of bytes read."""

    sizes: Mapping[str, int]
    read: Callable[[str, int, int], bytes]
    """(name, first, end) -> those bytes."""
    gap_bytes: int = GAP_BYTES
    bytes_read: int = 0

    @staticmethod
    def of_folder(folder: Path) -> "Files":
        def read(name: str, start: int, stop: int) -> bytes:
            with (folder / name).open("rb") as file:
                file.seek(start)
                return file.read(stop - start)

        return Files({path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}, read)

    @staticmethod
    def of_artifact(artifact: Artifact) -> "Files":
        """The files of an artifact that is not fetched whole; files that are already local are read locally."""
        return Files({entry.path: entry.bytes for entry in artifact.manifest.files}, artifact.read_range)

    def get(self, name: str, start: int, stop: int) -> bytes:
        """The bytes [start, stop). Raises: ValueError if the file is shorter than when it was written."""
        data = self.read(name, start, min(stop, self.sizes[name]))
        self.bytes_read += len(data)
        if len(data) != min(stop, self.sizes[name]) - start:
            raise ValueError(f"{name}: {len(data)} bytes came of [{start}, {stop}); the file is shorter than it was written")
        return data


def open_arrays(artifact: Artifact, name: str, source: Files | None = None) -> "ArrayFiles":
    """The arrays of a checkpoint under one name; its files are fetched whole unless a `source` is given.

    Raises: ValueError if the checkpoint has none of that name.
    """
    files = ArrayFiles.of(Files.of_folder(artifact.folder()) if source is None else source, name, artifact.name)
    if files is None:
        why = {"ema": "; its run spec sets no ema, so weights must be 'raw', or an average 'fresh'"}.get(name, "")
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
        """The arrays in a local folder; None if there are none of that name."""
        return ArrayFiles.of(Files.of_folder(folder), name, where)

    @staticmethod
    def of(files: Files, name: str, where: str) -> "ArrayFiles | None":
        """The arrays of one name; None if there is no such file. Raises: ValueError naming a part that is missing."""
        parts = sorted(path for path in files.sizes if path.startswith(f"{name}.") and path.endswith(".safetensors"))
        paths = [f"{name}.safetensors"] if f"{name}.safetensors" in parts else parts
        if not paths:
            return None
        if paths != [f"{name}.safetensors"]:
            count = int(paths[0].removesuffix(".safetensors").rpartition("-of-")[2])
            wanted = [f"{name}.{index:05d}-of-{count:05d}.safetensors" for index in range(count)]
            missing = [path for path in wanted if path not in paths]
            if missing:
                raise ValueError(f"{where}: {missing[0]} is missing, one of {count} parts that as many processes wrote")
        pieces: dict[str, list[_Piece]] = defaultdict(list)
        shapes: dict[str, tuple[tuple[int, ...], str]] = {}
        for path in paths:
            header, base = _header(files, path, where)
            whole = json.loads(header.pop("__metadata__", {}).get(SHAPES, "{}"))
            for key, entry in header.items():
                size, dtype = tuple(entry["shape"]), DTYPES[entry["dtype"]]
                array, _, first = key.rpartition("@") if whole else (key, "", "")
                start = tuple(int(number) for number in first.split(",")) if first else (0,) * len(size)
                pieces[array].append(_Piece(files, path, base + entry["data_offsets"][0], np.dtype(dtype), start, size))
                shapes[array] = tuple(whole.get(array, size)), dtype
        return ArrayFiles(where, {key: tuple(parts) for key, parts in pieces.items()}, shapes)

    def read(self, name: str, index: Index | None = None) -> np.ndarray:
        """A slice of an array, or the whole array. Raises: ValueError if the pieces do not cover it."""
        shape, _ = self.shapes[name]
        wanted = [axis.indices(size)[:2] for axis, size in zip(index or (slice(None),) * len(shape), shape, strict=True)]
        result: np.ndarray | None = None
        covered = 0
        for piece in self.pieces[name]:
            overlap = piece.overlap(wanted)
            if overlap is None:
                continue
            values = piece.read(overlap)
            if all(low == first and high == last for (low, high), (first, last) in zip(overlap, wanted, strict=True)):
                return values
            if result is None:
                result = np.empty([high - low for low, high in wanted], values.dtype)
            result[tuple(slice(low - first, high - first) for (low, high), (first, _) in zip(overlap, wanted, strict=True))] = (
                values
            )
            covered += values.size
        if result is None or covered != result.size:
            raise ValueError(f"{self.where}: the parts of array {name} do not cover {wanted} of its shape {shape}")
        return result

    def whole(self) -> dict[str, np.ndarray]:
        """All arrays, whole."""
        return {name: self.read(name) for name in self.shapes}


@dataclass(frozen=True)
class _Piece:
    files: Files
    path: str
    offset: int
    """Position of its first byte in the file."""
    dtype: np.dtype
    start: tuple[int, ...]
    size: tuple[int, ...]

    def overlap(self, wanted: Box) -> Box | None:
        """The part of a box that lies in this piece, in coordinates of the whole array; None if empty."""
        both = [
            (max(low, first), min(high, first + length))
            for (low, high), first, length in zip(wanted, self.start, self.size, strict=True)
        ]
        return None if any(low >= high for low, high in both) else both

    def read(self, overlap: Box) -> np.ndarray:
        inside = [(low - first, high - first) for (low, high), first in zip(overlap, self.start, strict=True)]
        values = np.empty(math.prod(high - low for low, high in inside), self.dtype)
        length, runs = runs_of(inside, self.size)
        filled, item = 0, self.dtype.itemsize
        for group in _grouped(runs, length, self.files.gap_bytes // item):
            first, end = self.offset + group[0] * item, self.offset + (group[-1] + length) * item
            block = np.frombuffer(self.files.get(self.path, first, end), self.dtype)
            for run in group:
                values[filled : filled + length] = block[run - group[0] :][:length]
                filled += length
        return values.reshape([high - low for low, high in inside])


def runs_of(inside: Box, size: Sequence[int]) -> tuple[int, Iterator[int]]:
    """A box of a row-major array as runs of flat items: their length, and the ascending starts.

    >>> length, firsts = runs_of([(1, 3), (2, 4)], (5, 7))
    >>> length, list(firsts)
    (2, [9, 16])
    """
    strides = [math.prod(size[axis + 1 :]) for axis in range(len(size))]
    cut = max((axis for axis, (low, high) in enumerate(inside) if high - low < size[axis]), default=0)
    outer = [[at * stride for at in range(low, high)] for (low, high), stride in zip(inside[:cut], strides[:cut], strict=True)]
    base = sum(low * stride for (low, _), stride in zip(inside[cut:], strides[cut:], strict=True))
    return math.prod(high - low for low, high in inside[cut:]), (base + sum(places) for places in itertools.product(*outer))


def _grouped(runs: Iterator[int], length: int, gap: int) -> Iterator[list[int]]:
    """Group the starts of runs of `length` items, which ascend: one read covers a group, with gaps of at most `gap` items."""
    group: list[int] = []
    for run in runs:
        if group and run - group[-1] - length > gap:
            yield group
            group = []
        group.append(run)
    yield group


def _header(files: Files, path: str, where: str) -> tuple[dict, int]:
    """The header of a safetensors file, and the position where its arrays begin."""
    data = files.get(path, 0, HEADER_BYTES)
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or 8 + size > files.sizes[path]:
        raise ValueError(
            f"{where}: {path} is not a safetensors file: it has {files.sizes[path]} bytes, its header claims {size}"
        )
    if len(data) < 8 + size:
        data += files.get(path, len(data), 8 + size)
    return json.loads(data[8 : 8 + size]), 8 + size
