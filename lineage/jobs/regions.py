"""The region guard: refuse jobs that would read much from another region's bucket, and say what that would cost.

`MARIN_REGION` says where the job runs and `MARIN_FOREIGN_READ_GIB` how much it may read from elsewhere. Prices are Google's for
data that leaves a region, from memory on 2026-11-21: an order of magnitude, not a bill.
"""

import logging
import os
from collections.abc import Iterable, Iterator

from lineage.artifact.store import Artifact, Store

log = logging.getLogger(__name__)

HERE = "MARIN_REGION"
BUDGET = "MARIN_FOREIGN_READ_GIB"
DEFAULT_BUDGET_GIB = 10.0
NOWHERE = "an unnamed place"
"""Region of a process without MARIN_REGION. It costs as much as the internet, so a forgotten setting does not disable the
guard."""
INTERNET_DOLLARS_PER_GIB = 0.12
SAME_CONTINENT_DOLLARS_PER_GIB = 0.02
OTHER_CONTINENT_DOLLARS_PER_GIB = 0.08
_CONTINENTS = {"northamerica": "us", "nam4": "us", "europe": "eu", "eur4": "eu", "eur5": "eu", "eur7": "eu", "eur8": "eu"}
_READ_THROUGH = frozenset({"lineage.mixture", "lineage.chosen_mixture"})
"""A reader of these stages' artifacts also reads their inputs: the caches of a mixture."""


class ForeignReadError(RuntimeError):
    """A job would read more from another region than its budget allows."""


def dollars_per_gib(bucket: str, here: str) -> float:
    """Return the price of reading a bucket's location from a region, or from `NOWHERE`; 0 within one region.

    A multi-region (`US`) differs from each region in it: reading from it is charged as within the continent.
    """
    if bucket.lower() == here.lower():
        return 0.0
    if here == NOWHERE:
        return INTERNET_DOLLARS_PER_GIB
    return SAME_CONTINENT_DOLLARS_PER_GIB if _continent(bucket) == _continent(here) else OTHER_CONTINENT_DOLLARS_PER_GIB


def guard_reads(store: Store, name: str, inputs: Iterable[Artifact]) -> None:
    """Refuse a job, or a stage in this process, that would read more from another region than its budget allows.

    Does nothing for a local root. Without `MARIN_REGION` every bucket counts as foreign. If the bucket's location cannot be
    read, it logs that and lets the job through. Raises: ForeignReadError.
    """
    if store.storage.is_local:
        return
    here = os.environ.get(HERE) or NOWHERE
    bucket = store.storage.files.location()
    if bucket is None:
        log.warning("%s: no region guard, the location of %s cannot be read", name, store.root)
        return
    price = dollars_per_gib(bucket, here)
    if not price:
        return
    gib = sum(entry.bytes for each in _read(inputs) for entry in each.manifest.files) / 2**30
    budget = _budget(os.environ.get(BUDGET, str(DEFAULT_BUDGET_GIB)))
    where = f"{here} ({HERE} is not set)" if here == NOWHERE else here
    notice = f"{name} in {where} would read {gib:.2f} GiB of {store.root} in {bucket}, about ${gib * price:.2f}"
    if gib > budget:
        raise ForeignReadError(
            f"{notice}; the budget is {budget:g} GiB. Run it in {bucket.lower()} and say so ({HERE}), copy the inputs to a "
            f"bucket here (`./marin storage mirror`), or set {BUDGET}"
        )
    log.warning("%s, within the budget of %g GiB", notice, budget)


def _read(inputs: Iterable[Artifact]) -> Iterator[Artifact]:
    """Yield each artifact that the job opens, once."""
    artifacts = {}
    for each in inputs:
        parents = each.store.parents(each) if each.spec.stage in _READ_THROUGH else []
        artifacts |= {artifact.spec.address: artifact for artifact in (each, *parents)}
    yield from artifacts.values()


def _budget(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{BUDGET} is {text!r}; it must be a number of GiB, such as {DEFAULT_BUDGET_GIB:g}") from None


def _continent(location: str) -> str:
    first = location.lower().split("-")[0]
    return _CONTINENTS.get(first, first)
