"""A page made of blocks, as Markdown beside its pictures and as one HTML file that contains them."""

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2636; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; border-bottom: 1px solid #d8deea; }
table { border-collapse: collapse; margin: .6rem 0; font-size: .9rem; } td, th { padding: .25rem .7rem; text-align: left; vertical-align: top; }
th { border-bottom: 1px solid #8d96a3; } tr:nth-child(even) td { background: #f4f6fa; } td.number { text-align: right; }
img { max-width: 100%; } p.note { color: #5a6474; } td.text { font: .82rem/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
"""  # noqa: E501
NUMBER = re.compile(r"-?[\d,]+(?:\.\d+)?%?")


@dataclass(frozen=True)
class Heading:
    """A heading."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Note:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Picture:
    """A picture with the text that replaces it."""

    name: str
    """File beside the page."""

    alt: str


@dataclass(frozen=True)
class Table:
    """Cells are text as people read it; columns named in `texts` hold text of documents."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: frozenset[str] = frozenset()


type Block = Heading | Note | Picture | Table


def markdown(blocks: Sequence[Block]) -> str:
    """Return the page as Markdown."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Note(text):
            return text
        case Picture(name, alt):
            return f"![{alt}]({name})"
        case Table(columns, rows, texts):
            cells = [[_cell(cell, name in texts) for name, cell in zip(columns, row, strict=True)] for row in rows]
            lines = [columns, tuple("---" for _ in columns), *cells]
            return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str, is_text: bool) -> str:
    clean = text.replace("|", "\\|")
    if not is_text or not clean:
        return clean
    fence = "`" * (max((len(run) for run in re.findall("`+", clean)), default=0) + 1)
    return f"{fence} {clean} {fence}"


def page(title: str, blocks: Sequence[Block], folder: Path) -> str:
    """Return the page as one HTML file; pictures are read from `folder`."""
    body = "\n".join(_html(block, folder) for block in blocks)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    return f"<!doctype html><html lang=en><head>{head}<style>{STYLE}</style></head><body>\n{body}\n</body></html>\n"


def _html(block: Block, folder: Path) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{html.escape(text)}</h{level}>"
        case Note(text):
            return f'<p class="note">{html.escape(text)}</p>'
        case Picture(name, alt):
            encoded = base64.b64encode((folder / name).read_bytes()).decode()
            return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{encoded}">'
        case Table(columns, rows, texts):
            head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
            lines = ("".join(_data(cell, name in texts) for name, cell in zip(columns, row, strict=True)) for row in rows)
            return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _data(cell: str, is_text: bool) -> str:
    kind = ' class="text"' if is_text else ' class="number"' if NUMBER.fullmatch(cell) else ""
    return f"<td{kind}>{html.escape(cell)}</td>"
