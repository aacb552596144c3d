"""When a run is asked to save or to leave, and how all its processes come to act on it at the same step.

SIGTERM, or a clock, asks one process at some moment; the others may be a step ahead or behind. So what each process wishes
rides along with its steps: a number a device, their maximum on the device, read by everybody together with the metrics of that
step. Nothing waits for it, and all processes read the same wish at the same step. (JAX has a preemption service that does the
first half; it must be polled every step, and a process that does not swallows the signal: research/cluster.md, 5.2. It is
switched off where processes meet.)
"""

import logging
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from trainer.mesh import Layout

log = logging.getLogger("trainer")

LEFT = 143
"""Exit code of a run that SIGTERM ended after it had saved: the one that JobSets restart free of charge
(`resources.manifests.SAVED_AND_LEFT`)."""


class PreemptedError(Exception):
    """The run was asked to leave; what it had done is saved."""


@dataclass
class Stop:
    """Whether somebody asked this process to leave."""

    asked: threading.Event = field(default_factory=threading.Event)

    def listen(self) -> None:
        """From now on SIGTERM asks."""
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, *_: object) -> None:
        self.asked.set()  # nothing else: a handler runs between any two instructions


class Wish(NamedTuple):
    """What is asked at a step; over processes, the largest of each."""

    leave: int = 0
    save: int = 0
    hurry: int = 0
    """How many steps earlier than usual metrics are to be read: slow steps must not eat the grace period."""


@dataclass(frozen=True)
class Agreement:
    """Wishes of all processes, a step at a time."""

    layout: Layout

    def of(self, wish: Wish) -> "Wish | jax.Array":
        """Start to agree on this step's wish; `read` it later. Called by every process for every step."""
        if jax.process_count() == 1:
            return wish
        devices = self.layout.mesh.devices.size
        sharding = NamedSharding(self.layout.mesh, PartitionSpec(self.layout.mesh.axis_names, None))
        mine = np.array([wish], np.int32)
        spread = jax.make_array_from_callback((devices, len(wish)), sharding, lambda index: mine)
        return _largest(spread)


def read_wish(agreed: "Wish | jax.Array") -> Wish:
    """What was agreed; waits for the other processes' step."""
    return agreed if isinstance(agreed, Wish) else Wish(*(int(value) for value in np.asarray(agreed)))


def either(wishes: Sequence[Wish]) -> Wish:
    """The largest of each."""
    return Wish(*(max(values) for values in zip(*wishes, strict=True)))


@jax.jit
def _largest(wishes: jax.Array) -> jax.Array:
    return wishes.max(axis=0)
