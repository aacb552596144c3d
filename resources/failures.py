"""Why an attempt of a job failed, and whether to try again: facts of the pod first, then the log, read from its end.

The classes are Marin's ("Interpreting Failures" and "Common Failure Signatures" of its agent guidelines) and messages of JAX,
Kubernetes and our own engines. Every signature has a log line that it was made for, with its origin; some are from memory and
say so (`tests/shell/failure_logs.py`, `tests/shell/real_logs/`). The last line that matches a signature decides, because errors
that a job recovered from come earlier.

Only this module decides about retries: Kubernetes replaces only preempted pods (`resources/manifests.py`), and Dagster retries
nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LOG_LINES = 400
"""Number of lines that are searched, from the end of a failed pod's log."""
KILLED_FROM_OUTSIDE = {134: "SIGABRT", 135: "SIGBUS", 137: "SIGKILL", 139: "SIGSEGV", 143: "SIGTERM"}
"""Exit codes of signals. SIGBUS and SIGSEGV are most often bad memory, a full `/dev/shm` or a driver, not our program."""
PREEMPTION = "preemption"
NEVER_CAME = "peers never came"
PEER_LOSS = "peer loss"
CAPACITY = frozenset({PREEMPTION, NEVER_CAME})
"""Causes that spend no retries: machines were preempted or unavailable."""
UNKNOWN = "program error"
EVICTED = "Evicted"
"""Reason of a pod that the kubelet ended, because its node was short of memory, disk or process ids."""

MISSING_VOLUME = re.compile(r'FailedMount.*(secret|configmap|persistentvolumeclaim) ".*" not found')
"""Event of a pod whose volume names something that is not there; the container waits as `ContainerCreating`."""


@dataclass(frozen=True)
class Evidence:
    """What is known of one failed pod. Reasons and messages are those of Kubernetes."""

    exit_code: int | None = None
    reason: str = ""
    """Reason of its container: `OOMKilled`, `Error`, `ErrImagePull`, ..."""

    message: str = ""
    pod_reason: str = ""
    """`Evicted`, `NodeLost`, `Terminated`, ..."""

    disruption: str = ""
    """Reason of the condition `DisruptionTarget`, from Kubernetes 1.26 on."""

    log: str = ""


@dataclass(frozen=True)
class Verdict:
    """The kind of failure, its cause in a word, and the fact or log line that shows it."""

    kind: Literal["transient", "permanent"]
    cause: str
    because: str

    @property
    def signature(self) -> str:
        """Equal for failures that differ only in numbers and addresses."""
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
    """How often a transient failure is tried again. An attempt that ran for `healthy_seconds` resets the count."""

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
    """Seconds to wait before the next attempt (None: no further attempt), and why."""

    wait_seconds: float | None
    why: str


def classify(evidence: Sequence[Evidence], *, gang: bool = True) -> Verdict:
    """Judge an attempt by its pods: a preemption explains errors of its peers, and a permanent failure explains their aborts.

    A host that was killed without a message explains unknown errors of its peers: they were cut off in a collective. A host
    that waited for its peers in vain does not explain a peer's own error. If the pods are no gang, a preempted pod was replaced
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
    """Judge one pod by what Kubernetes reports, else by its log, else by its exit code.

    A kubelet that evicts a pod for memory or disk sets `DisruptionTarget`, too (Kubernetes 1.26): that is no preemption.
    """
    failure = _by(_POD_FACTS, f"{pod.pod_reason} {pod.reason}: {pod.message}")
    if pod.disruption and pod.pod_reason != EVICTED:
        return Verdict("transient", PREEMPTION, f"DisruptionTarget: {pod.disruption}")
    if failure:
        return failure
    failure = _by_log(pod.log.splitlines()[-LOG_LINES:])
    if failure:
        return failure
    if pod.exit_code in KILLED_FROM_OUTSIDE:
        name = KILLED_FROM_OUTSIDE[pod.exit_code]
        return Verdict("transient", "killed", f"exit code {pod.exit_code} ({name}) and no error of its own in the log")
    last = next((line.strip() for line in reversed(pod.log.splitlines()) if line.strip()), "the log is empty")
    return Verdict("permanent", UNKNOWN, f"exit code {pod.exit_code}, and no known signature; the last line: {last[:300]}")


def _by_log(lines: Sequence[str]) -> Verdict | None:
    """Judge a log by the last line that matches a signature. In a gang, the exception that ended the process counts if only
    messages of JAX follow it: a process that ends by an exception waits for its peers, and JAX may log errors about them.
    """
    farewell: Verdict | None = None
    for line in reversed(lines):
        failure = _by(_LOG_LINES, line)
        if farewell is None and failure is not None and failure.cause == PEER_LOSS:
            farewell = failure
        elif farewell is None and failure is not None:
            return failure
        elif farewell is not None and _EXCEPTION.match(line):
            return failure or Verdict(
                "permanent", UNKNOWN, f"no known signature in the exception that it ended by: {line[:300]}"
            )
        elif farewell is not None and _OWN_OUTPUT.match(line):
            return failure if failure is not None and failure.cause == PREEMPTION else farewell
    return farewell


def decide(history: Sequence[Failed], policy: RetryPolicy) -> Decision:
    """Decide what to do after the last failure of a history (oldest first). Waiting for missing machines spends no retries.

    An unknown error is permanent, but one that comes after `healthy_seconds` of work is tried again once: by then checkpoints
    are saved, and faults of machines have more forms than we know.
    """
    last = history[-1].verdict
    unknown = [failed for failed in history if failed.verdict.cause == UNKNOWN]
    if last.cause == UNKNOWN and len(unknown) == 1 and history[-1].seconds >= policy.healthy_seconds:
        return Decision(policy.first_wait_seconds, f"{last}; it had run for {history[-1].seconds:.0f} s: tried again once")
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
"""Start of a line of our programs' own log: errors above it were overcome."""

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
        bad_spec=(
            r"\b(InvalidImageName|CreateContainerConfigError)\b"
            r"|\b(CreateContainerError|StartError|ContainerCannotRun|RunContainerError)\b.*"
            r"(not found|no such file|permission denied)"
        ),
        missing_volume=MISSING_VOLUME.pattern,
        missing_image=r"(ErrImagePull|ImagePullBackOff).*(manifest unknown|not found|unauthorized|denied)|ErrImageNeverPull",
    ),
    *_rules(
        "transient",
        image_pull=r"\b(ErrImagePull|ImagePullBackOff|ImageInspectError|RegistryUnavailable)\b",
        container_start=r"\b(CreateContainerError|StartError|ContainerCannotRun|RunContainerError)\b",
        never_started=r"\b(ContainerCreating|PodInitializing)\b",
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
        # Both retried like every transient failure: three that are equal end the job.
        hardware_fault=(
            r"CUDA_ERROR_ECC_UNCORRECTABLE|[Uu]ncorrectable ECC|NVRM: Xid|GPU is lost|fallen off the bus"
            r"|NCCL.*unhandled (cuda|system) error"
        ),
        credentials_service=r"DefaultCredentialsError|google\.auth\.exceptions\.(RefreshError|TransportError)",
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
