"""Tiers of a match between a document and a benchmark item: the one list that scans, audits and pages use."""

from collections.abc import Iterable
from typing import Literal

type Tier = Literal["verbatim", "near", "template", "partial", "fragment"]

TIERS: tuple[Tier, ...] = ("verbatim", "near", "template", "partial", "fragment")
"""Strongest first."""
STANDING_TIERS: tuple[Tier, ...] = TIERS[:3]
"""A match of one of these tiers makes its document contaminated and its item `matched`."""
PARTIAL: Tier = "partial"
"""About half of a question. It is listed and counted, and its document stays; its item is `unknown`, never `clean`."""
DOUBTED_TIERS: tuple[Tier, ...] = (*STANDING_TIERS, PARTIAL)
"""An item with a match of one of these tiers is not `clean`."""
FRAGMENT: Tier = "fragment"
"""A run of words, too few to give an item away. It is only reported."""

ITEM_STATUSES = {
    "clean": "no document holds it, not half of it and not an edited copy",
    "whole_only": "no document holds all of it; half of it or an edited copy could not have been found",
    "unknown": "it is too short to be found, or documents hold a part of it, or a template's words",
    "matched": "a document holds it",
}
"""What a scan says of an item. Of several scans the later one in this list counts."""
CLEAN, WHOLE_ONLY, UNKNOWN, MATCHED = ITEM_STATUSES


def item_status(statuses: Iterable[str]) -> str:
    """Return the status of an item that has been looked for in several sources.

    >>> item_status(["clean", "unknown", "whole_only"])
    'unknown'
    """
    return max(statuses, key=list(ITEM_STATUSES).index)


VERDICTS = ("contaminated", "partial_only", "fragments_only", "clean")
"""What an audit says, the worst first."""


def verdict(tiers: Iterable[str]) -> str:
    """Return the verdict on matches of these tiers: by the strongest of them.

    >>> [verdict(tiers) for tiers in (["partial", "near"], ["fragment", "partial"], ["fragment"], [])]
    ['contaminated', 'partial_only', 'fragments_only', 'clean']
    """
    present = frozenset(tiers)
    if present & frozenset(STANDING_TIERS):
        return "contaminated"
    if PARTIAL in present:
        return "partial_only"
    return "fragments_only" if present else "clean"
