"""A walk through the lineage as a picture: Mermaid text, or one HTML page that needs no network."""

import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lineage.artifact.store import Artifact

BOX_WIDTH, BOX_HEIGHT = 252, 40
COLUMN, ROW, MARGIN = 310, 48, 24
LABEL_CHARS = 36
SWEEPS = 6
FAMILIES = {"datakit": "#2f6f4f", "lineage": "#8a5a00", "trainer": "#8b2c4a", "evals": "#2b5c9e"}
OTHER_FAMILY = "#555555"
FRAME = Path(__file__).with_name("lineage_picture.html")
"""The page without its graph; `@NAME@` marks each place that is filled in."""


@dataclass(frozen=True)
class Box:
    """One placed artifact: column (longest way from an artifact without inputs) and row, both from 0."""

    artifact: Artifact
    column: int
    row: float

    @property
    def x(self) -> int:
        return MARGIN + self.column * COLUMN

    @property
    def y(self) -> int:
        return MARGIN + round(self.row * ROW)


def mermaid(artifacts: Sequence[Artifact]) -> str:
    """Return a Mermaid flowchart with the inputs on the left."""
    number = {artifact.spec.address: i for i, artifact in enumerate(artifacts)}
    lines = ["graph LR"]
    for artifact in artifacts:
        spec = artifact.spec
        label = f"{spec.name}<br/>{spec.stage}@{spec.stage_version}".replace('"', "#quot;")
        lines.append(f'    n{number[spec.address]}["{label}"]')
    for child, parent in _pairs(artifacts):
        lines.append(f"    n{number[parent]} --> n{number[child]}")
    return "\n".join(lines) + "\n"


def html_page(artifacts: Sequence[Artifact], title: str) -> str:
    """Return a page with the graph. Hovering over an artifact shows its lineage in both directions; a click shows its
    manifest's facts.
    """
    boxes = place(artifacts)
    width = max((box.x for box in boxes), default=0) + BOX_WIDTH + MARGIN
    height = max((box.y for box in boxes), default=0) + BOX_HEIGHT + MARGIN
    at = {box.artifact.spec.address: box for box in boxes}
    number = {box.artifact.spec.address: i for i, box in enumerate(boxes)}
    pairs = _pairs(artifacts)
    curves = "".join(_curve(at[parent], at[child], number[parent], number[child]) for child, parent in pairs)
    nodes = "".join(_node(box, number[box.artifact.spec.address]) for box in boxes)
    facts = json.dumps([_facts(box.artifact) for box in boxes], ensure_ascii=False).replace("</", "<\\/")
    edges = json.dumps([[number[parent], number[child]] for child, parent in pairs])
    parts = {
        "TITLE": html.escape(title),
        "COUNTS": f"{len(boxes)} artifacts, {len(pairs)} edges",
        "SVG": f'<svg width="{width}" height="{height}">{curves}{nodes}</svg>',
        "FACTS": facts,
        "EDGES": edges,
    }
    return re.sub(r"@([A-Z]+)@", lambda match: parts[match[1]], FRAME.read_text(encoding="utf-8"))


def place(artifacts: Sequence[Artifact]) -> list[Box]:
    """Place boxes: columns by longest path, rows by the mean row of the neighbours, in a few sweeps in both directions."""
    up: dict[str, list[str]] = {artifact.spec.address: [] for artifact in artifacts}
    down: dict[str, list[str]] = {address: [] for address in up}
    for child, parent in _pairs(artifacts):
        up[child].append(parent)
        down[parent].append(child)
    column = _columns(up)
    columns: list[list[str]] = [[] for _ in range(max(column.values(), default=-1) + 1)]
    for artifact in sorted(artifacts, key=lambda a: a.name):
        columns[column[artifact.spec.address]].append(artifact.spec.address)
    row = {address: float(i) for members in columns for i, address in enumerate(members)}
    for sweep in range(SWEEPS):
        near = up if sweep % 2 == 0 else down
        for members in columns if sweep % 2 == 0 else reversed(columns):
            wish = {a: sum(row[n] for n in near[a]) / len(near[a]) if near[a] else row[a] for a in members}
            members.sort(key=lambda a: wish[a])
            row |= {address: float(i) for i, address in enumerate(members)}
    tallest = max((len(members) for members in columns), default=0)
    lift = {address: (tallest - len(members)) / 2 for members in columns for address in members}
    return [Box(a, column[a.spec.address], row[a.spec.address] + lift[a.spec.address]) for a in artifacts]


def _pairs(artifacts: Sequence[Artifact]) -> list[tuple[str, str]]:
    """Return (child, parent) addresses inside the walk, each once."""
    here = {artifact.spec.address for artifact in artifacts}
    pairs = {(a.spec.address, ref.address): None for a in artifacts for ref in a.spec.inputs if ref.address in here}
    return list(pairs)


def _columns(up: dict[str, list[str]]) -> dict[str, int]:
    column: dict[str, int] = {}
    pending = list(up)
    while pending:
        address = pending[-1]
        missing = [parent for parent in up[address] if parent not in column]
        if missing and address not in column:
            pending += missing
            continue
        column.setdefault(address, 1 + max((column[parent] for parent in up[address]), default=-1))
        pending.pop()
    return column


def _node(box: Box, index: int) -> str:
    spec = box.artifact.spec
    name = "/".join(spec.key[-2:]) + (f"[{spec.partition}]" if spec.partition else "")
    colour = FAMILIES.get(spec.stage.split(".")[0], OTHER_FAMILY)
    return (
        f'<g class="node" data-i="{index}" transform="translate({box.x},{box.y})"><title>{html.escape(spec.name)}</title>'
        f'<rect width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"/><rect width="5" height="{BOX_HEIGHT}" fill="{colour}"/>'
        f'<text x="13" y="17">{html.escape(_short(name))}</text>'
        f'<text x="13" y="32" class="stage">{html.escape(f"{spec.stage}@{spec.stage_version}")}</text></g>'
    )


def _curve(parent: Box, child: Box, start: int, end: int) -> str:
    x1, y1 = parent.x + BOX_WIDTH, parent.y + BOX_HEIGHT // 2
    x2, y2 = child.x, child.y + BOX_HEIGHT // 2
    bend = (x1 + x2) // 2
    return f'<path data-e="{start}-{end}" d="M{x1},{y1} C{bend},{y1} {bend},{y2} {x2},{y2}"/>'


def _short(text: str) -> str:
    return text if len(text) <= LABEL_CHARS else text[: LABEL_CHARS - 1] + "…"


def _facts(artifact: Artifact) -> dict[str, object]:
    manifest = artifact.manifest
    return {
        "name": artifact.name,
        "stage": f"{manifest.spec.stage}@{manifest.spec.stage_version}",
        "data version": manifest.data_version,
        "made": manifest.created,
        "seconds": manifest.resources.wall_seconds,
        "bytes": sum(entry.bytes for entry in manifest.files),
        "code": manifest.code_fingerprint,
        "address": manifest.spec.address,
        "config": json.dumps(manifest.spec.config, indent=1, ensure_ascii=False),
    }
