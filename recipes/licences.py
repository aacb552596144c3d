"""Which licences count as permissive, and which sources a permissive-only choice leaves out.

Permissive means: anyone may use, change and redistribute the text itself, at most with attribution. Not on the list are
share-alike (CC-BY-SA), a licence of the collection alone (ODC-By covers the database, not its pages), "various", and every
unverified licence: the switch is for people who must be sure.
"""

from datakit.sources.source import Source, Unverified
from recipes.records.narrowing import Narrowing
from recipes.sources import source_config

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


def why_not_permissive(source: Source) -> str | None:
    """Why a permissive-only run leaves a source out; None if it does not."""
    if isinstance(source.licence, Unverified):
        claim = f", claimed to be {source.licence.claim}" if source.licence.claim else ""
        return f"its licence is unverified{claim} ({source.licence.why})"
    return None if source.licence in PERMISSIVE else f"its licence {source.licence!r} is not on the permissive list"


def permissive() -> Narrowing:
    """The choice of permissively licensed sources, for the method `narrowed` of a corpus, a mix or a run."""
    return Narrowing("permissive", lambda name: why_not_permissive(source_config(name)))
