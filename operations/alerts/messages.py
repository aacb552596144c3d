"""Messages about incidents, as text, and the limit on their number."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field

from operations.alerts.incidents import Change
from operations.secrets import without_secrets

MAX_AN_HOUR = 10
"""Messages to one channel in an hour, including the digest."""
MAX_EVIDENCE = 1_500
"""Characters of a piece of evidence in a message; the end is kept, because errors are there."""
LISTED = 20


@dataclass(frozen=True)
class Message:
    """What is sent about one incident, or about several (`incidents` names all)."""

    what: str
    """`opened`, `closed` or `digest`."""
    title: str
    text: str
    incidents: tuple[str, ...] = field(default=())


def message_of(change: Change) -> Message:
    """Return the message of one change, with its evidence and without secrets: errors may quote them, issues may be public."""
    incident, finding = change.incident, change.incident.finding
    summary = without_secrets(finding.summary)
    if change.what == "closed":
        text = f"{summary}\nopened {incident.opened}, gone {incident.closed}"
        return Message("closed", f"recovered: {finding.kind} {finding.subject}", text, (incident.id,))
    lines = [summary, f"since {incident.opened}", f"see: {finding.command}"]
    lines.append(f"what to do: docs/runbook.md#{finding.kind.replace('_', '-')}")  # first: a channel may cut a long message
    for title, evidence in finding.evidence.items():
        lines.append(f"\n{title}:\n{without_secrets(evidence)[-MAX_EVIDENCE:]}")
    return Message("opened", f"{finding.kind}: {finding.subject}", "\n".join(lines), (incident.id,))


def limited(messages: Sequence[Message], sent: Sequence[str], now: datetime.datetime) -> list[Message]:
    """Return at most what may still be sent this hour: the first messages, and one digest of the others.

    `sent`: when messages were sent to the channel before.
    """
    hour_ago = (now - datetime.timedelta(hours=1)).isoformat(timespec="seconds")
    free = MAX_AN_HOUR - sum(when > hour_ago for when in sent)
    if len(messages) <= free:
        return list(messages)
    if free <= 0:
        return []
    first, others = list(messages[: free - 1]), messages[free - 1 :]
    lines = [f"{message.title}: {message.text.splitlines()[0]}" for message in others[:LISTED]]
    if len(others) > LISTED:
        lines.append(f"and {len(others) - LISTED} more: ./marin status")
    names = tuple(name for message in others for name in message.incidents)
    return [*first, Message("digest", f"{len(others)} more incidents", "\n".join(lines), names)]
