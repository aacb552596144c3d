"""Records to HTML. Every text is escaped here. Scripts and styles are files beside the pages. A policy allows no others."""

import json
from collections.abc import Callable, Sequence
from html import escape

from operations.site.content import Block, Cell, Curve, Facts, Graph, Link, Note, Page, Section, Table, Verbatim
from operations.site.list_pages import HOME, UNREADABLE, WRONG
from operations.site.names import KINDS
from operations.site.pictures import lineage_svg

POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"
STYLE, SCRIPT, SEARCH = "style.css", "script.js", "search.js"

type Draw = Callable[[Curve], str | None]
"""The picture of a learning curve, or None if its file cannot be read."""


def page_html(page: Page, draw: Draw) -> str:
    """Return the page as one file. Links are relative, so the site works in any folder and from disk."""
    up = "../" * page.path.count("/")
    title = escape(page.title)
    sections = "\n".join(_section(index, section, up, draw) for index, section in enumerate(page.sections))
    kind = "" if page.kind == "index" else f'<a href="{up}kind/{page.kind}.html">{escape(KINDS[page.kind])}</a>'
    crumbs = (
        f'<nav class="crumbs" aria-label="Breadcrumbs"><a href="{up}{HOME}">The lab</a> {kind}</nav>'
        if page.path != HOME
        else ""
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}"><meta name="referrer" content="no-referrer">
<title>{title}</title><link rel="stylesheet" href="{up}{STYLE}"></head>
<body data-up="{up}"><a class="skip" href="#main">Skip to the content</a>
<header>{_navigation(page.path, up)}
<div class="search" role="search"><label for="search">Search</label><input id="search" type="search" autocomplete="off"
 aria-describedby="search-status"><p id="search-status" role="status"></p><ol id="results"></ol></div></header>
<main id="main" tabindex="-1">{crumbs}<h1>{title}</h1>
{sections}
</main><script src="{up}{SEARCH}" defer></script><script src="{up}{SCRIPT}" defer></script></body></html>
"""


def search_index(pages: Sequence[Page]) -> str:
    """Return the script that has title, kind, date, summary and path of every page; ASCII only."""
    rows = [[page.title, page.kind, page.date, page.summary, page.path] for page in pages]
    return f"window.SITE_PAGES = {json.dumps(rows, ensure_ascii=True, separators=(',', ':'))};\n".replace("<", "\\u003c")


def _navigation(path: str, up: str) -> str:
    targets = [(HOME, "The lab"), *((f"kind/{kind}.html", title) for kind, title in KINDS.items())]
    targets += [(WRONG, "What went wrong"), (UNREADABLE, "Not readable")]
    links = "".join(
        f'<li><a href="{up}{target}"{' aria-current="page"' if target == path else ""}>{escape(title)}</a></li>'
        for target, title in targets
    )
    return f'<nav aria-label="Site"><ul>{links}</ul></nav>'


def _section(index: int, section: Section, up: str, draw: Draw) -> str:
    blocks = "\n".join(_block(f"s{index}-{number}", block, up, draw) for number, block in enumerate(section.blocks))
    return f"<section><h2>{escape(section.title)}</h2>\n{blocks}</section>"


def _block(name: str, block: Block, up: str, draw: Draw) -> str:
    match block:
        case Facts(rows):
            return f"<dl>{''.join(f'<div><dt>{escape(k)}</dt><dd>{_cell(v, up)}</dd></div>' for k, v in rows)}</dl>"
        case Table(caption, columns, rows, numbers):
            head = "".join(_th(i in numbers, column) for i, column in enumerate(columns))
            body = "".join(f"<tr>{''.join(_td(i in numbers, cell, up) for i, cell in enumerate(row))}</tr>" for row in rows)
            top = f'<caption id="{name}">{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
            table = f"<table>{top}<tbody>{body}</tbody></table>"
            return f'<div class="wide" role="region" tabindex="0" aria-labelledby="{name}">{table}</div>'
        case Note(text, warning):
            return f'<p class="{"warning" if warning else "note"}">{escape(text)}</p>'
        case Verbatim(text):
            return f'<pre tabindex="0" role="region" aria-label="Text {name}">{escape(text)}</pre>'
        case Curve():
            return draw(block) or '<p class="warning">The learning curve could not be read.</p>'
        case Graph():
            label = f"Lineage picture {name}: inputs left, outputs right"
            return f'<div class="wide" role="region" tabindex="0" aria-label="{label}">{lineage_svg(block, up)}</div>'


def _th(is_number: bool, column: str) -> str:
    return f'<th scope="col"{' class="number"' if is_number else ""}>{escape(column)}</th>'


def _td(is_number: bool, cell: Cell, up: str) -> str:
    return f"<td{' class="number"' if is_number else ''}>{_cell(cell, up)}</td>"


def _cell(cell: Cell, up: str) -> str:
    return f'<a href="{escape(up + cell.target)}">{escape(cell.text)}</a>' if isinstance(cell, Link) else escape(cell)
