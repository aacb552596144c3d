"""Find an artifact from what a user typed: a folder, an address, or a name such as
`ferry/runs/smoke/checkpoint[2026-11-21]`, with `@step` where one job saves several steps, or the name of a run."""

import difflib
import logging
import re
from collections.abc import Sequence
from pathlib import Path

from lineage.artifact.manifest import MANIFEST_NAME, from_json
from lineage.artifact.newest import newest
from lineage.artifact.spec import partition_address
from lineage.artifact.store import Artifact, Store
from lineage.storage.digests import DIGEST_CHARS

log = logging.getLogger(__name__)
CHECKPOINT = "checkpoint"
_ADDRESS = re.compile(rf".+/[0-9a-f]{{{DIGEST_CHARS}}}")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_NAME = re.compile(r"(?P<key>[^\[\]@]+?)(?:\[(?P<partition>[^\[\]]+)\])?(?:@(?P<step>\d+))?")
NEAR = 3


def locate(stores: Sequence[Store], text: str) -> Artifact:
    """Find an artifact by its folder (in any local store), or by its address or name in one of the stores.

    `@480` chooses a step; without it the last step is returned. A name without its partition is the last day, if all its
    partitions are days, which a warning says. If several artifacts still have the name, the newest is returned and a warning is
    logged; if the clocks disagree on which that is, none is. An address names exactly one.
    Raises: ValueError with the text, the stores that were searched, and what they hold.
    """
    folder = Path(text)
    if (folder / MANIFEST_NAME).is_file():
        return _in_folder(folder.resolve())
    address = text.strip("/")
    if _ADDRESS.fullmatch(address):
        for store in stores:
            artifact = store.open(address)
            if artifact is not None:
                return artifact
    return _by_name(stores, address, text)


def _in_folder(folder: Path) -> Artifact:
    """Open the artifact in a folder. The store's root is the folder without the artifact's address."""
    where = folder / MANIFEST_NAME
    address = from_json(where.read_text(encoding="utf-8"), str(where)).spec.address
    if not folder.as_posix().endswith(f"/{address}"):
        raise ValueError(f"{folder} holds the manifest of {address}: it was copied or moved by hand")
    root = folder.as_posix().removesuffix(f"/{address}")
    artifact = Store(root).open(address)
    assert artifact is not None  # its manifest has just been read
    return artifact


def _by_name(stores: Sequence[Store], address: str, text: str) -> Artifact:
    match = _NAME.fullmatch(address)
    if match is None:
        raise ValueError(
            f"{text!r} is no artifact's folder, address or name; names look like datakit/normalized[kjv] or tiny@50"
        )
    step = None if match["step"] is None else int(match["step"])
    for key in (match["key"], f"runs/{match['key']}/checkpoint"):  # the name of a run stands for its checkpoints
        matching = _named(stores, key, match["partition"], step)
        if matching:
            return _newest(matching, text)
    if match["partition"] is None and (day := _last_day(stores, match["key"])):
        log.warning("%s names no day; the last one is taken, %s[%s]", text, match["key"], day)
        return _newest(_named(stores, match["key"], day, step), text)
    raise ValueError(_nothing(stores, text, match["key"]))


def _named(stores: Sequence[Store], key: str, partition: str | None, step: int | None) -> list[Artifact]:
    """Return the artifacts of a key and partition; with a step those of that step. A checkpoint without a partition is the
    last step that there is."""
    parts = tuple(key.split("/"))
    is_any = partition is None and (step is not None or parts[-1] == CHECKPOINT)
    place = parts if is_any else tuple(partition_address(parts, partition).split("/"))
    matching = [artifact for store in stores for artifact in store.artifacts(*place) if artifact.spec.key == parts]
    if not is_any:
        matching = [artifact for artifact in matching if artifact.spec.partition == partition]
    if step is not None:
        return [artifact for artifact in matching if artifact.spec.config.get("step") == step]
    last = max((int(artifact.spec.config.get("step", -1)) for artifact in matching), default=-1)
    return [artifact for artifact in matching if int(artifact.spec.config.get("step", -1)) == last]


def _last_day(stores: Sequence[Store], key: str) -> str | None:
    """Return the last partition of a key whose partitions are days and have artifacts; None for any other key."""
    places = {place for store in stores for place in store.storage.folders(key)}
    if not places or not all(_DAY.fullmatch(place) for place in places):
        return None
    return max((day for day in places if _named(stores, key, day, None)), default=None)


def _newest(candidates: Sequence[Artifact], text: str) -> Artifact:
    last = newest(candidates, text)
    if len({artifact.name for artifact in candidates}) < len(candidates):
        log.warning("%d artifacts are called %s; the newest is taken, %s", len(candidates), text, last.spec.address)
    return last


def _nothing(stores: Sequence[Store], text: str, key: str) -> str:
    """Say what is not there, where, and what is: partitions of the key, or names that are near."""
    roots = ", ".join(store.root for store in stores)
    partitions = sorted({name for store in stores for name in store.storage.folders(key)})
    if partitions:
        return f"no artifact {text!r} in {roots}; under {key} there is: {', '.join(partitions[:20])}"
    names = {artifact.name for store in stores for artifact in store.artifacts()}
    near = difflib.get_close_matches(text, names, n=NEAR)
    hint = f"did you mean {', '.join(near)}?" if near else "`./marin list` shows what there is, `./marin materialize` makes it"
    return f"no artifact {text!r} in {roots}; nothing is under that key; {hint}"
