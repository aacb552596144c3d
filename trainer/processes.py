"""Start-up of a job that is several processes: which of them this is, and where they meet (`jax.distributed`).

Launchers say it in the environment (`resources/manifests.py`). JAX reads its number of processes from no environment variable
of its own, and finds its peers by itself on GKE TPUs alone (jax 0.10.2's source; research/cluster.md, 2.2).
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import jax
from jax.experimental import multihost_utils

log = logging.getLogger("trainer")

PROCESSES, INDEX, COORDINATOR = "MARIN_PROCESSES", "MARIN_PROCESS_INDEX", "MARIN_COORDINATOR"
GKE_TPU = "gke-tpu"
HEARTBEAT = "MARIN_HEARTBEAT_SECONDS"
HEARTBEAT_SECONDS = 60
"""A host that is lost ends its peers within that time (SIGABRT, from C++); JAX's own 100 s is paid by every chip."""


@dataclass(frozen=True)
class Gang:
    """One process of several."""

    count: int
    index: int
    coordinator: str

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(f"{INDEX} is {self.index}; {PROCESSES} is {self.count}, so it must be from 0 to {self.count - 1}")
        if ":" not in self.coordinator:
            raise ValueError(f"{COORDINATOR} is {self.coordinator!r}; it must be host:port of the first process")


def gang_of(environment: Mapping[str, str]) -> Gang | None:
    """What the environment says: None for a lone process. Raises ValueError naming the variable that is missing or odd.

    GKE's TPUs (`MARIN_PROCESSES=gke-tpu`) are no gang here: JAX asks the machine.
    """
    count = environment.get(PROCESSES, "1")
    if count in ("1", GKE_TPU):
        return None
    missing = [name for name in (INDEX, COORDINATOR) if name not in environment]
    if missing:
        raise ValueError(f"{PROCESSES} is {count}, and {missing[0]} is not set; a launcher sets all three")
    if not (count.isdecimal() and environment[INDEX].isdecimal()):
        raise ValueError(f"{PROCESSES} is {count!r} and {INDEX} is {environment[INDEX]!r}; both must be whole numbers")
    return Gang(int(count), int(environment[INDEX]), environment[COORDINATOR])


def join(environment: Mapping[str, str]) -> int:
    """Meet the other processes, if there are any; their number. Called once, before the first use of a device."""
    gang = gang_of(environment)
    if gang is not None:
        log.info("process %d of %d, meeting at %s", gang.index, gang.count, gang.coordinator)
        seconds = int(environment.get(HEARTBEAT, HEARTBEAT_SECONDS))
        jax.distributed.initialize(gang.coordinator, gang.count, gang.index, heartbeat_timeout_seconds=seconds)
        # What collectives run over is set up by the first one, for which Gloo waits 30 s: here, where all have just met,
        # and not after each has compiled for minutes (seen 2026-11-22: one had its program in the cache, the other had not).
        multihost_utils.sync_global_devices("all processes are here")
    elif environment.get(PROCESSES) == GKE_TPU:
        jax.distributed.initialize()
    return jax.process_count()
