"""What a reader yields: a record, or the place where one should be and cannot be had."""

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    """Why a text cannot be a document whoever wrote it: `empty`, `whitespace_only`, `lone_surrogate`; else ""."""
    if not text:
        return "empty"
    if text.isspace():
        return "whitespace_only"
    try:
        text.encode()  # lone surrogates are all that UTF-8 cannot hold
    except UnicodeEncodeError:
        return "lone_surrogate"
    return ""
