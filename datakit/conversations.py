"""Conversations as documents: a text that people and filters can read, and the messages themselves beside it.

The text (`role: content`, a paragraph a message) is what is hashed, deduplicated, decontaminated and judged, as in any
document. The messages stay in the document's metadata as canonical JSON, from which a cache of format `chat` is made. Two
conversations with equal text are one document; the first one's messages are kept.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from datakit.record import Record, Unreadable

CONVERSATION_FIELD = "conversation"


def conversation_record(
    source_id: str, messages: object, fields: Mapping[str, str] | None = None, tools: object = None
) -> Record | Unreadable:
    """The document of a list of messages `{"role": ..., "content": ...}`; other fields of a message are kept for the template.

    A message without content needs another field that says something (a tool call). Content in parts is taken where all
    parts are text. Anything else is `not_messages`.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        return Unreadable(source_id, "not_messages")
    cleaned = [_message(message) for message in messages]
    if any(message is None for message in cleaned):
        return Unreadable(source_id, "not_messages")
    whole: dict[str, Any] = {"messages": cleaned}
    if tools:
        whole["tools"] = json.loads(tools) if isinstance(tools, str) else tools
    text = "\n\n".join(f"{message['role']}: {message['content']}" for message in cleaned if message is not None)
    canonical = json.dumps(whole, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return Record(source_id, text, {**(fields or {}), CONVERSATION_FIELD: canonical})


def _message(message: object) -> dict[str, Any] | None:
    """A message with a role and a text, or None."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or not message["role"]:
        return None
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(part, Mapping) and part.get("type") == "text" for part in content):
        content = "".join(str(part.get("text", "")) for part in content)
    if content is None and any(value for name, value in message.items() if name not in ("role", "content")):
        content = ""
    return {**message, "content": content} if isinstance(content, str) else None
