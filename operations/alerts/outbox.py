"""The outbox: a change waits for each channel until the channel has accepted it, so an unreachable channel loses none.

The waiting changes are in the same file as the incidents. If a process is killed after it has sent a message, the next one
sends that message again.
"""

import datetime
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from lineage.artifact.store import Store
from operations.alerts.incidents import Change, Finding, State, after, changes, read_state, save_state
from operations.alerts.messages import Message, limited, message_of

log = logging.getLogger(__name__)

KEPT_TIMES = 100


class Channel(Protocol):
    """Where messages go."""

    def send(self, message: Message) -> None:
        """Send a message. Raises: OSError if the other side did not accept it."""


def tell(store: Store, channels: Mapping[str, Channel], findings: Sequence[Finding], now: datetime.datetime) -> dict[str, str]:
    """Bring incidents up to date with what is broken now, and deliver. Returns channel -> why it accepted no more."""
    state = read_state(store)
    changed = changes(state.incidents, findings, now)
    if changed:
        state = after(state, changed, list(channels), now)
        save_state(store, state)
    failed = {}
    for name, channel in channels.items():
        state, why = _deliver(store, state, name, channel, now)
        if why:
            failed[name] = why
            log.warning("alerts: channel %s accepted no message (%s); waiting messages are sent the next time", name, why)
    return failed


def _deliver(store: Store, state: State, name: str, channel: Channel, now: datetime.datetime) -> tuple[State, str]:
    """Send the changes that wait for a channel, oldest first. Returns the state afterwards, and why some still wait, if any."""
    waiting, sent = state.waiting.get(name, ()), state.sent.get(name, ())
    for message in limited([message_of(change) for change in waiting], sent, now):
        try:
            channel.send(message)
        except OSError as error:
            return state, f"{type(error).__name__}: {error}"
        sent = (*sent, now.isoformat(timespec="seconds"))[-KEPT_TIMES:]
        waiting = () if message.what == "digest" else waiting[1:]
        state = _with(state, name, waiting, sent)
        save_state(store, state)
    return state, ""


def _with(state: State, name: str, waiting: tuple[Change, ...], sent: tuple[str, ...]) -> State:
    return replace(state, waiting={**state.waiting, name: waiting}, sent={**state.sent, name: sent})
