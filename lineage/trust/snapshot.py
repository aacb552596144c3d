"""What a root held when the launch gate asked: listings of partitions, and texts of small files in them.

A request to a bucket takes some 50 ms, so the gate needs few: partitions of one key are listed together, and a text that was
read once is kept in the scratch folder under the stamp that the listing showed. A bucket gives every write of a name another
generation, which is part of the stamp, so a kept text is that of the file until the listing shows another stamp.
"""

import json
import logging
import uuid
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path

from lineage.artifact.spec import InputRef, partition_address
from lineage.artifact.store import Store
from lineage.names import check_relative
from lineage.storage.digests import text_digest
from lineage.storage.files import Listed
from lineage.storage.root import READERS, Storage

log = logging.getLogger(__name__)

PAGE = 1_000
"""Names in one page of a bucket's listing; a page is one request."""
FOLDER = "gate"
"""Below a store's scratch folder: kept texts of a remote root."""

type Listing = Mapping[str, Listed]
"""Every file below a folder, by address."""


@dataclass(frozen=True)
class Snapshot:
    """The partitions that were listed so far. On a bucket no request asks for a file that the listing does not show."""

    storage: Storage
    memory: Path | None
    """Where texts of a bucket are kept; None where reading is as cheap, or where stamps are no generations."""
    listings: dict[str, Listing] = field(default_factory=dict)
    """By the address of the partition."""

    def list_partitions(self, refs: Iterable[InputRef], pool: Executor) -> None:
        """List the partitions of some refs that are not listed yet."""
        self._list({partition_address(ref.key, ref.partition): "/".join(ref.key) for ref in refs}, pool)

    def _list(self, wanted: Mapping[str, str], pool: Executor) -> None:
        """List partitions (address -> key) that are not listed yet."""
        new = {place: key for place, key in wanted.items() if place not in self.listings}
        by_key = groupby(sorted(new, key=lambda place: (new[place], place)), key=new.__getitem__)
        groups = [(key, list(places)) for key, places in by_key]
        whole = list(pool.map(self._list_key, groups))
        single = [
            place for whole_listing, (_, places) in zip(whole, groups, strict=True) if whole_listing is None for place in places
        ]
        for listing in whole:
            self.listings.update(listing or {})
        self.listings.update(zip(single, pool.map(partial(_listing, self.storage), single), strict=True))

    def _list_key(self, group: tuple[str, Collection[str]]) -> Mapping[str, Listing] | None:
        """Return listings of several partitions of one key, or None if one listing of the whole key takes longer than theirs.

        `READERS` partitions are listed in the time of one page.
        """
        key, places = group
        if self.storage.is_local or len(places) < 2:
            return None
        listing = self.storage.files.listing_up_to(key, PAGE * -(-len(places) // READERS))
        if listing is None:
            return None
        listings: dict[str, dict[str, Listed]] = {place: {} for place in places}
        for address, facts in listing.items():
            place = f"{key}/{address[len(key) + 1 :].partition('/')[0]}"
            if place in listings:
                listings[place][address] = facts
        return listings

    def read_bytes(self, address: str, place: str) -> bytes | None:
        """Return the bytes of a small file of a listed partition, or None when there is none."""
        facts = self.listings[place].get(address)
        if self.memory is None:
            return self.storage.read_bytes(address)
        if facts is None:
            return None
        copy = self.memory / text_digest(f"{self.storage.uri(address)} {facts.stamp}")
        if (data := _kept(copy, facts.size)) is None:
            data = self.storage.read_bytes(address)
            if data is not None and len(data) == facts.size:
                _keep(copy, data)
        return data

    def list_remembered(self, refs: Iterable[InputRef], pool: Executor) -> None:
        """List at once the partitions that the ancestors of some refs had at the last gate, in place of level by level.

        What was remembered decides only which listings come early: partitions that it lacks are listed when they are met.
        """
        if self.memory is not None:
            self._list(_remembered(self._places_of(refs)), pool)

    def remember(self, refs: Iterable[InputRef], ancestors: Iterable[InputRef]) -> None:
        """Remember the partitions of the ancestors of some refs for the next gate."""
        if self.memory is not None:
            places = {partition_address(ref.key, ref.partition): "/".join(ref.key) for ref in ancestors}
            text = json.dumps(places, sort_keys=True).encode()
            where = self._places_of(refs)
            if _remembered(where) != places:
                _keep(where, text)

    def _places_of(self, refs: Iterable[InputRef]) -> Path:
        assert self.memory is not None
        addresses = " ".join(sorted(ref.address for ref in refs))
        return self.memory / text_digest(f"ancestors of {self.storage.root} {addresses}")

    def of(self, place: str) -> "Reader":
        return Reader(self, place)


@dataclass(frozen=True)
class Reader:
    """Reads of files of one listed partition."""

    snapshot: Snapshot
    place: str

    @property
    def listed(self) -> Listing:
        return self.snapshot.listings[self.place]

    def read_bytes(self, address: str) -> bytes | None:
        """Return the bytes of a file, or None when there is none."""
        return self.snapshot.read_bytes(address, self.place)


def snapshot_of(store: Store) -> Snapshot:
    """Return a snapshot of a store in which nothing is listed yet."""
    return Snapshot(store.storage, store.scratch / FOLDER if store.root.startswith("gs://") else None)


def _listing(storage: Storage, place: str) -> Listing:
    return {f"{place}/{name}": facts for name, facts in storage.listed(place).items()}


def _kept(path: Path, size: int) -> bytes | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return data if len(data) == size else None


def _remembered(path: Path) -> dict[str, str]:
    """Return partitions (address -> key) that an earlier gate remembered; none where the file says anything else."""
    try:
        places = json.loads(path.read_bytes())
        for place, key in places.items():
            if check_relative(place, "a partition").rpartition("/")[0] != key:
                return {}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return places


def _keep(path: Path, data: bytes) -> None:
    """Keep a text; without permission the next gate reads it again, and a warning says so."""
    scratch = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(data)
        scratch.replace(path)
    except OSError as error:
        log.warning("cannot keep in %s what the gate read (%s); the next gate reads it again", path.parent, error)
