"""The stage `lineage.waiver`: how a waiver gets into a store (lineage/waivers.py says what one is)."""

import json

from lineage.config import to_jsonable
from lineage.digests import identity_digest
from lineage.plan import Node, build
from lineage.stage import Stage
from lineage.store import Artifact, Store
from lineage.waivers import WAIVERS_KEY, Waiver
from lineage.writer import Writer


def _write_waiver(out: Writer, config: Waiver) -> None:
    (out.folder / "waiver.json").write_text(json.dumps(to_jsonable(config), indent=1, ensure_ascii=False))


WAIVER = Stage("lineage.waiver", "1", _write_waiver)


def waive(store: Store, waiver: Waiver) -> Artifact:
    """Record a waiver; the one that is there already where its words are the same."""
    name = f"{waiver.problem}-{identity_digest(to_jsonable(waiver))[:8]}"
    return build(store, Node((WAIVERS_KEY, name), None, WAIVER, waiver)).artifact
