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
