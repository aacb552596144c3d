"""HTML to plain text: blocks on their own lines, preformatted text kept, scripts and navigation dropped.

This suffices for documentation pages, which the default corpus has. Web crawls need a boilerplate remover instead.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

from datakit.readers.html_tokens import tokens

DROPPED = frozenset({"script", "style", "nav", "head", "template", "noscript", "svg"})
BLOCKS = frozenset(
    {
        "address", "article", "blockquote", "br", "dd", "div", "dl", "dt", "figure", "footer", "form", "h1", "h2", "h3", "h4",
        "h5", "h6", "header", "hr", "li", "main", "ol", "p", "pre", "section", "table", "td", "th", "tr", "ul",
    }
)  # fmt: skip
SPACES = re.compile(r"[ \t\r\n\f]+")
BLANK_LINES = re.compile(r"\n{3,}")


@dataclass
class _TextBuilder:
    pieces: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    """Open elements whose text does not count, outermost first."""
    open: Counter[str] = field(default_factory=Counter)
    """How many of each name are among them: a page may open thousands and close others."""
    pre_depth: int = 0

    def start(self, tag: str) -> None:
        if tag == "body":  # HTML allows leaving `</head>` out.
            self.dropped.clear()
            self.open.clear()
        if tag in DROPPED:
            self.dropped.append(tag)
            self.open[tag] += 1
        if tag == "pre":
            self.pre_depth += 1
        if tag in BLOCKS:
            self.pieces.append("\n")

    def end(self, tag: str) -> None:
        if self.open[tag]:
            while True:  # Elements inside it were never closed.
                self.open[last := self.dropped.pop()] -= 1
                if last == tag:
                    break
        if tag == "pre":
            self.pre_depth = max(0, self.pre_depth - 1)
        if tag in BLOCKS:
            self.pieces.append("\n")

    def text(self, data: str) -> None:
        if self.dropped:
            return
        if not self.pre_depth:
            data = SPACES.sub(" ", data)
            if not self.pieces or self.pieces[-1].endswith("\n"):
                data = data.removeprefix(" ")  # A line break in the source begins no line of text.
        if data:
            self.pieces.append(data.replace("\xa0", " "))  # Not collapsed: pages indent code with it.


def html_to_text(page: str) -> str:
    """Return the plain text of a page.

    >>> html_to_text("<head><title>t</title></head><h1>A &amp; B</h1><p>one\\n two</p><pre>x\\n  y</pre><script>z()</script>")
    'A & B\\n\\none two\\n\\nx\\n  y'
    """
    builder = _TextBuilder()
    for kind, value in tokens(page):
        match kind:
            case "text":
                builder.text(value)
            case "start":
                builder.start(value)
            case "end":
                builder.end(value)
            case "empty":
                builder.start(value)
                builder.end(value)
    lines = (line.rstrip() for line in "".join(builder.pieces).split("\n"))
    return BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()
