"""Arrays of a checkpoint in safetensors files: whole from one process, in parts from several, read in any slices by either.

One process writes `model.safetensors`, an array by its path in the tree. Of several, each writes the shards that it owns
(the first replica of each) into `model.00000-of-00002.safetensors`, as `path@first,first,...`; the whole shapes are in the
file's metadata. A reader asks for slices of whole arrays, so what one mesh wrote another can read, and of files in a bucket
only the bytes of those slices come (`Files`).
"""

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lineage.store import Artifact

DTYPES = {
    "F32": "float32", "F64": "float64", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool", "U8": "uint8", "I8": "int8",
    "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32", "U64": "uint64", "I64": "int64",
}  # fmt: skip
SHAPES = "shapes"
"""Key of a part's metadata: whole shapes by array, as JSON."""
GAP_BYTES = 1 << 20
"""Bytes that nobody asked for, between two runs that somebody did, which are read all the same: a request costs as much."""
HEADER_BYTES = 8 << 10
"""Of a file, read at first: its header, unless it names a hundred arrays."""
type Index = tuple[slice, ...]
type Box = list[tuple[int, int]]


@dataclass
class Files:
    """Some files, read by ranges of bytes, and how many bytes were."""

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
        """Of an artifact that is not fetched whole; files that lie here already are read here."""
        return Files({entry.path: entry.bytes for entry in artifact.manifest.files}, artifact.read_range)

    def get(self, name: str, start: int, stop: int) -> bytes:
        """Raises: ValueError where the file is shorter than it was written."""
        data = self.read(name, start, min(stop, self.sizes[name]))
        self.bytes_read += len(data)
        if len(data) != min(stop, self.sizes[name]) - start:
            raise ValueError(f"{name}: {len(data)} bytes came of [{start}, {stop}); the file is shorter than it was written")
        return data


def open_arrays(artifact: Artifact, name: str, source: Files | None = None) -> "ArrayFiles":
    """The arrays of a checkpoint under one name; fetched whole, unless a `source` is given.

    Raises: ValueError where it has none, naming why that may be.
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
        """Those in a local folder."""
        return ArrayFiles.of(Files.of_folder(folder), name, where)

    @staticmethod
    def of(files: Files, name: str, where: str) -> "ArrayFiles | None":
        """None where there is no such file. Raises: ValueError where a part is missing, naming it."""
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
            told = json.loads(header.pop("__metadata__", {}).get(SHAPES, "{}"))
            for key, entry in header.items():
                size, dtype = tuple(entry["shape"]), DTYPES[entry["dtype"]]
                array, _, first = key.rpartition("@") if told else (key, "", "")
                start = tuple(int(number) for number in first.split(",")) if first else (0,) * len(size)
                pieces[array].append(_Piece(files, path, base + entry["data_offsets"][0], np.dtype(dtype), start, size))
                shapes[array] = tuple(told.get(array, size)), dtype
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
    files: Files
    path: str
    offset: int
    """Of its first byte in the file."""
    dtype: np.dtype
    start: tuple[int, ...]
    size: tuple[int, ...]

    def overlap(self, wanted: Box) -> Box | None:
        """What of a range lies in this piece, in the whole array's coordinates."""
        both = [
            (max(low, first), min(high, first + length))
            for (low, high), first, length in zip(wanted, self.start, self.size, strict=True)
        ]
        return None if any(low >= high for low, high in both) else both

    def read(self, overlap: Box) -> np.ndarray:
        inside = [(low - first, high - first) for (low, high), first in zip(overlap, self.start, strict=True)]
        found = np.empty(math.prod(high - low for low, high in inside), self.dtype)
        length, runs = runs_of(inside, self.size)
        filled, item = 0, self.dtype.itemsize
        for group in _grouped(runs, length, self.files.gap_bytes // item):
            first, end = self.offset + group[0] * item, self.offset + (group[-1] + length) * item
            values = np.frombuffer(self.files.get(self.path, first, end), self.dtype)
            for run in group:
                found[filled : filled + length] = values[run - group[0] :][:length]
                filled += length
        return found.reshape([high - low for low, high in inside])


def runs_of(inside: Box, size: Sequence[int]) -> tuple[int, Iterator[int]]:
    """A box of a row-major array as runs of its flat items: their length, and where each begins, ascending.

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
    """Runs that one read takes, with what lies between them."""
    group: list[int] = []
    for run in runs:
        if group and run - group[-1] - length > gap:
            yield group
            group = []
        group.append(run)
    yield group


def _header(files: Files, path: str, where: str) -> tuple[dict, int]:
    """What a safetensors file says of itself, and where its arrays begin."""
    data = files.get(path, 0, HEADER_BYTES)
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or 8 + size > files.sizes[path]:
        raise ValueError(f"{where}: {path} is no safetensors file: {files.sizes[path]} bytes, and a header of {size}")
    if len(data) < 8 + size:
        data += files.get(path, len(data), 8 + size)
    return json.loads(data[8 : 8 + size]), 8 + size
