"""Versions of installed packages, by the name of the distribution (`marin-haliax`), as manifests record them."""

import importlib.metadata
import sys
from collections.abc import Iterable, Mapping
from functools import cache

PYTHON = "python"
RECORDED = ("polars", "pyarrow", "numpy", "tokenizers", "jax", "equinox", "optax", "marin-haliax", "dagster")
"""Recorded of every artifact, whatever its stage imports."""

OURS, COMMIT = "marin-lab", "MARIN_GIT_SHA"
"""Our own code among the versions: the commit, where the environment tells it, as the image does (deploy/Dockerfile)."""

_DISTRIBUTIONS = {"haliax": "marin-haliax", "google": "google-cloud-storage", "yaml": "pyyaml"}
"""Import name -> distribution, where they differ. importlib.metadata.packages_distributions() would know, and takes 1.1 s; a
test holds that every import of every stage is found."""


def distribution_of(import_name: str) -> str:
    """The distribution that brings a top-level import name."""
    return _DISTRIBUTIONS.get(import_name, import_name)


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of those of the distributions that are installed, sorted by name."""
    versions = {PYTHON: ".".join(map(str, sys.version_info[:3]))}
    found = {name: _version(name) for name in sorted(names)}
    return versions | {name: version for name, version in found.items() if version is not None}


def commit_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The commit that a process runs, as one more version; nothing where nobody says it. It tells, and decides nothing."""
    commit = environment.get(COMMIT, "")
    return {OURS: commit} if commit else {}


@cache
def _version(name: str) -> str | None:
    """Cached: a process does not change its packages, and every look parses a file (5 ms)."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # a trainer pod has no dagster, a data pod no jax
        return None
