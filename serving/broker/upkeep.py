"""What a broker does unasked, for as long as it runs: leases that ran out wait again, requests that cannot be answered end."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

log = logging.getLogger("serving.broker")
SWEEP_SECONDS = 0.2
LONGEST_SILENCE = 10.0
"""After so many seconds without a sweep the broker is not well: leases would not run out."""


@dataclass
class Upkeep:
    """Sweeps again and again, and knows how that goes."""

    sweep: Callable[[float], Awaitable[None]]
    """One sweep, at a time in seconds since 1970."""
    on_fault: Callable[[BaseException], None]
    """Told when there will be no further sweep, for a fault that is ours."""
    swept: float = field(default_factory=time.monotonic)
    fault: Exception | None = None

    async def run(self) -> None:
        """A file that cannot be written now (a full disk, a lock) is tried again and told; any other fault ends it."""
        try:
            while True:
                await asyncio.sleep(SWEEP_SECONDS)
                try:
                    await self.sweep(time.time())
                except sqlite3.OperationalError as fault:
                    log.warning("leases cannot run out now: %s", fault)
                    self.fault = fault
                else:
                    self.swept, self.fault = time.monotonic(), None
        except Exception as fault:
            log.exception("leases run out no more")
            self.fault = fault
            self.on_fault(fault)

    def trouble(self) -> str | None:
        """Why the broker is not well."""
        silence = time.monotonic() - self.swept
        if self.fault is not None:
            return f"no sweep since {silence:.1f} s: {self.fault!r}"
        return f"no sweep since {silence:.1f} s" if silence > LONGEST_SILENCE else None
