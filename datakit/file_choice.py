"""Which files of a place a source means: by glob, none of them a held-out split by accident."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

HELD_OUT = frozenset({"test", "tests", "val", "valid", "validation", "dev", "eval", "heldout", "holdout"})
"""Words of a path that say "not for training". Marin trained on Dolmino's `math/gsm8k/.../test.json` (32B retrospective)."""


def choose(names: Iterable[str], globs: tuple[str, ...], exclude: tuple[str, ...], *, trainable: bool, what: str) -> list[str]:
    """Names that match a glob and no exclusion, sorted; `*` crosses folders.

    Raises: ValueError for a glob that names none, for a name that would leave the artifact's folder, and, when the source is
    trained on, for a test or validation file that no glob names exactly.
    """
    there = sorted(set(names))
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in there):
            raise ValueError(f"{what}: no file matches the glob {glob!r}; it has {', '.join(there[:5]) or 'none'}, ...")
    chosen = [name for name in there if _any(name, globs) and not _any(name, exclude)]
    if not chosen:
        raise ValueError(f"{what}: its exclusions {exclude!r} leave none of its files")
    for name in chosen:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{what}: file {name!r} would leave the artifact's folder")
    refused = [name for name in chosen if trainable and is_held_out(name) and name not in globs]
    if refused:
        raise ValueError(
            f"{what}: {len(refused)} of its files look like a test or validation split ({', '.join(refused[:5])}), and the "
            "source is trained on; exclude them, or give each as a glob of its own without '*'"
        )
    return chosen


def is_held_out(name: str) -> bool:
    """Whether a word of the path says so: `gsm8k/test-00000.parquet` does, `latest/contest.jsonl` does not."""
    words = re.split(r"[^a-z0-9]+|(?<=[a-z])(?=[0-9])", name.lower())
    return not HELD_OUT.isdisjoint(words)


def _any(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
