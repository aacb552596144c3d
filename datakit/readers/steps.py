"""The steps of a source, between its reader and its content ids: blocks of datatrove, and redactions.

A step judges or changes one record at a time, in this process. No record's outcome depends on the records before it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from datakit.readers.conversations import CONVERSATION_FIELD
from datakit.readers.datatrove_steps import block_step
from datakit.readers.pairs import PREFERENCE_FIELD
from datakit.readers.redact import redactor
from datakit.sources.record import Record, Step, Unreadable, text_fault
from datakit.sources.redaction import Redaction
from datakit.sources.source import SourceStep


def prepared(steps: Sequence[SourceStep], redacted: Counter[str] | None = None) -> list[Step]:
    """Return the steps, ready to be called on a record with a text. Redactions add their placeholders by kind to
    `redacted`.

    Raises: what `datatrove_steps.block_step` and `redact.redactor` raise.
    """
    counts = Counter[str]() if redacted is None else redacted
    return [
        _guarded(step.name, _redaction(step, counts) if isinstance(step, Redaction) else block_step(step)) for step in steps
    ]


def after(steps: Sequence[Step], records: Iterable[Record | Unreadable]) -> Iterator[Record | Unreadable]:
    """Yield records as the steps leave them, one for each input. A record without usable text passes through to its own
    drop.
    """
    for record in records:
        for step in steps:
            if isinstance(record, Unreadable) or text_fault(record.text):
                break
            record = step(record)
        yield record


def _redaction(step: Redaction, counts: Counter[str]) -> Step:
    redact = redactor(step)

    def change(record: Record) -> Record:
        text, found = redact(record.text or "")
        counts.update(found)
        return replace(record, text=text) if found else record

    return change


def _guarded(name: str, step: Step) -> Step:
    """Stop at a conversation or pair whose text a step changes: `Source` refuses what it can tell from the format."""

    def guarded(record: Record) -> Record | Unreadable:
        left = step(record)
        if isinstance(left, Record) and left.text != record.text and {CONVERSATION_FIELD, PREFERENCE_FIELD} & {*record.fields}:
            raise ValueError(
                f"step {name} takes text out of record {record.source_id}, a conversation or a pair, whose tokens are made of "
                "its messages and would hold it still; leave the step out"
            )
        return left

    return guarded
