"""Versions of installed packages, by the name of the distribution (`marin-haliax`), as manifests record them."""

import importlib.metadata
import sys
from collections.abc import Iterable, Mapping
from functools import cache

PYTHON = "python"
RECORDED = ("polars", "pyarrow", "numpy", "tokenizers", "jax", "equinox", "optax", "marin-haliax", "dagster")
"""Distributions whose versions every manifest records, whatever the stage imports."""

OURS, COMMIT = "marin-lab", "MARIN_GIT_SHA"
"""The name of our own code among the versions, and the environment variable with its commit (deploy/Dockerfile sets it)."""

_DISTRIBUTIONS = {"haliax": "marin-haliax", "google": "google-cloud-storage", "yaml": "pyyaml"}
"""Import name -> distribution where they differ. importlib.metadata.packages_distributions() knows them too but takes 1.1 s. A
test checks that every import of every stage is found."""


def distribution_of(import_name: str) -> str:
    """Return the distribution that provides a top-level import name."""
    return _DISTRIBUTIONS.get(import_name, import_name)


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python and of the given distributions, without those that are not installed, sorted by name."""
    versions = {PYTHON: ".".join(map(str, sys.version_info[:3]))}
    installed = {name: _version(name) for name in sorted(names)}
    return versions | {name: version for name, version in installed.items() if version is not None}


def commit_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the commit from the environment as one more version, or nothing. It is recorded only; nothing depends on it."""
    commit = environment.get(COMMIT, "")
    return {OURS: commit} if commit else {}


@cache
def _version(name: str) -> str | None:
    """Cached: a process does not change its packages, and each lookup parses a file (5 ms)."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # a trainer pod has no dagster, a data pod no jax
        return None
