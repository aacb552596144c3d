"""Scratch files of the parts of a scope: a folder for each kind of array, with a file for each part."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self

import numpy as np

from datakit.text.arrays import load, save
from lineage.shards.reads import Folder, files_of
from lineage.shards.run import SCRATCH_FOLDER

STREAMED = ("hashes", "shingles")
"""uint64 arrays that are written piece by piece, without a header."""


class Indexed(Protocol):
    """A part of a scope."""

    @property
    def index(self) -> int: ...


@dataclass(frozen=True)
class PartFiles:
    """The files of a scope that a task reads: all of them, or what `reading` names."""

    folder: Folder

    def load(self, name: str, part: Indexed) -> np.ndarray:
        """Map an array of one part."""
        return load(self.folder / part_file(name, part))

    def reading(self, names: Sequence[str], parts: Iterable[Indexed] | None = None, also: Iterable[str] = ()) -> Self:
        """Return the scope for a task that reads these arrays of some parts, or of all, and these other files or arrays."""
        files = names if parts is None else [part_file(name, part) for part in parts for name in names]
        return replace(self, folder=files_of(self.folder, (*files, *also)))


def part_file(name: str, part: Indexed) -> str:
    """Return the path of an array of a part, below the scratch folder."""
    return f"{name}/{part.index:06d}.{'u64' if name in STREAMED else 'npy'}"


def save_part(folder: Path, part: Indexed, **arrays: np.ndarray) -> None:
    """Write arrays of a part on scratch, where `PartFiles.load` finds them."""
    for name, values in arrays.items():
        save(folder / SCRATCH_FOLDER / part_file(name, part), values)


def new_stream(folder: Path, name: str, part: Indexed) -> Path:
    """Return the path where a shard writes an array of `STREAMED`; its folder exists."""
    path = folder / SCRATCH_FOLDER / part_file(name, part)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
