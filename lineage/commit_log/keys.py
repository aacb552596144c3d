"""Keys of the commit log: 64-bit digests of what an artifact is, was made from, and was made by.

A key may collide, and anyone who can write to the bucket can forge a row. Rows are therefore candidates that the manifest
confirms.
"""

from collections.abc import Iterator

import xxhash

from lineage.artifact.manifest import Manifest
from lineage.artifact.spec import InputRef

type Bytes = tuple[str, str]
"""Name (`datakit/raw[kjv]`) and data version: every artifact of these is equal."""


CHANGED = xxhash.xxh3_64_intdigest("changed")
"""Key of every address whose manifest was deleted or replaced: what is remembered of it has to be read again."""


def data_key(data: Bytes) -> int:
    """Return the key of everything that has these bytes, and of everything that was made from them."""
    return xxhash.xxh3_64_intdigest("\n".join(("data", *data)))


def stage_key(stage: str, version: str | None = None) -> int:
    """Return the key of everything that a version of a stage made, or any version."""
    return xxhash.xxh3_64_intdigest("\n".join(("stage", stage) if version is None else ("stage", stage, version)))


def input_name(ref: InputRef) -> str:
    """Return the name of an input, as `ArtifactSpec.name` writes it."""
    return "/".join(ref.key) + (f"[{ref.partition}]" if ref.partition else "")


def own_bytes(manifest: Manifest) -> Bytes:
    """Return the name and the data version of an artifact."""
    return manifest.spec.name, manifest.data_version


def bytes_read(manifest: Manifest) -> Iterator[Bytes]:
    """Yield the bytes of each input."""
    for ref in manifest.spec.inputs:
        yield input_name(ref), ref.data_version


def keys_of(manifest: Manifest) -> list[int]:
    """Return every key under which an artifact is found, sorted."""
    spec = manifest.spec
    data = {data_key(each) for each in (own_bytes(manifest), *bytes_read(manifest))}
    return sorted(data | {stage_key(spec.stage), stage_key(spec.stage, spec.stage_version)})
