"""What a reader yields: a record, or a place where a record should be and cannot be read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from unicodedata import category

LONE_SURROGATE = "lone_surrogate"
INVISIBLE = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})
"""Unicode categories that are not visible: controls, format marks, spaces."""


@dataclass(frozen=True)
class Record:
    """One candidate document. If `text` is None, the file has a place for the text and nothing there."""

    source_id: str
    text: str | None
    fields: Mapping[str, str] = field(default_factory=dict)
    """What the source's format keeps of it besides the text."""


@dataclass(frozen=True)
class Unreadable:
    """A place where a text cannot be read or is not wanted: a drop with its reason, never an exception."""

    source_id: str
    reason: str
    """The name under which it is counted: `invalid_utf8`, `not_selected`, `gopher_quality:gopher_short_doc`."""

    text: str | None = None
    """The text, if a step judged it: the first few of every reason are shown."""


type Step = Callable[[Record], Record | Unreadable]
"""Judges or changes one record, which has a text."""


def is_damage(error: Exception) -> bool:
    """Whether a decoder's error is about the file's bytes.

    An OSError with a number (EIO, EMFILE, ESTALE) is about the machine: it may pass when the file is read again.
    """
    return not isinstance(error, OSError) or error.errno is None


def text_fault(text: str | None) -> str:
    """Return why a text cannot be a document (`empty`, `whitespace_only`, `no_visible_character`, `lone_surrogate`),
    else "".
    """
    fault = blank_fault(text)
    return fault if fault or text is None or utf8(text) is not None else LONE_SURROGATE


def blank_fault(text: str | None) -> str:
    """Return `empty`, `whitespace_only` or `no_visible_character` (only spaces, controls or format marks, e.g. a BOM),
    else "".
    """
    if not text:
        return "empty"
    if text.isspace():
        return "whitespace_only"
    return "" if any(category(character) not in INVISIBLE for character in text) else "no_visible_character"


def utf8(text: str) -> bytes | None:
    """Return a text's UTF-8; None for lone surrogates, which are all that UTF-8 cannot encode."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None
