"""Readers, one for each format: from a raw file to records. A record is a text and where in the source it came from.

A reader yields what the file holds and checks nothing but its own format. `datakit.documents.normalize` drops empty and
broken texts, and counts and names them.
"""

import ast
import email
import json
import lzma
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml

from datakit.readers.commits import read_commits
from datakit.readers.conversations import conversation_record
from datakit.readers.html_text import html_to_text
from datakit.readers.lines import Span
from datakit.readers.page_encoding import marked_text
from datakit.readers.record_files import read_records
from datakit.readers.web_archives import read_warc
from datakit.sources.record import Record, Unreadable
from datakit.sources.source import Format, Records

PARAGRAPHS_PER_DOCUMENT = 20
MIN_DOCSTRING_CHARS = 400
PASSAGE_CHARS = 2_000
MAX_PASSAGE_CHARS = 8_000
XZ_BYTES = 1 << 16
"""Bytes read at once."""
MAX_YAML_DEPTH = 100
"""Deepest nesting that is read. A corpus has 4. Ten thousand levels end the process with a segmentation fault."""
NO_ZERO = re.compile(rb"[^\0]")
CHATTERBOT_ROLES = ("user", "assistant")


type Reader = Callable[[str, bytes], Iterator[Record | Unreadable]]


def read_file(format: Format | Records, name: str, path: Path, span: Span | None = None) -> Iterator[Record | Unreadable]:
    """Yield records of one raw file, or of a span of a record file; `name` is its path below the artifact's `files/`."""
    if isinstance(format, Records):
        yield from read_records(format, name, path, span)
    elif format == "warc":
        yield from read_warc(name, path)
    elif format == "commits":
        yield from read_commits(name, path)
    else:
        yield from READERS[format](name, path.read_bytes())


def _decoding(read: Callable[[str, str], Iterator[Record | Unreadable]]) -> Reader:
    """Make a reader of bytes from a reader of text: a file that is not UTF-8 is one drop. A byte order mark is not
    text.
    """

    def reader(name: str, content: bytes) -> Iterator[Record | Unreadable]:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            yield Unreadable(name, "invalid_utf8")
            return
        yield from read(name, text)

    return reader


def _parsing(read: Callable[[str, ast.Module], Iterator[Record | Unreadable]]) -> Reader:
    """Make a reader of bytes from a reader of Python syntax: a file that this Python cannot parse is one drop."""

    def parsed(name: str, code: str) -> Iterator[Record | Unreadable]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "invalid escape sequence" warnings concern the author of the file.
                tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # null bytes; a source too deep for the parser's stack
            yield Unreadable(name, "unparsable")
            return
        yield from read(name, tree)

    return _decoding(parsed)


def _record(source_id: str, text: object) -> Record | Unreadable:
    if text is None or isinstance(text, str):
        return Record(source_id, text)
    return Unreadable(source_id, "not_text")


def _whole_file(name: str, text: str) -> Iterator[Record]:
    yield Record(name, text)


def _passages(name: str, text: str) -> Iterator[Record]:
    """Cut a long text into documents of at least 2,000 characters with their line ends, at blank lines, or after 8,000 at any.

    Only the last may be shorter.
    """
    lines, start, size = list[str](), 0, 0
    for number, line in enumerate(text.splitlines(keepends=True)):
        lines.append(line)
        size += len(line)
        if size >= PASSAGE_CHARS and (not line.strip() or size >= MAX_PASSAGE_CHARS):
            yield Record(f"{name}#{start}", "".join(lines).strip())
            lines, start, size = [], number + 1, 0
    if lines:
        yield Record(f"{name}#{start}", "".join(lines).strip())


def _html(name: str, content: bytes) -> Iterator[Record | Unreadable]:
    """Read a page; if it is not UTF-8, by the encoding that it declares."""
    page = marked_text(content)
    yield Unreadable(name, "invalid_utf8") if page is None else Record(name, html_to_text(page))


def _xz_text(name: str, content: bytes) -> Iterator[Record | Unreadable]:
    """Read an xz file of documents, one JSON object `{"id", "text"}` a line.

    Raises: ValueError if the file is not xz, or if no line has the field `text`, naming the fields there are.
    """
    try:
        lines = _unpacked(content).splitlines()
    except (lzma.LZMAError, EOFError) as error:
        raise ValueError(f"{name}: not a whole xz file ({error}); fetch or restore it") from error
    fields: set[str] = set()
    for number, line in enumerate(lines):
        place = f"{name}:{number + 1}"
        try:
            record = json.loads(line)
        except UnicodeDecodeError:
            yield Unreadable(place, "invalid_utf8")
            continue
        except (ValueError, RecursionError):  # Not JSON, or a number with more digits than Python reads.
            yield Unreadable(place, "unparsable")
            continue
        if not isinstance(record, dict):
            yield Unreadable(place, "not_text")
            continue
        fields |= set(record)
        yield _record(str(record.get("id", place)), record.get("text"))
    _check_field(name, "text", fields)


def _unpacked(content: bytes) -> bytes:
    """Decompress every stream of an xz file, without the zeros after them. Python's own function stops silently at
    invalid data.
    """
    if not content:
        raise EOFError("it is empty")
    pieces, at = list[bytes](), 0
    while at < len(content):
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        while not decoder.eof:
            piece = content[at : at + XZ_BYTES]
            if not piece:
                raise EOFError("it ends in mid-stream")
            pieces.append(decoder.decompress(piece))
            at += len(piece) - len(decoder.unused_data)
        nonzero = NO_ZERO.search(content, at)
        at = nonzero.start() if nonzero else len(content)
    return b"".join(pieces)


class _Object(dict[str, object]):
    """A JSON object that keeps all values of repeated names; a dict keeps the last."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def _wiki_json(name: str, text: str) -> Iterator[Record | Unreadable]:
    """Read a JSON object from title to `{title, extract, ...}`: the title, a blank line, the lead.

    Raises: ValueError if the file is no JSON object, or if no article has the field `extract`, naming the fields there
    are.
    """
    try:
        articles = json.loads(text, object_pairs_hook=_Object)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: not JSON ({error}); is it the file that the source means?") from error
    if not isinstance(articles, _Object):
        raise ValueError(f"{name}: a JSON {type(articles).__name__}; wiki_json wants an object from title to article")
    fields: set[str] = set()
    for title, article in articles.pairs:
        if not isinstance(article, dict):
            yield Unreadable(title, "not_text")
            continue
        fields |= set(article)
        extract = article.get("extract")
        whole = f"{article.get('title', title)}\n\n{extract}" if extract and isinstance(extract, str) else extract
        yield _record(title, whole)
    _check_field(name, "extract", fields)


def _check_field(name: str, wanted: str, fields: set[str]) -> None:
    """One record without the field is a drop; a file where none has it is another format, or the field is misspelt."""
    if fields and wanted not in fields:
        raise ValueError(f"{name}: no record has the field {wanted!r}; the records have: {', '.join(sorted(fields))}")


def _bible_python(name: str, tree: ast.Module) -> Iterator[Record | Unreadable]:
    """Read the second argument of `Bible(...)`, cut into documents of 20 paragraphs. Nothing is executed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Bible" and len(node.args) > 1:
            text = _literal(node.args[1])
            if not isinstance(text, str):
                yield Unreadable(f"{name}:{node.lineno}", "not_text")
                continue
            paragraphs = [paragraph for paragraph in text.split("\n") if paragraph.strip()]
            for start in range(0, len(paragraphs), PARAGRAPHS_PER_DOCUMENT):
                yield Record(f"{name}#{start}", "\n".join(paragraphs[start : start + PARAGRAPHS_PER_DOCUMENT]))


def _docstrings(name: str, tree: ast.Module) -> Iterator[Record]:
    """Read docstrings of more than 400 characters, of a module and everything in it."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in _statements(tree):
        if isinstance(node, documented):
            text = ast.get_docstring(node)
            if text and len(text) > MIN_DOCSTRING_CHARS:
                yield Record(f"{name}:{getattr(node, 'name', '')}:{getattr(node, 'lineno', 0)}", text)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Walk as `ast.walk`, in its order, without expressions: no definition is below one, and they are most of the
    nodes.
    """
    pending: deque[ast.AST] = deque([tree])
    while pending:
        node = pending.popleft()
        pending.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
        yield node


def _literal(node: ast.expr) -> object:
    """Return the value of a literal expression, else None."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError):  # TypeError: a key that is not hashable.
        return None


def _topics_python(name: str, tree: ast.Module) -> Iterator[Record | Unreadable]:
    """Read `pydoc_data/topics.py`, one dict from topic to text; it is parsed as a literal, not imported."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            topics = _literal(node.value)
            if not isinstance(topics, dict):
                yield Unreadable(f"{name}:{node.lineno}", "unparsable")
                continue
            for topic in sorted(topics, key=str):
                yield _record(str(topic), topics[topic])


def _metadata(name: str, text: str) -> Iterator[Record | Unreadable]:
    """Read the body of a distribution's METADATA: its long description."""
    yield _record(name, email.message_from_string(text).get_payload())


def _chatterbot_yaml(name: str, text: str) -> Iterator[Record | Unreadable]:
    """Read a corpus of the ChatterBot project: `conversations`, lists of utterances in which user and assistant take
    turns.

    Raises: ValueError if the file is no YAML, or has no list `conversations`.
    """
    try:
        _check_depth(name, text)
        whole = yaml.load(text, Loader=yaml.CBaseLoader)  # Every scalar is a string: "Yes" is an answer and not a boolean.
    except yaml.YAMLError as error:
        raise ValueError(f"{name}: not YAML ({error}); is it the file that the source means?") from error
    conversations = whole.get("conversations") if isinstance(whole, dict) else None
    if not isinstance(conversations, list):
        raise ValueError(f"{name}: no list of `conversations`; is it a corpus of ChatterBot?")
    for number, utterances in enumerate(conversations, start=1):
        turns = utterances if isinstance(utterances, list) else None
        messages = turns and [{"role": CHATTERBOT_ROLES[i % 2], "content": turn} for i, turn in enumerate(turns)]
        yield conversation_record(f"{name}:{number}", messages)


def _check_depth(name: str, text: str) -> None:
    """Refuse lists nested thousands deep: the loader is recursive and would overrun the stack. Raises: ValueError."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CBaseLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_YAML_DEPTH:
            raise ValueError(f"{name}: more than {MAX_YAML_DEPTH} lists in each other; is it a corpus of ChatterBot?")


READERS: Mapping[Format, Reader] = {
    "text": _decoding(_whole_file),
    "passages": _decoding(_passages),
    "markdown": _decoding(_whole_file),
    "python": _decoding(_whole_file),
    "html": _html,
    "wiki_json": _decoding(_wiki_json),
    "bible_python": _parsing(_bible_python),
    "docstrings": _parsing(_docstrings),
    "topics_python": _parsing(_topics_python),
    "metadata": _decoding(_metadata),
    "xz_text": _xz_text,
    "chatterbot_yaml": _decoding(_chatterbot_yaml),
}
