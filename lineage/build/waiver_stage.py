"""The stage `lineage.waiver`, which writes a waiver into a store (lineage/trust/waivers.py defines waivers)."""

import json

from lineage.artifact.store import Artifact, Store
from lineage.build.plan import Node, build
from lineage.config import to_jsonable
from lineage.stage import Stage
from lineage.storage.digests import identity_digest
from lineage.trust.waivers import WAIVERS_KEY, Waiver
from lineage.writing.writer import Writer


def _write_waiver(out: Writer, config: Waiver) -> None:
    (out.folder / "waiver.json").write_text(json.dumps(to_jsonable(config), indent=1, ensure_ascii=False))


WAIVER = Stage("lineage.waiver", "1", _write_waiver)


def waive(store: Store, waiver: Waiver) -> Artifact:
    """Record a waiver, or return the existing one with the same content."""
    name = f"{waiver.problem}-{identity_digest(to_jsonable(waiver))[:8]}"
    return build(store, Node((WAIVERS_KEY, name), None, WAIVER, waiver)).artifact
