"""The table of formats: how each older format of a manifest becomes the next."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from lineage.artifact.made_by import MadeBy

type Record = dict[str, Any]


@dataclass(frozen=True)
class ManifestMigration:
    """One step of the manifest's format: from schema `since` to `since + 1`."""

    since: int
    why: str
    change: Callable[[Record], Record]
    """From the record without its seal to the next schema's, but for the numbers `schema` and `version`."""


@dataclass(frozen=True)
class Migrations:
    """Everything that an upgrade knows how to change."""

    manifests: tuple[ManifestMigration, ...]

    def steps(self, schema: int) -> tuple[ManifestMigration, ...]:
        """Return the steps from a schema to the newest, in order."""
        return tuple(sorted((step for step in self.manifests if step.since >= schema), key=lambda step: step.since))

    @property
    def newest(self) -> int:
        """The schema that the last step leads to."""
        return max(step.since for step in self.manifests) + 1


def _with_maker(record: Record) -> Record:
    return {**record, "made_by": asdict(MadeBy())}


MIGRATIONS = Migrations((ManifestMigration(1, "manifests say who made the artifact and must have a seal", _with_maker),))
