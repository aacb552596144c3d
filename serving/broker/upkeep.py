"""The periodic sweep of a broker: requeue expired leases, and end requests that no worker can answer."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

log = logging.getLogger("serving.broker")
SWEEP_SECONDS = 0.2
LONGEST_SILENCE = 10.0
"""Seconds without a sweep after which the broker is unhealthy, because leases do not expire."""


@dataclass
class Upkeep:
    """Sweeps periodically and records failures."""

    sweep: Callable[[float], Awaitable[None]]
    """Performs one sweep, given the time in seconds since 1970."""
    on_fault: Callable[[BaseException], None]
    """Called when a defect ends the sweeps."""
    swept: float = field(default_factory=time.monotonic)
    fault: Exception | None = None

    async def run(self) -> None:
        """Sweep until cancelled. Logs and retries while the file cannot be written (full disk, lock); other faults end it."""
        try:
            while True:
                await asyncio.sleep(SWEEP_SECONDS)
                try:
                    await self.sweep(time.time())
                except sqlite3.OperationalError as fault:
                    log.warning("leases cannot expire now: %s", fault)
                    self.fault = fault
                else:
                    self.swept, self.fault = time.monotonic(), None
        except Exception as fault:
            log.exception("the sweep of leases crashed")
            self.fault = fault
            self.on_fault(fault)

    def trouble(self) -> str | None:
        """Return why the broker is unhealthy; None if it is healthy."""
        silence = time.monotonic() - self.swept
        if self.fault is not None:
            return f"no sweep since {silence:.1f} s: {self.fault!r}"
        return f"no sweep since {silence:.1f} s" if silence > LONGEST_SILENCE else None
