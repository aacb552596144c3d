"""Which licences count as permissive, and what a permissive-only choice of sources leaves out.

Permissive: anyone may use, change and redistribute the text itself, at most with attribution. So share-alike (CC-BY-SA) is not
on the list, nor is a licence of the collection alone (ODC-By covers a database, its web pages stay their authors'), nor
"various", nor anything unverified: the switch is for people who must be sure.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from datakit.sources.source import Source, Unverified

log = logging.getLogger(__name__)

PERMISSIVE = frozenset(
    {
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC-BY-4.0",
        "CC0-1.0",
        "MIT",
        "PSF-2.0",
        "public domain (US government works)",
    }
)


@dataclass(frozen=True)
class Choice:
    """Sources that a line goes on with, and why the others stay behind (name -> reason)."""

    kept: tuple[str, ...]
    left_out: Mapping[str, str]


def why_not_permissive(source: Source) -> str | None:
    """The reason that a permissive-only line leaves a source out, or None."""
    if isinstance(source.licence, Unverified):
        claim = f", said to be {source.licence.claim}" if source.licence.claim else ""
        return f"its licence is unverified{claim} ({source.licence.why})"
    return None if source.licence in PERMISSIVE else f"its licence {source.licence!r} is not on the permissive list"


def permissive_only(names: tuple[str, ...], sources: Mapping[str, Source]) -> Choice:
    """Split sources by licence, in their order, and say so. Raises ValueError when none is left."""
    reasons = {name: why_not_permissive(sources[name]) for name in names}
    left_out = {name: reason for name, reason in reasons.items() if reason is not None}
    kept = tuple(name for name in names if name not in left_out)
    for name, reason in left_out.items():
        log.info("permissive licences only: source %s is left out, %s", name, reason)
    if not kept:
        raise ValueError(f"permissive licences only: none of {', '.join(names)} is left; {left_out}")
    return Choice(kept, left_out)
