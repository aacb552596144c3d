"""Page encodings as browsers decode them; an unknown label does not stop a page."""

import pytest

from datakit.readers.page_encoding import marked_text, page_text
from datakit.readers.read import READERS
from datakit.sources.record import Record

PAGE = "<html><body><p>“Čtyři” – naïve: 日本 ①</p></body></html>"
QUOTED = "<p>“quoted” naïve café</p>"


@pytest.mark.parametrize(
    ("text", "codec", "declared"),
    [
        (PAGE, "utf-8", "utf-8"),
        (PAGE, "utf-8-sig", "iso-8859-1"),
        (PAGE, "utf-16", None),
        (QUOTED, "cp1252", "iso-8859-1"),
        (QUOTED, "cp1252", "ASCII"),
        ("<p>日本 ①</p>", "cp932", "Shift_JIS"),
        ("<p>日本 똠</p>", "cp949", "ks_c_5601-1987"),
        ("<p>中文 朱镕基</p>", "gbk", "gb2312"),
    ],
)
def test_a_declared_encoding_means_what_browsers_take_it_for(text: str, codec: str, declared: str | None) -> None:
    assert page_text(text.encode(codec), declared) == text


def test_bytes_that_windows_leaves_out_are_no_error() -> None:
    assert page_text(b"<p>a\x81b\x93</p>", "latin1") == "<p>a\x81b“</p>"


@pytest.mark.parametrize("label", ["undefined", "utf\0-8", "none", "unicode_escape", "idna", "hex", "utf-16", ""])
def test_a_label_that_is_none_gives_way_to_what_the_bytes_show(label: str) -> None:
    """The first two raised what no reader expects: Python has a codec `undefined`, and refuses names with null bytes."""
    assert page_text(f"{QUOTED} \\u0041 {QUOTED}".encode(), label) == f"{QUOTED} \\u0041 {QUOTED}"


def test_a_file_is_read_by_the_encoding_that_it_names_itself() -> None:
    page = '<html><head><meta charset="iso-8859-2"></head><body>Čtyři</body></html>'
    assert marked_text(page.encode("iso-8859-2")) == page
    equivalent = page.replace('charset="', 'http-equiv="content-type" content="text/html; charset=')
    assert marked_text(equivalent.encode("iso-8859-2")) == equivalent
    assert marked_text("<p>Čtyři</p>".encode("iso-8859-2")) is None, "nothing says what it is: no guess"
    assert list(READERS["html"]("f", page.encode("iso-8859-2"))) == [Record("f", "Čtyři")]
