"""Why a job's attempt failed, and whether to try again: facts of the pod first, then the log read from its end.

The classes are Marin's ("Interpreting Failures" and "Common Failure Signatures" of its agent guidelines) and those that JAX,
Kubernetes and our own engines word. Every signature has a line that it was made for, with where that was seen; some are from
memory, and say so (`tests/shell/failure_logs.py`, `tests/shell/real_logs/`). The last line that any signature knows decides,
because an error that was overcome stands above the one that was not.

This is the one owner of retries: Kubernetes replaces preempted pods alone (`resources/manifests.py`), Dagster retries nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LOG_LINES = 400
"""Of a failed pod's log, from the end, that are searched."""
KILLED_FROM_OUTSIDE = {134: "SIGABRT", 137: "SIGKILL", 143: "SIGTERM"}
PREEMPTION = "preemption"
NEVER_CAME = "peers never came"
PEER_LOSS = "peer loss"
CAPACITY = frozenset({PREEMPTION, NEVER_CAME})
"""Causes that spend no retries: machines were taken, or did not come."""
UNKNOWN = "program error"


@dataclass(frozen=True)
class Evidence:
    """What is known of one pod that did not end well. Reasons and messages are in the words of Kubernetes."""

    exit_code: int | None = None
    reason: str = ""
    """Of its container: `OOMKilled`, `Error`, `ErrImagePull`, ..."""

    message: str = ""
    pod_reason: str = ""
    """`Evicted`, `NodeLost`, `Terminated`, ..."""

    disruption: str = ""
    """Reason of the condition `DisruptionTarget`, from Kubernetes 1.26 on."""

    log: str = ""


@dataclass(frozen=True)
class Verdict:
    """What kind of failure, its cause in a word, and the fact or the line that says so."""

    kind: Literal["transient", "permanent"]
    cause: str
    because: str

    @property
    def signature(self) -> str:
        """Equal for failures that differ in numbers and addresses alone."""
        return f"{self.cause}: {re.sub(r'0x[0-9a-f]+|[0-9a-f]{8,}|[0-9]+', '#', self.because)}"

    def __str__(self) -> str:
        return f"{self.cause} ({self.kind}): {self.because}"


@dataclass(frozen=True)
class Failed:
    """A failed attempt: its verdict, and how long it had run."""

    verdict: Verdict
    seconds: float


@dataclass(frozen=True)
class RetryPolicy:
    """How often a transient failure is tried again. An attempt of `healthy_seconds` clears the account of those before it."""

    max_failures: int = 6
    max_identical: int = 3
    first_wait_seconds: float = 10.0
    max_wait_seconds: float = 600.0
    healthy_seconds: float = 3600.0

    def __post_init__(self) -> None:
        for name in ("max_failures", "max_identical"):
            if getattr(self, name) < 1:
                raise ValueError(f"retry policy: {name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.first_wait_seconds <= self.max_wait_seconds:
            raise ValueError(
                f"retry policy: first_wait_seconds is {self.first_wait_seconds}; it must be between 0 and max_wait_seconds "
                f"({self.max_wait_seconds})"
            )


@dataclass(frozen=True)
class Decision:
    """Try again after some seconds (None: do not), and why."""

    wait_seconds: float | None
    why: str


def classify(evidence: Sequence[Evidence], *, gang: bool = True) -> Verdict:
    """The verdict over an attempt's pods: a preemption explains its peers' errors, a permanent failure its peers' aborts.

    A host that was killed without a word explains what its peers say that nobody knows: they were cut off in a collective. One
    that waited for peers in vain explains nothing that one of them says. Of pods that are no gang a preempted one was replaced,
    and explains nothing.
    """
    verdicts = [classify_pod(pod) for pod in evidence]
    if not verdicts:
        return Verdict("transient", "vanished", "the job failed and no pod of it is left to say why")
    order = {PREEMPTION: 0 if gang else 3, "permanent": 1, "transient": 2, NEVER_CAME: 4}
    if gang and any(verdict.cause == "killed" and "SIGKILL" in verdict.because for verdict in verdicts):
        order[UNKNOWN] = 3
    return min(verdicts, key=lambda v: order.get(v.cause, order[v.kind]))


def classify_pod(pod: Evidence) -> Verdict:
    """One pod: what Kubernetes knows, else what its log says, else its exit code."""
    if pod.disruption:
        return Verdict("transient", PREEMPTION, f"DisruptionTarget: {pod.disruption}")
    told = _by(_POD_FACTS, f"{pod.pod_reason} {pod.reason}: {pod.message}")
    if told:
        return told
    told = _by_log(pod.log.splitlines()[-LOG_LINES:])
    if told:
        return told
    if pod.exit_code in KILLED_FROM_OUTSIDE:
        name = KILLED_FROM_OUTSIDE[pod.exit_code]
        return Verdict("transient", "killed", f"exit code {pod.exit_code} ({name}) and no error of its own in the log")
    last = next((line.strip() for line in reversed(pod.log.splitlines()) if line.strip()), "the log is empty")
    return Verdict("permanent", UNKNOWN, f"exit code {pod.exit_code}, and no known signature; the last line: {last[:300]}")


def _by_log(lines: Sequence[str]) -> Verdict | None:
    """By the last line that is known; of a process of a gang by the exception that it ended with, if JAX spoke after it.

    An interpreter that ends by an exception takes leave of its peers: that may take minutes and end in JAX's words about them.
    """
    farewell: Verdict | None = None
    for line in reversed(lines):
        told = _by(_LOG_LINES, line)
        if farewell is None and told is not None and told.cause == PEER_LOSS:
            farewell = told
        elif farewell is None and told is not None:
            return told
        elif farewell is not None and _EXCEPTION.match(line):
            return told or Verdict("permanent", UNKNOWN, f"no known signature in the exception that it ended by: {line[:300]}")
        elif farewell is not None and _OWN_OUTPUT.match(line):
            return told if told is not None and told.cause == PREEMPTION else farewell
    return farewell


def decide(history: Sequence[Failed], policy: RetryPolicy) -> Decision:
    """What to do after the last failure of a history (oldest first). Missing machines are waited out and cost nothing."""
    last = history[-1].verdict
    if last.kind == "permanent":
        return Decision(None, f"{last}; permanent: trying again would end the same way")
    if last.cause in CAPACITY:
        return Decision(policy.first_wait_seconds, f"{last}; machines that are missing spend no retries")
    counted = _since_healthy([failed for failed in history if failed.verdict.cause not in CAPACITY], policy)
    identical = 0
    for failed in reversed(counted):
        if failed.verdict.signature != last.signature:
            break
        identical += 1
    if identical >= policy.max_identical:
        return Decision(None, f"{last}; crash loop: {identical} failures in a row were this one")
    if len(counted) >= policy.max_failures:
        return Decision(None, f"{last}; {len(counted)} transient failures, and the policy allows {policy.max_failures}")
    wait = min(policy.first_wait_seconds * 2 ** (len(counted) - 1), policy.max_wait_seconds)
    return Decision(wait, f"{last}; failure {len(counted)} of {policy.max_failures}")


def _since_healthy(history: Sequence[Failed], policy: RetryPolicy) -> Sequence[Failed]:
    healthy = [index for index, failed in enumerate(history) if failed.seconds >= policy.healthy_seconds]
    return history[healthy[-1] :] if healthy else history


_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b")
"""The last line of a traceback."""
_OWN_OUTPUT = re.compile(r"\d\d:\d\d:\d\d ")
"""Our programs' own log begins so: what stands above it was overcome."""

type _Rule = tuple[Literal["transient", "permanent"], str, re.Pattern[str]]


def _by(rules: Sequence[_Rule], text: str) -> Verdict | None:
    for kind, cause, pattern in rules:
        if pattern.search(text):
            return Verdict(kind, cause, text.strip()[:300])
    return None


def _rules(kind: Literal["transient", "permanent"], **patterns: str) -> tuple[_Rule, ...]:
    return tuple((kind, cause.replace("_", " "), re.compile(pattern)) for cause, pattern in patterns.items())


_POD_FACTS = (
    *_rules("transient", preemption=r"^(Terminated|Preempting|NodeShutdown|Shutdown)\b|imminent node shutdown"),
    *_rules(
        "permanent",
        own_memory=r"\bOOMKilled\b",
        own_disk=r"^Evicted.*(exceeds the (total )?limit|exceeded its local ephemeral storage limit)",
        bad_spec=r"\b(InvalidImageName|CreateContainerError|StartError|ContainerCannotRun|CreateContainerConfigError)\b",
        missing_image=r"(ErrImagePull|ImagePullBackOff).*(manifest unknown|not found|unauthorized|denied)|ErrImageNeverPull",
    ),
    *_rules(
        "transient",
        image_pull=r"\b(ErrImagePull|ImagePullBackOff|ImageInspectError|RegistryUnavailable)\b",
        neighbours_memory=r"^Evicted.*memory|SystemOOM",
        disk_pressure=r"^Evicted.*(ephemeral-storage|disk|DiskPressure)",
        node_loss=r"^(NodeLost|NodeAffinity|OutOf\w+|UnexpectedAdmissionError)\b|^Evicted",
    ),
)
_LOG_LINES = (
    *_rules(
        "permanent",
        diverged=r"FloatingPointError|\bloss\b.{0,40}\b(nan|inf)\b",
        device_memory=r"RESOURCE_EXHAUSTED|compile permanent error|CUDA_ERROR_OUT_OF_MEMORY|Out of memory allocating",
        own_memory=r"^\s*MemoryError|Unable to allocate .* for an array",
        missing_input=(
            r"materialize it again|is refused, its ancestors are not fit"
            r"|FileNotFoundError|NoSuchKey|No such object|404 Not Found"
        ),
    ),
    *_rules(
        "transient",
        preemption=(
            # Not "was preempted": JAX says it of any leader that is gone, also of one that failed by itself.
            r"Retrying after preemption|asked to leave; checkpoint saved at step|asked to leave before all had come"
        ),
        peers_never_came=r"peers never came within \d+ s",
        worker_environment=r"numpy\.dtype size changed|runtime_env.*Run cmd failed|pip', 'install'.*non-zero exit status",
        node_loss=r"its node has died|OwnerDiedError|owner has exited|missing too many heartbeats",
        slice_health=r"scaled to 0 actors|ActorDiedError|TPU is already in use|TPU initialization failed|different launch id",
        stalled=r"^Timeout \(\d+:\d\d:\d\d(\.\d+)?\)!$",  # the trainer's watchdog, in faulthandler's words
        peer_loss=(
            r"[Hh]eartbeat timeout|tasks have crashed|[Bb]arrier timed out|NCCL.*remote error|Gloo .{0,40}failed"
            r"|UNAVAILABLE: .*(coordination|peer|unhealthy)|JAX distributed service detected fatal errors"
        ),
        disk_pressure=r"No space left on device|is over 95% full|if spilling is required",
        object_store=(
            r"\b(429|50[0234])\b.{0,80}(Too Many|Service Unavailable|Bad Gateway|Gateway Time|Internal|backendError|http)"
            r"|(HttpError|HTTPError|ServerError|status).{0,40}\b(429|50[0234])\b|rateLimitExceeded|SlowDown"
        ),
        network=(
            r"Connection (reset|aborted|refused)|ConnectionResetError|Read timed out|Temporary failure in name resolution"
            r"|Name or service not known"
        ),
    ),
    *_rules(
        "permanent",
        bad_spec=r"^(ValueError|TypeError|KeyError|ModuleNotFoundError|ImportError|AttributeError|SystemExit|usage:)",
    ),
)
