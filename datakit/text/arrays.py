"""Arrays on storage, one file each. They are opened as memory maps, so workers share one copy and read only what they
use.
"""

from pathlib import Path

import numpy as np

SMALL_BYTES = 1 << 12
"""Arrays below this size are read, not mapped. Empty arrays cannot be mapped."""


def save(path: Path, values: np.ndarray) -> None:
    """Write one array."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values)


def load(path: Path) -> np.ndarray:
    """Open one array; it is read-only if it is mapped."""
    # A view of np.memmap runs Python code each time one is made; a plain array over the same bytes does not.
    return np.asarray(np.load(path, mmap_mode="r" if path.stat().st_size > SMALL_BYTES else None))


def save_all(folder: Path, **arrays: np.ndarray) -> None:
    """Write arrays as `<folder>/<name>.npy`."""
    for name, values in arrays.items():
        save(folder / f"{name}.npy", values)


def load_all(folder: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a folder by name; subfolders belong to someone else."""
    return {path.stem: load(path) for path in sorted(folder.glob("*.npy"))}
