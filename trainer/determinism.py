"""Whether a run repeats bit for bit on its mesh: on CPUs and TPUs yes, on GPUs only with an XLA flag.

Without the flag XLA sums some gradients by atomic additions, and each process times kernels to choose among them: a resumed run
is then close to the undisturbed one but not equal.
"""

import re
from collections.abc import Mapping, MutableMapping

FLAG = "--xla_gpu_deterministic_ops"
OVERLAP = "--xla_gpu_enable_latency_hiding_scheduler"
"""XLA orders the program so that collectives run beside products; it changes no number."""


def ask(environment: MutableMapping[str, str]) -> None:
    """Add both flags to XLA_FLAGS unless they are set already, to true or false; other platforms ignore them.

    Call it before the first use of a device: XLA reads its flags once.
    """
    for flag in (FLAG, OVERLAP):
        if _chosen(environment, flag) is None:
            environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {flag}=true".strip()


def note(platform: str, environment: Mapping[str, str]) -> str:
    """One line about it, for the record of a run."""
    if platform != "gpu":
        return f"repeats to the bit on one mesh ({platform})"
    if _chosen(environment):
        return f"repeats to the bit on one mesh (XLA_FLAGS {FLAG}=true; false is faster and gives that up)"
    return f"does not repeat to the bit: XLA_FLAGS lacks {FLAG}=true, which python -m trainer sets unless it says false"


def _chosen(environment: Mapping[str, str], flag: str = FLAG) -> bool | None:
    """The last value of a flag in XLA_FLAGS; None if it is not set."""
    values = re.findall(rf"{flag}(?:=(\S+))?(?=\s|$)", environment.get("XLA_FLAGS", ""))
    return values[-1].lower() in ("", "1", "true") if values else None
