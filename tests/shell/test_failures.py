"""The classifier of failed attempts, and the retry decisions made from it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from failure_logs import AGENT_GUIDELINES, FROM_MEMORY, KUBELET, LINES_FROM_MEMORY, PERMANENT, REAL, TRANSIENT
from hypothesis import given
from hypothesis import strategies as st

from resources.failures import (
    _LOG_LINES,
    _POD_FACTS,
    CAPACITY,
    NEVER_CAME,
    PREEMPTION,
    Evidence,
    Failed,
    RetryPolicy,
    Verdict,
    _by,
    classify,
    classify_pod,
    decide,
)

CHATTER = "\n12:00:01 trainer: step   100/480  loss 5.1234  lr 4.00e-03     5503 tokens/s    12 s left\n"
POLICY = RetryPolicy(max_failures=5, max_identical=3, first_wait_seconds=10, max_wait_seconds=40, healthy_seconds=3600)


def _cases(kind: str, *tables: dict[str, tuple[str, ...]]) -> list[tuple[str, str, str]]:
    return [(kind, cause, line) for table in tables for cause, lines in table.items() for line in lines]


LOGS = Path(__file__).parent / "real_logs"
PERMANENT_CAUSES = {rule[1] for rule in (*_POD_FACTS, *_LOG_LINES) if rule[0] == "permanent"}


@pytest.mark.parametrize("name", REAL)
def test_logs_of_processes_that_really_ended_so(name: str) -> None:
    code, kind, cause = REAL[name]
    verdict = classify_pod(Evidence(exit_code=code, reason="Error", log=(LOGS / f"{name}.txt").read_text()))
    assert (verdict.kind, verdict.cause) == (kind, cause), verdict.because


def test_a_leader_that_failed_by_itself_is_not_taken_for_a_preempted_one() -> None:
    """JAX reports to its peers that the leader "was preempted/died/restarted". This is not a report of the cluster."""
    peer = Evidence(134, log=(LOGS / "leader_killed.txt").read_text())
    assert classify([Evidence(1, log=PERMANENT["diverged"][0]), peer]).cause == "diverged"
    assert classify([Evidence(143, disruption="TerminationByKubelet"), peer]).cause == PREEMPTION


@pytest.mark.parametrize(("ended_by", "cause"), [("AssertionError: 3 != 4", "program error"), ("SystemExit: 3", "bad spec")])
def test_what_a_process_ended_by_is_not_lost_in_its_farewell(ended_by: str, cause: str) -> None:
    """JAX's message comes five minutes after the process's own. Errors above the process's later output were overcome."""
    log = (LOGS / "diverged_alone.txt").read_text()
    assert classify_pod(Evidence(134, log=log)).cause == "diverged"
    own = next(line for line in log.splitlines() if line.startswith("FloatingPointError"))
    assert classify_pod(Evidence(134, log=log.replace(own, ended_by))).cause == cause
    assert classify_pod(Evidence(134, log=log.replace(own, own + CHATTER))).cause == "peer loss"
    left = "12:00:09 trainer: pods: asked to leave; checkpoint saved at step 15, go on from there"
    assert classify_pod(Evidence(134, log=log.replace(own, own + CHATTER + left))).cause == PREEMPTION


@pytest.mark.parametrize(
    ("cause", "message"),
    [(cause, line) for table in (KUBELET, FROM_MEMORY) for cause, lines in table.items() for line in lines],
)
def test_what_the_kubelet_says_is_known(cause: str, message: str) -> None:
    failure = _by(_POD_FACTS, message)
    assert failure is not None and failure.cause == cause


def _alternatives(pattern: str) -> Iterator[str]:
    """Parts of a pattern between bars that stand in no group."""
    depth, part = 0, ""
    for at, letter in enumerate(pattern):
        escaped = at > 0 and pattern[at - 1] == "\\"
        depth += 0 if escaped else (letter == "(") - (letter == ")")
        if letter == "|" and depth == 0:
            yield part
            part = ""
        else:
            part += letter
    yield part


def test_every_signature_has_a_line_that_it_was_made_for() -> None:
    """A signature without an observed example that is not marked as from memory fails here."""
    tables = (AGENT_GUIDELINES, TRANSIENT, PERMANENT, KUBELET, FROM_MEMORY, LINES_FROM_MEMORY)
    lines = [line for table in tables for examples in table.values() for line in examples]
    lines += [line for path in LOGS.glob("*.txt") for line in path.read_text().splitlines()]
    rules = [(cause, part) for _, cause, rule in (*_POD_FACTS, *_LOG_LINES) for part in _alternatives(rule.pattern)]
    unseen = [(cause, part) for cause, part in rules if not any(re.search(part, line) for line in lines)]
    assert unseen == []


@pytest.mark.parametrize(
    ("kind", "cause", "line"),
    _cases("transient", AGENT_GUIDELINES, TRANSIENT)
    + _cases("permanent", PERMANENT)
    + [
        ("permanent" if cause in PERMANENT_CAUSES else "transient", cause, line)
        for cause, lines in LINES_FROM_MEMORY.items()
        for line in lines
    ],
)
def test_lines_that_were_seen_are_known(kind: str, cause: str, line: str) -> None:
    verdict = classify_pod(Evidence(exit_code=1, reason="Error", log=CHATTER + line + CHATTER))
    if cause == "program error":
        assert (verdict.kind, verdict.cause) == (kind, cause)
    else:
        assert (verdict.kind, verdict.cause, verdict.because) == (kind, cause, line.strip()[:300])


def test_ordinary_output_is_no_signature() -> None:
    verdict = classify_pod(Evidence(exit_code=1, log=CHATTER))
    assert verdict.cause == "program error" and "step   100/480" in verdict.because


def test_the_last_error_decides_not_one_that_was_overcome() -> None:
    overcome = "HttpError: status 503, trying again\n" + CHATTER + "FloatingPointError: the loss of step 7 is nan"
    assert classify_pod(Evidence(exit_code=1, log=overcome)).cause == "diverged"


@pytest.mark.parametrize(
    ("pod", "kind", "cause"),
    [
        (Evidence(143, disruption="TerminationByKubelet", log="FloatingPointError: x"), "transient", "preemption"),
        (Evidence(137, pod_reason="Terminated", message="imminent node shutdown"), "transient", "preemption"),
        (Evidence(137, reason="OOMKilled"), "permanent", "own memory"),
        (Evidence(pod_reason="Evicted", message="The node was low on resource: memory."), "transient", "neighbours memory"),
        (Evidence(reason="ImagePullBackOff", message="Back-off pulling image"), "transient", "image pull"),
        (Evidence(reason="ErrImagePull", message="manifest unknown"), "permanent", "missing image"),
        (Evidence(reason="InvalidImageName", message="couldn't parse image"), "permanent", "bad spec"),
        (Evidence(128, reason="StartError", message="exec: python: not found"), "permanent", "bad spec"),
        (Evidence(pod_reason="NodeLost"), "transient", "node loss"),
        (Evidence(128, reason="StartError", message="OCI runtime create failed"), "transient", "container start"),
        (
            Evidence(
                137,
                pod_reason="Evicted",
                message="The node was low on resource: memory. ",
                disruption="TerminationByKubelet",
            ),
            "transient",
            "neighbours memory",
        ),
        (Evidence(137, reason="Error"), "transient", "killed"),
        (Evidence(135, reason="Error"), "transient", "killed"),
        (Evidence(139, reason="Error", log="Fatal Python error: Segmentation fault"), "transient", "killed"),
        (Evidence(1, reason="Error"), "permanent", "program error"),
    ],
)
def test_what_kubernetes_knows_comes_first(pod: Evidence, kind: str, cause: str) -> None:
    verdict = classify_pod(pod)
    assert (verdict.kind, verdict.cause) == (kind, cause)


def test_of_a_gang_the_pod_that_explains_the_others_is_named() -> None:
    aborted = Evidence(134, log="Heartbeat timeout from the task")
    diverged = Evidence(1, log="FloatingPointError: the loss of step 7 is nan")
    preempted = Evidence(143, disruption="TerminationByKubelet")
    assert classify([aborted, diverged, aborted]).cause == "diverged"
    assert classify([aborted, preempted, Evidence(1, log="AssertionError")]).cause == PREEMPTION
    alone = classify([preempted, Evidence(1, log="AssertionError")], gang=False)
    assert alone.cause == "program error", "of pods that are no gang the preempted one was replaced"
    killed, cut_off = Evidence(137, reason="Error"), Evidence(1, log="XlaRuntimeError: words that nobody has seen")
    assert classify([cut_off, killed]).cause == "killed", "its peer was cut off in a collective"
    assert classify([diverged, killed]).cause == "diverged"
    assert classify([cut_off, Evidence(134)]).cause == "program error", "an abort is what the program error brought about"
    assert classify([]).kind == "transient"
    waited = Evidence(1, log="trainer: process 0 of 2: peers never came within 900 s (MARIN_GATHER_SECONDS)")
    assert classify([waited, waited]).cause == NEVER_CAME
    assert classify([waited, Evidence(1, log="ConnectionResetError")]).cause == "network", "one came, and says why it went"


def _failed(cause: str, seconds: float = 5.0, because: str = "line 1") -> Failed:
    return Failed(Verdict("transient", cause, because), seconds)


def test_permanent_failures_stop_at_once() -> None:
    decision = decide([Failed(Verdict("permanent", "diverged", "nan"), 9000.0)], POLICY)
    assert decision.wait_seconds is None and "permanent" in decision.why


def test_an_unknown_error_after_an_hour_of_work_is_tried_again_once() -> None:
    """The faults of a fleet have more forms than the table, and by then checkpoints are saved."""
    unknown = Verdict("permanent", "program error", "exit code 1: words that nobody has seen")
    assert decide([Failed(unknown, 3599.0)], POLICY).wait_seconds is None
    assert decide([Failed(unknown, 3600.0)], POLICY).wait_seconds == POLICY.first_wait_seconds
    assert decide([Failed(unknown, 3600.0), _failed("network"), Failed(unknown, 9000.0)], POLICY).wait_seconds is None
    assert decide([Failed(Verdict("permanent", "diverged", "nan"), 9000.0)], POLICY).wait_seconds is None


def test_waits_double_up_to_a_cap_and_end() -> None:
    history = [_failed(f"cause {i}") for i in range(5)]
    waits = [decide(history[: i + 1], POLICY).wait_seconds for i in range(5)]
    assert waits == [10, 20, 40, 40, None]
    assert "5 transient failures" in decide(history, POLICY).why


def test_three_failures_that_differ_in_numbers_alone_are_a_crash_loop() -> None:
    history = [_failed("network", because=f"10.0.0.{i}: reset of 0xdeadbeef{i}") for i in range(3)]
    assert decide(history[:2], POLICY).wait_seconds is not None
    decision = decide(history, POLICY)
    assert decision.wait_seconds is None and "crash loop: 3 failures in a row" in decision.why


def test_a_healthy_attempt_clears_the_account_before_it() -> None:
    history = [_failed("network"), _failed("network"), _failed("network", seconds=4000.0)]
    assert decide(history, POLICY).wait_seconds == 10


@given(st.lists(st.sampled_from(["network", "node loss", PREEMPTION, NEVER_CAME]), min_size=1, max_size=30))
def test_machines_that_are_missing_never_spend_retries(causes: list[str]) -> None:
    """A history decides as it would without them, unless its last failure is one of them: that is tried again."""
    history = [_failed(cause) for cause in causes]
    own = [failed for failed in history if failed.verdict.cause not in CAPACITY]
    decision = decide(history, POLICY)
    if history[-1].verdict.cause in CAPACITY:
        assert decision.wait_seconds == POLICY.first_wait_seconds
    else:
        assert decision == decide(own, POLICY)


def test_a_policy_that_cannot_be_is_refused_by_field() -> None:
    with pytest.raises(ValueError, match="max_identical is 0; it must be at least 1"):
        RetryPolicy(max_identical=0)
    with pytest.raises(ValueError, match="first_wait_seconds is 700"):
        RetryPolicy(first_wait_seconds=700)
