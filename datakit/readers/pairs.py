"""Preference pairs as documents: a text that people and filters can read, and the messages of both sides beside it.

The text has the prompt, the chosen answer and the rejected answer. As in any document, this text is hashed and decontaminated,
so a benchmark item is found on either side. The document's metadata keeps the messages as canonical JSON, from which a cache of
format `preferences` is made.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datakit.readers.conversations import canonical, cleaned_message, readable
from datakit.sources.record import Record, Unreadable, text_fault

PREFERENCE_FIELD = "preference"
ASSISTANT, USER = "assistant", "user"


@dataclass(frozen=True)
class Pair:
    """A prompt and two answers to it."""

    prompt: tuple[Mapping[str, Any], ...]
    chosen: Mapping[str, Any]
    rejected: Mapping[str, Any]

    @staticmethod
    def from_json(text: str | None) -> "Pair | None":
        """Build it from what `pair_record` keeps of a record; None if there is nothing."""
        if not text:
            return None
        document = json.loads(text)
        return Pair(tuple(document["prompt"]), document["chosen"], document["rejected"])


def pair_record(
    source_id: str, chosen: object, rejected: object, prompt: object = None, fields: Mapping[str, str] | None = None
) -> Record | Unreadable:
    """Return the document of a pair.

    A side is a text (what the assistant says to `prompt`), or a list of messages: the answer alone, or the whole conversation
    that the answer ends. A prompt is a text (what the user says) or a list of messages. Drops: `not_messages`, `no_prompt`,
    `prompts_differ`, `no_answer` (a side does not end with an assistant's message), `empty_side`, `equal_sides`, and the
    faults of characters that `conversation_record` names.
    """
    sides = [_messages(side, ASSISTANT) for side in (chosen, rejected)]
    before = () if prompt is None else _messages(prompt, USER)
    if before is None or any(side is None for side in sides):
        return Unreadable(source_id, "not_messages")
    ends = [side[-1] for side in sides if side]
    starts = [side[:-1] or before for side in sides if side]
    if len(ends) < 2 or any(not str(end["content"]).strip() for end in ends):
        return Unreadable(source_id, "empty_side")
    if any(end["role"] != ASSISTANT for end in ends):
        return Unreadable(source_id, "no_answer")
    if starts[0] != starts[1]:
        return Unreadable(source_id, "prompts_differ")
    if not starts[0]:
        return Unreadable(source_id, "no_prompt")
    if ends[0] == ends[1]:
        return Unreadable(source_id, "equal_sides")
    document = {"prompt": list(starts[0]), "chosen": ends[0], "rejected": ends[1]}
    kept = canonical(document)
    if fault := text_fault(kept):
        return Unreadable(source_id, fault)
    text = "\n\n".join([*map(readable, starts[0]), readable(ends[0]), readable(ends[1])])
    return Record(source_id, text, {**(fields or {}), PREFERENCE_FIELD: kept})


def _messages(value: object, role: str) -> tuple[Mapping[str, Any], ...] | None:
    """Return a text as the one message of a role, or a list of messages; None for anything else."""
    if isinstance(value, str):
        return ({"role": role, "content": value},)
    if not isinstance(value, Sequence):
        return None
    cleaned = [cleaned_message(message) for message in value]
    return None if any(message is None for message in cleaned) else tuple(m for m in cleaned if m is not None)
