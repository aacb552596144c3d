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
SPACES = re.compile(r"[ \t\r\n\f]+")
BLANK_LINES = re.compile(r"\n{3,}")


class _TextBuilder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.dropped: list[str] = []
        """Open elements whose text does not count, outermost first."""
        self.pre_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "body":
            self.dropped.clear()  # `</head>` may be left out
        if tag in DROPPED:
            self.dropped.append(tag)
        if tag == "pre":
            self.pre_depth += 1
        if tag in BLOCKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.dropped:
            while self.dropped.pop() != tag:
                continue  # an element inside it that was never closed
        if tag == "pre":
            self.pre_depth = max(0, self.pre_depth - 1)
        if tag in BLOCKS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if self.dropped:
            return
        if not self.pre_depth:
            data = SPACES.sub(" ", data)
            if not self.pieces or self.pieces[-1].endswith("\n"):
                data = data.removeprefix(" ")  # a line break in the source begins no line of text
        if data:
            self.pieces.append(data.replace("\xa0", " "))  # not collapsed: pages indent code with it


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
