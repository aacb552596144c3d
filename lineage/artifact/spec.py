"""The identity of an artifact before its bytes exist: key, partition, stage, config and inputs.

`ArtifactSpec.version` is input-addressed: equal specs name the same folder, so the result of a stage that ran before is found
and reused. Paths, roots, worker counts, hardware and times are never part of it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lineage.config import to_jsonable
from lineage.storage.digests import identity_digest

UNPARTITIONED = "_"
_KEY_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PARTITION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._|@=-]*")


@dataclass(frozen=True)
class InputRef:
    """One resolved input: its key and partition, its data version, and the address of its manifest."""

    name: str
    key: tuple[str, ...]
    partition: str | None
    data_version: str
    address: str
    """Folder relative to the store's root. Walks use it; it is not part of any identity."""

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> "InputRef":
        """Rebuild what `dataclasses.asdict` made and JSON kept."""
        return InputRef(
            name=record["name"],
            key=tuple(record["key"]),
            partition=record["partition"],
            data_version=record["data_version"],
            address=record["address"],
        )

    def identity(self) -> dict[str, Any]:
        """Return what enters the identity of an artifact made from this input: everything but the address."""
        return {
            "name": self.name,
            "key": list(self.key),
            "partition": self.partition,
            "data_version": self.data_version,
        }


@dataclass(frozen=True)
class ArtifactSpec:
    """The full identity of one artifact. `config` is JSON and holds identity only."""

    key: tuple[str, ...]
    partition: str | None
    stage: str
    stage_version: str
    config: Mapping[str, Any]
    inputs: tuple[InputRef, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.key or not all(_KEY_PART.fullmatch(part) for part in self.key):
            raise ValueError(f"artifact key {self.key!r}: each part must match {_KEY_PART.pattern}")
        if self.partition is not None and not _PARTITION.fullmatch(self.partition):
            raise ValueError(f"partition {self.partition!r} of {self.name}: it must match {_PARTITION.pattern}")

    @property
    def name(self) -> str:
        """Key and partition in one readable name: `datakit/normalized[kjv]`."""
        return "/".join(self.key) + (f"[{self.partition}]" if self.partition else "")

    @cached_property
    def version(self) -> str:
        """Input-addressed identity, 32 hex characters."""
        return identity_digest(
            {
                "key": list(self.key),
                "partition": self.partition,
                "stage": self.stage,
                "stage_version": self.stage_version,
                "config": to_jsonable(self.config),
                "inputs": [ref.identity() for ref in self.inputs],
            }
        )

    @cached_property
    def process(self) -> str:
        """Equal for artifacts that differ only in `step` of their config and in the partition named after it: one job makes
        them."""
        if not self.config or "step" not in self.config:
            return self.version
        rest = {key: value for key, value in self.config.items() if key != "step"}
        inputs = [ref.identity() for ref in self.inputs]
        return identity_digest([list(self.key), self.stage, self.stage_version, rest, inputs])

    @property
    def address(self) -> str:
        """Folder of the artifact relative to the store's root."""
        return f"{partition_address(self.key, self.partition)}/{self.version}"


def partition_address(key: tuple[str, ...], partition: str | None) -> str:
    """Return the folder that holds every version of one partition, relative to the store's root."""
    return "/".join((*key, partition or UNPARTITIONED))
