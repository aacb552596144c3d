"""Pins: a person keeps an artifact and all that it was made from, until a day."""

import datetime
import json
from dataclasses import asdict, dataclass

from lineage.artifact.store import Store
from lineage.config import from_jsonable
from lineage.storage.digests import identity_digest
from lineage.strangers import json_object, naming

FOLDER = ".operations/pins"
_FORMAT = "pin/1"


@dataclass(frozen=True)
class Pin:
    """`address` is kept until the end of the day `expires` (YYYY-MM-DD, UTC)."""

    address: str
    owner: str
    why: str
    expires: str

    def __post_init__(self) -> None:
        for name in ("address", "owner", "why"):
            if not getattr(self, name).strip():
                raise ValueError(f"pin {name} is {getattr(self, name)!r}; it must say something")
        try:
            datetime.date.fromisoformat(self.expires)
        except ValueError as error:
            raise ValueError(f"pin expires is {self.expires!r}; give its last day as YYYY-MM-DD") from error

    def holds(self, today: datetime.date) -> bool:
        return today <= datetime.date.fromisoformat(self.expires)


def add_pin(store: Store, pin: Pin) -> str:
    """Record a pin and return its id. Raises: ValueError if nothing is at its address."""
    if store.open(pin.address) is None:
        raise ValueError(f"a pin keeps {pin.address}, and there is no artifact in {store.root}")
    name = identity_digest(asdict(pin))[:16]
    store.storage.create(f"{FOLDER}/{name}.json", json.dumps({"format": _FORMAT, **asdict(pin)}, indent=1))
    return name


def remove_pin(store: Store, name: str) -> None:
    """Delete a pin. Raises: ValueError for a pin that there is not, with those that there are."""
    there = [each.removesuffix(".json") for each in store.storage.records(FOLDER)]
    if name not in there:
        raise ValueError(f"there is no pin {name!r} in {store.root}; there are: {', '.join(there) or 'none'}")
    store.storage.delete(f"{FOLDER}/{name}.json")


def read_pins(store: Store) -> dict[str, Pin]:
    """Return all pins by id. Raises: ValueError naming a pin that cannot be read. Nothing is purged until it is repaired."""
    pins = {}
    for name in store.storage.records(FOLDER):
        where = f"{FOLDER}/{name}"
        text = store.storage.read_text(where)
        if text is None:
            continue
        with naming(store.storage.uri(where)):
            record = json_object(text, where)
            if (form := record.pop("format")) != _FORMAT:
                raise ValueError(f"{where} has format {form!r}; this checkout reads {_FORMAT}")
            pins[name.removesuffix(".json")] = from_jsonable(Pin, record, where)
    return pins
