"""The stage `lineage.waiver`, which writes a waiver into a store (lineage/trust/waivers.py defines waivers)."""

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.stage import Stage
from lineage.trust.waivers import WAIVER_FILE, Waiver, waiver_key, waiver_text
from lineage.writing.writer import Writer


def _write_waiver(out: Writer, config: Waiver) -> None:
    (out.folder / WAIVER_FILE).write_text(waiver_text(config))


WAIVER = Stage("lineage.waiver", "1", _write_waiver)  # `WAIVER_STAGE`, as readers of waivers expect it


def waive(store: Store, waiver: Waiver) -> Artifact:
    """Record a waiver, or return the existing one with the same content."""
    return build(store, Node(waiver_key(waiver), None, WAIVER, waiver)).artifact
