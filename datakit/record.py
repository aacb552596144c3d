"""What a reader yields: a record, or the place where one should be and cannot be had."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


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
    reason: Literal["invalid_utf8", "unparsable", "not_text", "not_selected", "not_html", "http_error", "not_messages"]
