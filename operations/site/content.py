"""The content of a page of the site: plain records, without markup. Every text may come from a stranger."""

from collections.abc import Callable
from dataclasses import dataclass, replace

type Cell = str | Link
"""A text, or a text that leads to another page."""
type Block = Facts | Table | Note | Verbatim | Curve | Graph


@dataclass(frozen=True)
class Link:
    """`target` is the path of a page, relative to the site's root."""

    text: str
    target: str


@dataclass(frozen=True)
class Facts:
    """Pairs of a name and a value."""

    rows: tuple[tuple[str, Cell], ...]


@dataclass(frozen=True)
class Table:
    """`numbers` are the columns whose values are aligned to the right."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Note:
    """A sentence. A `warning` is highlighted."""

    text: str
    warning: bool = False


@dataclass(frozen=True)
class Verbatim:
    """A text of several lines that is shown as it is."""

    text: str


@dataclass(frozen=True)
class Curve:
    """The loss by step of a run: the file `metrics.parquet` of a checkpoint. It is read when the page is drawn."""

    store: str
    address: str
    digest: str


@dataclass(frozen=True)
class Box:
    """An artifact in a lineage picture; `family` is the engine that made it."""

    name: Link
    stage: str
    family: str


@dataclass(frozen=True)
class Graph:
    """A lineage picture: boxes, and edges from input to output by their numbers."""

    boxes: tuple[Box, ...]
    edges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Section:
    """A part of a page: title and blocks."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """`path` is relative to the site's root; `date` is YYYY-MM-DD, or empty; `summary` is what the search shows."""

    path: str
    kind: str
    title: str
    date: str
    summary: str
    sections: tuple[Section, ...]


def mapped(page: Page, change: Callable[[str], str]) -> Page:
    """Return the page with every text changed, and no path."""

    def cell(value: Cell) -> Cell:
        return replace(value, text=change(value.text)) if isinstance(value, Link) else change(value)

    def block(value: Block) -> Block:
        match value:
            case Facts(rows):
                return Facts(tuple((change(name), cell(fact)) for name, fact in rows))
            case Table(caption, columns, rows, numbers):
                changed = tuple(tuple(cell(one) for one in row) for row in rows)
                return Table(change(caption), tuple(change(name) for name in columns), changed, numbers)
            case Note(text, warning):
                return Note(change(text), warning)
            case Verbatim(text):
                return Verbatim(change(text))
            case Graph(boxes, edges):
                named = (replace(b.name, text=change(b.name.text)) for b in boxes)
                return Graph(tuple(Box(n, change(b.stage), b.family) for n, b in zip(named, boxes, strict=True)), edges)
            case Curve():
                return value

    sections = tuple(Section(change(one.title), tuple(block(each) for each in one.blocks)) for one in page.sections)
    return replace(page, title=change(page.title), date=change(page.date), summary=change(page.summary), sections=sections)
