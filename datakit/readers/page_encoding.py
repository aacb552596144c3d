"""The text of a web page by its declared encoding, as browsers read it (WHATWG, encoding.spec.whatwg.org).

A byte order mark comes first, then the server's declaration, then the page's own. Labels are those of the standard:
"iso-8859-1" and "ascii" mean Windows-1252. An unknown label ("undefined", which scripts send) counts as none.
"""

import codecs
import re
from collections.abc import Iterable
from types import MappingProxyType

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
META_BYTES = 4096
"""Bytes that are searched for a declaration. The standard reads 1,024, but some pages put comments first."""
META = re.compile(rb"""<meta[^>]{0,1000}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
WINDOWS = "cp1252"
WIDER = MappingProxyType({"shift_jis": "cp932", "euc_kr": "cp949", "gbk": "gb18030"})
"""Python codecs for the standard's names: Python's codecs of these names lack characters that pages have."""
WINDOWS_1252 = MappingProxyType({byte: bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(0x80, 0xA0)})
"""Characters where Windows-1252 differs from ISO 8859-1; the five that Python leaves out are control characters, as in
the standard.
"""


def page_text(content: bytes, declared: str | None) -> str | None:
    """Return the page by its declared encoding, else by its own declaration, else as UTF-8 if it is valid (few pages
    are by chance), else by the encoding that its letters suggest; None if none of them reads it.
    """
    labels = (declared, _meta(content), "utf-8")
    read = _first_that_reads(content, [label for label in labels if label])
    return read if read is not None else _first_that_reads(content, [detect_encoding(content) or ""])


def marked_text(content: bytes) -> str | None:
    """Return a page in a file, without a server's declaration: UTF-8, or the encoding of its byte order mark or
    `<meta>`; else None.
    """
    return _first_that_reads(content, ["utf-8", _meta(content)])


def _meta(content: bytes) -> str:
    match = META.search(content[:META_BYTES])
    return match[1].decode("ascii", "ignore") if match else ""


def _first_that_reads(content: bytes, labels: Iterable[str]) -> str | None:
    marked = next(((mark, label) for mark, label in BOMS if content.startswith(mark)), None)
    if marked is not None:
        content, labels = content.removeprefix(marked[0]), (marked[1],)
    for label in labels:
        encoding = map_encoding_to_html5(label, fallback_utf8=False)
        if encoding is not None and encoding.startswith("utf-16") and marked is None and b"\0" not in content:
            continue  # Pages carry this label wrongly, and nearly any bytes would pass.
        try:
            if encoding == WINDOWS:
                return content.decode("latin-1").translate(WINDOWS_1252)
            if encoding is not None:
                return content.decode(WIDER.get(encoding, encoding))
        except UnicodeDecodeError:  # The page does not match this label; try the next, else it is a counted drop.
            continue
    return None
