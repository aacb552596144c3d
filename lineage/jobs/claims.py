"""Claims and purges: how a build and a purge that run at once see each other.

A build claims its inputs first (its summary, `lineage.jobs.summary`) and then looks for marks of purges. A purge marks what it
takes first and then looks for claims. One of the two always sees the other: the build stops, or the purge leaves the input. So
no artifact is committed whose input is taken away meanwhile.
"""

import json
from collections.abc import Sequence

from lineage.artifact.spec import InputRef
from lineage.artifact.store import Store

MARKS = ".operations/purging"
"""Below the store's root: a file for each running purge, with the addresses that it takes."""


class BeingPurgedError(RuntimeError):
    """An input is taken away by a purge."""


def check_inputs_stay(store: Store, name: str, inputs: Sequence[InputRef]) -> None:
    """Check, after the claim, that no purge takes an input and that every input is there.

    Raises: BeingPurgedError naming the input.
    """
    if not inputs:
        return
    taken = marked(store)
    for ref in inputs:
        if ref.address in taken:
            raise BeingPurgedError(
                f"{name}: its input {ref.address} is being purged (plan {taken[ref.address]}); try again when it has ended"
            )
        if store.open(ref.address) is None:
            raise BeingPurgedError(
                f"{name}: its input {ref.address} was purged just now; `./marin purge restore` has it for days"
            )


def marked(store: Store) -> dict[str, str]:
    """Return address -> plan of everything that running purges take. Raises: ValueError naming a mark that is none."""
    claimed: dict[str, str] = {}
    for name in store.storage.records(MARKS):  # a mark that is being written: its purge reads the claims after it
        where = f"{MARKS}/{name}"
        text = store.storage.read_text(where)
        if text is not None:  # else that purge has ended
            claimed |= dict.fromkeys(_addresses(text, store.storage.uri(where)), name.removesuffix(".json"))
    return claimed


def _addresses(text: str, where: str) -> list[str]:
    try:
        addresses = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where} is no mark of a purge: {error}; delete it if no purge runs") from error
    if not isinstance(addresses, list) or not all(isinstance(each, str) for each in addresses):
        raise ValueError(f"{where} is no mark of a purge, which is a list of addresses; delete it if no purge runs")
    return addresses
