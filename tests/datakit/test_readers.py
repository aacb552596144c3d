"""Readers, one for each format: a bad record is a named drop; a wrong format lists the fields that exist."""

import json
import lzma

import pytest

from datakit.readers.read import READERS
from datakit.sources.record import Record, Unreadable
from datakit.sources.source import Format

NOT_UTF8 = b"\xff\xfe broken"
TEXT_FORMATS: tuple[Format, ...] = (
    "text",
    "python",
    "html",
    "wiki_json",
    "bible_python",
    "docstrings",
    "topics_python",
    "metadata",
)
SYNTAX_FORMATS: tuple[Format, ...] = ("bible_python", "docstrings", "topics_python")


def read(format: Format, content: str | bytes) -> list[Record | Unreadable]:
    return list(READERS[format]("name", content.encode() if isinstance(content, str) else content))


def xz(*lines: str | bytes) -> bytes:
    return lzma.compress(b"\n".join(line.encode() if isinstance(line, str) else line for line in lines))


@pytest.mark.parametrize("format", TEXT_FORMATS)
def test_a_file_that_is_not_utf8_is_one_named_drop(format: Format) -> None:
    assert read(format, NOT_UTF8) == [Unreadable("name", "invalid_utf8")]


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("text", "words"),
        ("markdown", "# words"),
        ("python", "x = 1"),
        ("html", "<p>words</p>"),
        ("wiki_json", '{"T": {"title": "T", "extract": "words"}}'),
        ("bible_python", "Bible('x', 'words')"),
        ("docstrings", f'"""{"words " * 100}"""'),
        ("topics_python", "topics = {'a': 'words'}"),
        ("metadata", "Name: x\n\nwords"),
        ("chatterbot_yaml", "conversations:\n- [words, more]"),
    ],
)
def test_a_mark_in_front_of_a_file_changes_nothing(format: Format, content: str) -> None:
    """Editors on Windows write it: the text would have another id than its copy, and Python and JSON with it do not parse."""
    plain = read(format, content)
    assert plain and all(isinstance(record, Record) for record in plain)
    assert read(format, b"\xef\xbb\xbf" + content.encode()) == plain


@pytest.mark.parametrize("format", SYNTAX_FORMATS)
@pytest.mark.parametrize("code", ["def f(:", "x = 1\0", "(" * 5000])
def test_code_that_does_not_parse_is_one_named_drop(format: Format, code: str) -> None:
    assert read(format, code) == [Unreadable("name", "unparsable")]


def test_code_is_read_and_never_run() -> None:
    hostile = "raise SystemExit('executed')\n"
    assert read("docstrings", hostile) == read("topics_python", hostile) == read("bible_python", hostile) == []


def test_a_bad_line_costs_that_line_only() -> None:
    lines = ('{"id": 1, "text": "a"}', "{half", NOT_UTF8, '{"id": 4, "text": 7}', "[5]", '{"id": 6}', '{"text": "b"}')
    assert read("xz_text", xz(*lines)) == [
        Record("1", "a"),
        Unreadable("name:2", "unparsable"),
        Unreadable("name:3", "invalid_utf8"),
        Unreadable("4", "not_text"),
        Unreadable("name:5", "not_text"),
        Record("6", None),
        Record("name:7", "b"),
    ]


def test_a_field_that_no_record_has_stops_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="name: no record has the field 'text'; the records have: body, id"):
        read("xz_text", xz('{"id": 1, "body": "a"}'))
    with pytest.raises(ValueError, match="no record has the field 'extract'; the records have: abstract, title"):
        read("wiki_json", json.dumps({"T": {"title": "T", "abstract": "lead"}}))


def test_a_file_of_another_kind_stops_by_name() -> None:
    with pytest.raises(ValueError, match="name: not a whole xz file"):
        read("xz_text", b"plain")
    with pytest.raises(ValueError, match="name: not a whole xz file"):
        read("xz_text", xz('{"text": "a"}')[:-8])
    with pytest.raises(ValueError, match="name: not JSON"):
        read("wiki_json", "title: text")
    with pytest.raises(ValueError, match="name: a JSON list; wiki_json wants an object"):
        read("wiki_json", "[]")


def test_an_article_is_its_title_and_lead() -> None:
    articles = {"T": {"title": "The T", "extract": "lead"}, "U": {"extract": ""}, "V": {"extract": 3}, "W": "text"}
    assert read("wiki_json", json.dumps(articles)) == [
        Record("T", "The T\n\nlead"),
        Record("U", ""),
        Unreadable("V", "not_text"),
        Unreadable("W", "not_text"),
    ]


def test_a_bible_is_cut_every_twenty_paragraphs() -> None:
    text = "\n\n".join(f"verse {i}" for i in range(45))
    records = read("bible_python", f"bible = Bible(Version.X, {text!r}, {{}})")
    assert [record.source_id for record in records] == ["name#0", "name#20", "name#40"]
    joined = "\n".join(record.text or "" for record in records if isinstance(record, Record))
    assert joined.split("\n") == [f"verse {i}" for i in range(45)]


def test_only_long_docstrings_become_documents() -> None:
    long, short = "word " * 90 + "end", "short"
    code = f'"""{long} of a module"""\nclass C:\n    """{short}"""\n    async def f(self):\n        """{long} of a method"""\n'
    assert read("docstrings", code) == [Record("name::0", f"{long} of a module"), Record("name:f:4", f"{long} of a method")]


def test_docstrings_are_found_wherever_a_definition_can_stand() -> None:
    doc = f'"""{"word " * 90}{{}}"""'
    code = (
        f"try:\n    def a(): {doc.format('a')}\nexcept E:\n    def b(): {doc.format('b')}\n"
        f"else:\n    def c(): {doc.format('c')}\n"
        f"match x:\n    case 1:\n        with y:\n            class D:\n                {doc.format('d')}\n"
        f"                async def e(s): {doc.format('e')}\n"
    )
    assert [record.source_id.split(":")[1] for record in read("docstrings", code)] == ["a", "c", "b", "D", "e"]


def test_topics_come_in_name_order() -> None:
    assert read("topics_python", "# made by Sphinx\ntopics = {'b': 'B' 'b', 'a': 'A'}") == [Record("a", "A"), Record("b", "Bb")]


def test_a_description_is_the_body_after_the_headers() -> None:
    assert read("metadata", "Metadata-Version: 2.1\nName: x\n\n# x\n\nbody: y\n") == [Record("name", "# x\n\nbody: y\n")]
    assert read("metadata", "Metadata-Version: 2.1\nName: x\n") == [Record("name", "")]
