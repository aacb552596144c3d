"""Start a job of several processes: which process this is, and where they meet (`jax.distributed`).

Launchers set it in the environment (`resources/manifests.py`); on TPU slices GKE's webhook does, and JAX can read that itself.
It is read here anyway: for a single slice JAX asks the metadata server for the variables of several slices, six times each, and
does not start if that server is unreachable (jax 0.11.2; github.com/jax-ml/jax/issues/40854).
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial

import jax
from jax.experimental import multihost_utils

from trainer.signals import LEFT, Stop

log = logging.getLogger("trainer")

PROCESSES, INDEX, COORDINATOR = "MARIN_PROCESSES", "MARIN_PROCESS_INDEX", "MARIN_COORDINATOR"
GKE_TPU = "gke-tpu"
TPU_PORT = 8482
"""Port of the first host; JAX uses the same."""
HEARTBEAT = "MARIN_HEARTBEAT_SECONDS"
HEARTBEAT_SECONDS = 60
"""A lost host ends its peers within this time (SIGABRT from C++). JAX's default of 100 s would keep all chips idle."""
GATHER = "MARIN_GATHER_SECONDS"
GATHER_SECONDS = 900
"""How long the first process waits for the last: long enough to pull an image, too short for a node to be provisioned."""
JAX_LATER_SECONDS = 300
"""JAX's own timeout is this much later than ours, because it ends the process from C++ with another message."""
LOOK_SECONDS = 0.2


class NotMetError(RuntimeError):
    """The processes of a job did not meet: this one was asked to stop meanwhile (`code` 143), or waited too long."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


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
    """The process that the environment describes; None for a single process, or if GKE set nothing on a TPU host.

    Raises: ValueError naming a variable that is missing or wrong.
    """
    count = environment.get(PROCESSES, "1")
    if count == "1":
        return None
    if count == GKE_TPU:
        return _of_slices(environment)
    missing = [name for name in (INDEX, COORDINATOR) if name not in environment]
    if missing:
        raise ValueError(f"{PROCESSES} is {count}, but {missing[0]} is not set; a launcher must set all three")
    if not (count.isdecimal() and environment[INDEX].isdecimal()):
        raise ValueError(f"{PROCESSES} is {count!r} and {INDEX} is {environment[INDEX]!r}; both must be whole numbers")
    return Gang(int(count), int(environment[INDEX]), environment[COORDINATOR])


def _of_slices(environment: Mapping[str, str]) -> Gang | None:
    """A host of TPU slices, numbered as JAX does: the hosts of the first slice, then those of the next."""
    addresses = environment.get("TPU_PROCESS_ADDRESSES") or environment.get("TPU_WORKER_HOSTNAMES")
    worker, slices = environment.get("TPU_WORKER_ID"), int(environment.get("MEGASCALE_NUM_SLICES", "1"))
    if not addresses or worker is None:
        return None
    hosts = addresses.split(",")
    first, number = hosts[0], 0
    if slices > 1:
        missing = [each for each in ("MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS") if each not in environment]
        if missing:
            raise ValueError(f"MEGASCALE_NUM_SLICES is {slices}, but {missing[0]} is not set; GKE sets all three")
        first, number = environment["MEGASCALE_COORDINATOR_ADDRESS"], int(environment["MEGASCALE_SLICE_ID"])
    return Gang(slices * len(hosts), number * len(hosts) + int(worker), f"{first.split(':')[0]}:{TPU_PORT}")


def join(environment: Mapping[str, str], stop: Stop) -> int:
    """Meet the other processes, if any; return the number of processes. Call it once, before the first use of a device.

    Raises: NotMetError, after which the process must end at once, because one of its threads still waits in C++.
    """
    gang = gang_of(environment)
    if gang is None and environment.get(PROCESSES) != GKE_TPU:
        return jax.process_count()
    patience = int(environment.get(GATHER, GATHER_SECONDS))
    meet = partial(
        jax.distributed.initialize,
        heartbeat_timeout_seconds=int(environment.get(HEARTBEAT, HEARTBEAT_SECONDS)),
        initialization_timeout=patience + JAX_LATER_SECONDS,
    )
    who = "this process"
    if gang is not None:
        who = f"process {gang.index} of {gang.count}, meeting at {gang.coordinator}"
        meet = partial(meet, gang.coordinator, gang.count, gang.index)
    log.info("%s", who)
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM from `Stop`, and nothing polls it
    _wait_for(meet, who, patience, stop)
    # The first collective sets up the connections, and Gloo waits 30 s for it. Do it here, where all have just met, and not
    # after each has compiled for minutes (seen 2026-11-22: only one process had its program in the compilation cache).
    multihost_utils.sync_global_devices("all processes are here")
    return jax.process_count()


def _wait_for(meet: Callable[[], None], who: str, patience: int, stop: Stop) -> None:
    """Meet in another thread, because Python delivers signals to this one only while it does not wait in C++."""
    met: Future[None] = Future()
    threading.Thread(target=_settle, args=(met, meet), daemon=True).start()
    end = time.monotonic() + patience
    while not wait([met], LOOK_SECONDS).done:
        if stop.requested.is_set():
            raise NotMetError(f"{who}: asked to leave before all had come", LEFT)
        if time.monotonic() > end:
            raise NotMetError(f"{who}: peers never came within {patience} s ({GATHER})", 1)
    met.result()


def _settle(met: Future[None], meet: Callable[[], None]) -> None:
    try:
        met.set_result(meet())
    except BaseException as error:  # raised where it is waited for
        met.set_exception(error)
