"""HTML to plain text: blocks on their own lines, preformatted text kept, scripts and navigation dropped.

Enough for documentation pages, which is what the default corpus has; web crawls want a boilerplate remover in its place.
"""

import re
from html.parser import HTMLParser

DROPPED = frozenset({"script", "style", "nav", "head", "template", "noscript", "svg"})
BLOCKS = frozenset(
    {
        "address", "article", "blockquote", "br", "dd", "div", "dl", "dt", "figure", "footer", "form", "h1", "h2", "h3", "h4",
        "h5", "h6", "header", "hr", "li", "main", "ol", "p", "pre", "section", "table", "td", "th", "tr", "ul",
    }
)  # fmt: skip
SPACES = re.compile(r"[ \t\r\n\f\xa0]+")
BLANK_LINES = re.compile(r"\n{3,}")


class _TextBuilder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.dropped_depth = 0
        self.pre_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in DROPPED:
            self.dropped_depth += 1
        if tag == "pre":
            self.pre_depth += 1
        if tag in BLOCKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in DROPPED:
            self.dropped_depth = max(0, self.dropped_depth - 1)
        if tag == "pre":
            self.pre_depth = max(0, self.pre_depth - 1)
        if tag in BLOCKS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.dropped_depth:
            self.pieces.append(data.replace("\xa0", " ") if self.pre_depth else SPACES.sub(" ", data))


def html_to_text(page: str) -> str:
    """Plain text of a page.

    >>> html_to_text("<head><title>t</title></head><h1>A &amp; B</h1><p>one\\n two</p><pre>x\\n  y</pre><script>z()</script>")
    'A & B\\n\\none two\\n\\nx\\n  y'
    """
    builder = _TextBuilder()
    builder.feed(page)
    builder.close()
    lines = (line.rstrip() for line in "".join(builder.pieces).split("\n"))
    return BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()
