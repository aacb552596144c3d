"""Whether a run repeats to the bit on its mesh: CPUs and TPUs do, XLA's GPU programs only where they are asked to.

Without the flag XLA adds up some gradients by atomic additions, and times kernels to choose among them, anew in each process: a
resumed run is then near the undisturbed one, and not it.
"""

import re
from collections.abc import Mapping, MutableMapping

FLAG = "--xla_gpu_deterministic_ops"


def ask(environment: MutableMapping[str, str]) -> None:
    """Put the flag into XLA_FLAGS, unless it is there already, true or false; other platforms pass over it.

    Before the first use of a device: XLA reads its flags once.
    """
    if _asked(environment) is None:
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {FLAG}=true".strip()


def note(platform: str, environment: Mapping[str, str]) -> str:
    """For a run's record, in words."""
    if platform != "gpu":
        return f"repeats to the bit on one mesh ({platform})"
    if _asked(environment):
        return f"repeats to the bit on one mesh (XLA_FLAGS {FLAG}=true; false is faster and gives that up)"
    return f"does not repeat to the bit: XLA_FLAGS lacks {FLAG}=true, which python -m trainer sets unless it says false"


def _asked(environment: Mapping[str, str]) -> bool | None:
    """What XLA_FLAGS says of it, the last time that it does; None: nothing."""
    said = re.findall(rf"{FLAG}(?:=(\S+))?(?=\s|$)", environment.get("XLA_FLAGS", ""))
    return said[-1].lower() in ("", "1", "true") if said else None
