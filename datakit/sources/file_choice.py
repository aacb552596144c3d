"""Choose a source's files by glob, and refuse held-out splits that were chosen by accident."""

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import PurePosixPath

log = logging.getLogger(__name__)

NAMES_SHOWN = 5
HELD_OUT = frozenset(
    {
        *("test", "tests", "testset", "val", "valid", "validation", "valset", "dev", "devset", "eval", "evals", "evaluation"),
        *("heldout", "holdout"),
    }
)
"""Path words that mean "not for training". Marin trained on Dolmino's `math/gsm8k/.../test.json` (32B retrospective)."""


def choose(names: Iterable[str], globs: tuple[str, ...], exclude: tuple[str, ...], *, trainable: bool, what: str) -> list[str]:
    """Return the names that match a glob and no exclusion, sorted; `*` crosses folders. The log counts exclusions.

    `trainable` says that the files become text for training and that "test" in a path means held out.

    Raises: ValueError for a glob that matches nothing, for a name that would leave the artifact's folder or that is not
    UTF-8, and, if `trainable`, for a test or validation file that no glob names exactly.
    """
    there = sorted(set(names))
    literal = {
        glob: glob.replace("[", "[[]") for glob in {*globs, *exclude} & set(there)
    }  # An exact name, although it has brackets.
    wanted_globs, unwanted = ([literal.get(glob, glob) for glob in some] for some in (globs, exclude))
    for glob, pattern in zip(globs, wanted_globs, strict=True):
        if not any(fnmatchcase(name, pattern) for name in there):
            raise ValueError(f"{what}: no file matches the glob {glob!r}; it has {_first(there) or 'none'}")
    matched = [name for name in there if _any(name, wanted_globs)]
    excluded = [name for name in matched if _any(name, unwanted)]
    chosen = sorted({*matched} - {*excluded})
    if excluded:
        log.warning("%s: %d of %d files are excluded: %s", what, len(excluded), len(matched), _first(excluded))
    if not chosen:
        raise ValueError(f"{what}: its exclusions {exclude!r} leave none of its files")
    for name in chosen:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{what}: file {name!r} would leave the artifact's folder")
        _check_utf8(name, what)
    if trainable:
        refuse_held_out(chosen, globs, what)
    return chosen


def _check_utf8(name: str, what: str) -> None:
    """Refuse a name that no manifest can hold. Raises: ValueError with the bytes of the name."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what}: file {os.fsencode(name)!r} has a name that is not UTF-8; rename it, or exclude it with '?' for each "
            "such character"
        ) from error


def refuse_held_out(names: Iterable[str], globs: tuple[str, ...], what: str) -> None:
    """Refuse test and validation files for training, unless a glob names them exactly. Raises: ValueError naming them."""
    refused = [name for name in names if is_held_out(name) and name not in globs]
    if refused:
        raise ValueError(
            f"{what}: {len(refused)} of its files look like a test or validation split ({_first(refused)}), and the "
            "source is trained on; exclude them, or give each as a glob of its own without '*'"
        )


def check_once(names: Iterable[str], what: str) -> None:
    """Refuse members that an archive holds twice, because the last would silently replace the first. Raises: ValueError
    naming them.
    """
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise ValueError(
            f"{what}: {len(repeated)} of its members are in it more than once ({_first(repeated)}); nobody can say "
            "which is meant, so leave them out of the source's globs or mend the archive"
        )


def is_held_out(name: str) -> bool:
    """Whether a path word means held-out: `gsm8k/test-00000.parquet` and `qaTestSplit` do, `latest/contest.jsonl` does
    not.
    """
    words = [word.lower() for word in re.split(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z0-9])", name)]
    return not HELD_OUT.isdisjoint(words) or any(pair in (("held", "out"), ("hold", "out")) for pair in pairwise(words))


def _first(names: list[str]) -> str:
    """Return a few names for a message. What UTF-8 cannot encode is escaped, because a log could not be written else."""
    shown = ", ".join(names[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")
    return shown.encode(errors="backslashreplace").decode()


def _any(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
