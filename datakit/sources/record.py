"""What a reader yields: a record, or the place where one should be and cannot be had."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from unicodedata import category

LONE_SURROGATE = "lone_surrogate"
INVISIBLE = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})
"""Categories of Unicode: controls, marks of format, spaces."""


@dataclass(frozen=True)
class Record:
    """One would-be document. `text` None: the file has a place for it and nothing there."""

    source_id: str
    text: str | None
    fields: Mapping[str, str] = field(default_factory=dict)
    """What the source's format keeps of it beside the text."""


@dataclass(frozen=True)
class Unreadable:
    """A place where a text should be and cannot be had, or is not wanted: a drop with its reason, never an exception."""

    source_id: str
    reason: str
    """A name that is counted: `invalid_utf8`, `not_selected`, `gopher_quality:gopher_short_doc`."""

    text: str | None = None
    """What was there, where a step judged it: the first of every reason are shown."""


def is_damage(error: Exception) -> bool:
    """Whether an error that a decoder raised tells of the file's bytes.

    An OSError with a number (EIO, EMFILE, ESTALE) is the machine's: it may pass when the file is read again.
    """
    return not isinstance(error, OSError) or error.errno is None


def text_fault(text: str | None) -> str:
    """Why a text cannot be a document, else "": `empty`, `whitespace_only`, `no_visible_character`, `lone_surrogate`."""
    fault = blank_fault(text)
    return fault if fault or text is None or utf8(text) is not None else LONE_SURROGATE


def blank_fault(text: str | None) -> str:
    """`empty`, `whitespace_only` or `no_visible_character` (spaces, controls, marks of format: a BOM alone), else ""."""
    if not text:
        return "empty"
    if text.isspace():
        return "whitespace_only"
    return "" if any(category(character) not in INVISIBLE for character in text) else "no_visible_character"


def utf8(text: str) -> bytes | None:
    """A text's UTF-8; None for one with lone surrogates, which are all that it cannot hold."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None
