"""The text of a page of the web by the encoding that it declares, as browsers read it (WHATWG, encoding.spec.whatwg.org).

A mark at the beginning (BOM) comes first, then what the server says, then the page itself. Labels are those
of the standard: "iso-8859-1" and "ascii" mean Windows-1252; what it does not know ("undefined", which scripts send) is none.
"""

import codecs
import re
from collections.abc import Iterable
from types import MappingProxyType

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
META_BYTES = 4096
"""The standard looks at 1,024; pages put comments first."""
META = re.compile(rb"""<meta[^>]{0,1000}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
WINDOWS = "cp1252"
WIDER = MappingProxyType({"shift_jis": "cp932", "euc_kr": "cp949", "gbk": "gb18030"})
"""Python's names of what the standard means: its own codecs of these names lack characters that pages have."""
WINDOWS_1252 = MappingProxyType({byte: bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(0x80, 0xA0)})
"""Characters where it differs from ISO 8859-1; the five that Python leaves out are control characters, as there."""


def page_text(content: bytes, declared: str | None) -> str | None:
    """The page by its declared encoding, else by its own word, else as UTF-8 where it is that (bytes that are so by chance are
    few), else by the letters that its bytes would be; None when none of them reads it."""
    labels = (declared, _meta(content), "utf-8")
    read = _first_that_reads(content, [label for label in labels if label])
    return read if read is not None else _first_that_reads(content, [detect_encoding(content) or ""])


def marked_text(content: bytes) -> str | None:
    """A page in a file, of which no server has said anything: UTF-8, or the encoding of its own mark or `<meta>`; else None."""
    return _first_that_reads(content, ["utf-8", _meta(content)])


def _meta(content: bytes) -> str:
    found = META.search(content[:META_BYTES])
    return found[1].decode("ascii", "ignore") if found else ""


def _first_that_reads(content: bytes, labels: Iterable[str]) -> str | None:
    marked = next(((mark, label) for mark, label in BOMS if content.startswith(mark)), None)
    if marked is not None:
        content, labels = content.removeprefix(marked[0]), (marked[1],)
    for label in labels:
        encoding = map_encoding_to_html5(label, fallback_utf8=False)
        if encoding is not None and encoding.startswith("utf-16") and marked is None and b"\0" not in content:
            continue  # said of pages that are no such thing, and nearly any bytes would pass
        try:
            if encoding == WINDOWS:
                return content.decode("latin-1").translate(WINDOWS_1252)
            if encoding is not None:
                return content.decode(WIDER.get(encoding, encoding))
        except UnicodeDecodeError:  # the page is not what this label says; the next may know, else it is a counted drop
            continue
    return None
