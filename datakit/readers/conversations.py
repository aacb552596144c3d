"""Conversations as documents: a text that people and filters can read, and the messages themselves beside it.

The text has one paragraph for each message (`role: content`), and below it what the message calls or thinks. As in any
document, this text is hashed, deduplicated, decontaminated and judged. Line feeds in it stay line feeds: in JSON a line
feed is two characters, the second becomes a letter of the next word, and 73 of 100 leaked questions with five words a
line were not found. The document's metadata keeps the messages as canonical JSON, from which a cache of format `chat`
is made. Two conversations with equal text are one document; the messages of the first are kept.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from datakit.sources.record import Record, Unreadable, text_fault, utf8

CONVERSATION_FIELD = "conversation"
SAID = ("reasoning_content", "reasoning", "thinking", "tool_calls", "function_call")
"""Fields besides the content that templates turn into tokens: conversations that differ in them are different."""
MAX_DEPTH = 32
"""Depth to which a call is written as text; deeper values are written as JSON."""


def conversation_record(
    source_id: str, messages: object, fields: Mapping[str, str] | None = None, tools: object = None
) -> Record | Unreadable:
    """Return the document of a list of messages `{"role": ..., "content": ...}`; other fields of a message are kept for
    the template.

    A message without content needs another field that says something (a tool call). Content in parts is accepted if all
    parts are text. Null fields count as absent, because columns are null where other rows have a value. Anything else
    is dropped as `not_messages`; tools that are no list (as JSON or directly) are `not_tools`; characters that UTF-8
    cannot encode are `lone_surrogate`.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        return Unreadable(source_id, "not_messages")
    cleaned = [cleaned_message(message) for message in messages]
    if any(message is None for message in cleaned):
        return Unreadable(source_id, "not_messages")
    document: dict[str, Any] = {"messages": cleaned}
    if tools:
        listed = _tools(tools)
        if listed is None:
            return Unreadable(source_id, "not_tools")
        document["tools"] = listed
    kept = canonical(document)
    if fault := text_fault(kept):
        return Unreadable(source_id, fault)
    text = "\n\n".join(readable(message) for message in cleaned if message is not None)
    return Record(source_id, text, {**(fields or {}), CONVERSATION_FIELD: kept})


def canonical(value: object) -> str:
    """Return JSON with sorted keys; values without a JSON form (a time, in a column of Parquet) become text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


def with_strings(conversation: str, change: Callable[[str], str]) -> str:
    """Change every string in a conversation's messages and tools."""

    def changed(value: Any) -> Any:
        if isinstance(value, str):
            return change(value)
        if isinstance(value, dict):
            return {name: changed(item) for name, item in value.items()}
        return [changed(item) for item in value] if isinstance(value, list) else value

    return canonical(changed(json.loads(conversation)))


def readable(message: Mapping[str, Any]) -> str:
    """Return a message as lines `role: content`, followed by what it calls and thinks."""
    lines = [line for name in sorted(SAID) if message.get(name) for line in _lines(name, message[name])]
    return "\n".join([f"{message['role']}: {message['content']}", *lines])


def _lines(place: str, value: Any, depth: int = 0) -> Iterator[str]:
    """Yield `tool_calls.0.function.name: look` for every value in a value. Texts that are JSON are taken apart too."""
    value = _taken_apart(value) if isinstance(value, str) else value
    if value and isinstance(value, Mapping | list) and depth < MAX_DEPTH:
        named = sorted(value.items()) if isinstance(value, Mapping) else enumerate(value)
        for name, item in named:
            yield from _lines(f"{place}.{name}", item, depth + 1)
    else:
        yield f"{place}: {value if isinstance(value, str) else canonical(value)}"


def _taken_apart(text: str) -> Any:
    """Return what a text says as a JSON object or list (a tool's arguments), else the text itself."""
    if not text.startswith(("{", "[")):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if utf8(canonical(value)) is not None else text


def _tools(tools: object) -> list[Any] | None:
    """Return a list of tools, given as a list or as JSON; None for anything else."""
    try:
        listed = json.loads(tools) if isinstance(tools, str) else tools
    except (ValueError, RecursionError):
        return None
    return listed if isinstance(listed, list) else None


def cleaned_message(message: object) -> dict[str, Any] | None:
    """Return a message with a role and a text, or None."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or not message["role"]:
        return None
    there = {name: value for name, value in message.items() if value is not None}
    content = there.get("content")
    if isinstance(content, list) and all(isinstance(part, Mapping) and part.get("type") == "text" for part in content):
        content = "".join(str(part.get("text", "")) for part in content)
    if content is None and any(value for name, value in there.items() if name != "role"):
        content = ""
    return {**there, "content": content} if isinstance(content, str) else None
