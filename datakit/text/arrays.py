"""Arrays on storage: a file each, opened as memory maps, so that workers share one copy and read what they touch."""

from pathlib import Path

import numpy as np

SMALL_BYTES = 1 << 12
"""Not worth a map, or empty, which cannot be mapped."""


def save(path: Path, values: np.ndarray) -> None:
    """Write one array."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values)


def load(path: Path) -> np.ndarray:
    """Open one array, read-only where it is mapped."""
    # Views of np.memmap run Python code whenever they are made; a plain array over the same bytes does not.
    return np.asarray(np.load(path, mmap_mode="r" if path.stat().st_size > SMALL_BYTES else None))


def save_all(folder: Path, **arrays: np.ndarray) -> None:
    """Write arrays as `<folder>/<name>.npy`."""
    for name, values in arrays.items():
        save(folder / f"{name}.npy", values)


def load_all(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of a folder by name; folders in it are another's."""
    return {path.stem: load(path) for path in sorted(folder.glob("*.npy"))}
