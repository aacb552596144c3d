"""Requests to save or to stop, and how all processes of a run act on them at the same step.

SIGTERM or a clock reaches one process at some moment; the others may be a step ahead or behind. So each step carries each
process's request: one number a device, reduced to their maximum on the devices, and read with the metrics of that step.
Nothing waits for it, and all processes read the same request at the same step. JAX has a preemption service that does the first
half, but a process that does not poll it at every step loses the signal; it is switched off (`trainer.processes`).
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

from trainer.spec.mesh import Layout

log = logging.getLogger("trainer")

LEFT = 143
"""Exit code of a run that saved and stopped after SIGTERM. JobSets restart it without counting a failure
(`resources.manifests.SAVED_AND_LEFT`)."""


class PreemptedError(Exception):
    """The run was asked to stop; its state is saved."""


@dataclass
class Stop:
    """Whether this process was asked to stop."""

    requested: threading.Event = field(default_factory=threading.Event)

    def listen(self) -> None:
        """Handle SIGTERM as a request to stop."""
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, *_: object) -> None:
        self.requested.set()  # and no more: a handler runs between any two instructions


class StopRequest(NamedTuple):
    """What a process requests at a step; over processes, the maximum of each field."""

    leave: int = 0
    save: int = 0
    hurry: int = 0
    """How many steps earlier than usual to read metrics: slow steps must not use up the grace period."""


@dataclass(frozen=True)
class Agreement:
    """Combines the requests of all processes, step by step."""

    layout: Layout

    def of(self, request: StopRequest) -> "StopRequest | jax.Array":
        """Start to combine this step's requests; `read_request` gives the result. Every process calls it at every step."""
        if jax.process_count() == 1:
            return request
        devices = self.layout.mesh.devices.size
        sharding = NamedSharding(self.layout.mesh, PartitionSpec(self.layout.mesh.axis_names, None))
        local_request = np.array([request], np.int32)
        spread = jax.make_array_from_callback((devices, len(request)), sharding, lambda index: local_request)
        return _largest(spread)


def read_request(agreed: "StopRequest | jax.Array") -> StopRequest:
    """The combined request; waits for that step of the other processes."""
    return agreed if isinstance(agreed, StopRequest) else StopRequest(*(int(value) for value in np.asarray(agreed)))


def merge(requests: Sequence[StopRequest]) -> StopRequest:
    """The maximum of each field."""
    return StopRequest(*(max(values) for values in zip(*requests, strict=True)))


@jax.jit
def _largest(requests: jax.Array) -> jax.Array:
    return requests.max(axis=0)
