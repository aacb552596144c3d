"""Manifests: read as the store reads them, also with a seal that fits, which anyone can compute; then their names are used."""

import json
import tempfile
from pathlib import Path

from fuzz.run import Target
from lineage.artifact.manifest import sealed, sound_manifest
from lineage.artifact.store import MANIFEST_NAME, Artifact, Store, open_folder
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.stage import Stage
from lineage.writing.writer import Writer


def write_text(out: Writer, config: dict, first: Artifact | None = None) -> None:
    del first
    for number in range(3):
        (out.folder / f"part-{number}.txt").write_text(str(config))
    out.extra["facts"] = {"eos": 3, "names": ["a", "b"]}


STAGE = Stage("fuzz.text", "1", write_text)


def target() -> Target:
    return Target("manifests", _seeds(), _attempt, (OSError,))


def _seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as root:
        store = Store(root)
        first = Node(("fuzz", "text"), "one", STAGE, {"value": 1})
        second = Node(("fuzz", "other"), None, STAGE, {"value": [1, {"a": None}]}, {"first": first})
        built = [build(store, node).artifact for node in (first, second)]
        return [(Path(root) / artifact.spec.address / MANIFEST_NAME).read_bytes() for artifact in built]


def _attempt(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "replace")
    texts = [text]
    try:
        record = json.loads(text)
        record.pop("seal", None)
        texts.append(sealed(record))
    except (ValueError, AttributeError, RecursionError, TypeError):
        pass  # what cannot be sealed is read as it is
    fault = None
    for each in texts:
        try:
            _read(each, folder)
        except ValueError as error:
            fault = error
    if fault is not None:
        raise fault


def _read(text: str, folder: Path) -> None:
    place = folder / "fuzz" / "text" / "one" / "x"
    place.mkdir(parents=True, exist_ok=True)
    (place / MANIFEST_NAME).write_bytes(text.encode("utf-8", "surrogatepass"))
    faults = []
    for read in (lambda: sound_manifest(text, "fuzz/text/one/x", "it"), lambda: open_folder(place)):
        try:
            read()
        except ValueError as error:
            faults.append(error)
    list(Store(str(folder)).artifacts("fuzz", "text"))
    if faults:
        raise faults[0]
