"""The probe of a store's root: write an object, read it back, delete it."""

import uuid

from lineage.artifact.store import Store
from operations.probes.outcomes import FOLDER


def write_and_read(store: Store) -> None:
    """Write a small object, read it back and delete it. Raises: RuntimeError if the bytes differ; errors of the storage."""
    name, data = f"{FOLDER}/written/{uuid.uuid4().hex}", uuid.uuid4().bytes
    store.storage.replace(name, data)
    try:
        read = store.storage.read_bytes(name)
        if read != data:
            raise RuntimeError(f"{store.storage.uri(name)} has {read!r} after {data!r} was written")
    finally:
        store.storage.delete(name)
