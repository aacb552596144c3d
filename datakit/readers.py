"""Readers: one a format, from a raw file to records. A record is text and where in the source it came from.

A reader yields what the file holds and judges nothing but its own format; empty or broken texts are dropped, counted and
named by `datakit.normalize`.
"""

import ast
import email
import json
import lzma
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from datakit.html_text import html_to_text
from datakit.sources import Format

PARAGRAPHS_PER_DOCUMENT = 20
MIN_DOCSTRING_CHARS = 400


@dataclass(frozen=True)
class Record:
    """One would-be document. `text` None: the file has a place for it and nothing there."""

    source_id: str
    text: str | None


@dataclass(frozen=True)
class Undecodable:
    """A file that is not UTF-8: a drop with a reason, never an exception."""

    source_id: str


type Reader = Callable[[str, bytes], Iterator[Record | Undecodable]]


def read_file(format: Format, name: str, path: Path) -> Iterator[Record | Undecodable]:
    """Records of one raw file; `name` is its path below the artifact's `files/`."""
    yield from READERS[format](name, path.read_bytes())


def _decoded(name: str, content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _whole_file(convert: Callable[[str], str]) -> Reader:
    def reader(name: str, content: bytes) -> Iterator[Record | Undecodable]:
        text = _decoded(name, content)
        yield Undecodable(name) if text is None else Record(name, convert(text))

    return reader


def _xz_text(name: str, content: bytes) -> Iterator[Record | Undecodable]:
    """An xz file of documents, one JSON object `{"id", "text"}` a line."""
    for line in lzma.decompress(content).splitlines():
        record = json.loads(line)
        yield Record(str(record["id"]), record["text"])


def _wiki_json(name: str, content: bytes) -> Iterator[Record]:
    """A JSON object from title to `{title, extract, ...}`: the title, a blank line, the lead.

    Raises: ValueError when no record has the field `extract`, naming the fields there are.
    """
    articles = json.loads(content)
    with_text = 0
    for title, article in articles.items():
        extract = article.get("extract")
        with_text += extract is not None
        yield Record(title, f"{article.get('title', title)}\n\n{extract}" if extract else None)
    if articles and not with_text:
        fields = sorted({field for article in articles.values() for field in article})
        raise ValueError(f"{name}: no record has the field 'extract'; the records have: {', '.join(fields)}")


def _bible_python(name: str, content: bytes) -> Iterator[Record]:
    """The text is the second argument of `Bible(...)`; it is cut into documents of 20 paragraphs. Nothing is executed."""
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Bible":
            text = ast.literal_eval(node.args[1])
            paragraphs = [paragraph for paragraph in text.split("\n") if paragraph.strip()]
            for start in range(0, len(paragraphs), PARAGRAPHS_PER_DOCUMENT):
                yield Record(f"{name}#{start}", "\n".join(paragraphs[start : start + PARAGRAPHS_PER_DOCUMENT]))


def _docstrings(name: str, content: bytes) -> Iterator[Record | Undecodable]:
    """Docstrings of more than 400 characters, of a module and everything in it."""
    source = _decoded(name, content)
    if source is None:
        yield Undecodable(name)
        return
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented):
            text = ast.get_docstring(node)
            if text and len(text) > MIN_DOCSTRING_CHARS:
                yield Record(f"{name}:{getattr(node, 'name', '')}:{getattr(node, 'lineno', 0)}", text)


def _topics_python(name: str, content: bytes) -> Iterator[Record]:
    """`pydoc_data/topics.py` is one dict from topic to text; read as a literal, not imported."""
    for node in ast.parse(content).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics: Mapping[str, str] = ast.literal_eval(node.value)
            for topic in sorted(topics):
                yield Record(topic, topics[topic])


def _metadata(name: str, content: bytes) -> Iterator[Record | Undecodable]:
    """The body of a distribution's METADATA: its long description."""
    text = _decoded(name, content)
    if text is None:
        yield Undecodable(name)
        return
    body = email.message_from_string(text).get_payload()
    yield Record(name, body if isinstance(body, str) else None)


READERS: Mapping[Format, Reader] = {
    "text": _whole_file(lambda text: text),
    "python": _whole_file(lambda text: text),
    "html": _whole_file(html_to_text),
    "wiki_json": _wiki_json,
    "bible_python": _bible_python,
    "docstrings": _docstrings,
    "topics_python": _topics_python,
    "metadata": _metadata,
    "xz_text": _xz_text,
}
