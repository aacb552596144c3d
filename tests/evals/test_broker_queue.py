"""The broker's file: whatever workers and kills do, every request ends with one answer, the first that was given."""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from evals.broker.app import key_of
from evals.broker.queue import Answer, FullError, Leased, QueueLimits, WorkQueue

LIMITS = QueueLimits(lease_seconds=10, max_attempts=3, max_open=6)
KEYS = [f"request {i}" for i in range(8)]


class Workers(RuleBasedStateMachine):
    """Clients, workers, a clock and a broker that dies, against a dictionary of the first answers."""

    @initialize(folder=st.uuids())
    def start(self, folder) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "queue.sqlite"
        self.queue, self.now = WorkQueue(self.path, LIMITS), 1000.0
        self.put_keys: set[str] = set()
        self.first: dict[str, Answer] = {}
        self.held: list[tuple[Leased, float]] = []

    def teardown(self) -> None:
        self.queue.close()
        self.folder.cleanup()

    @rule(key=st.sampled_from(KEYS))
    def put(self, key: str) -> None:
        full = key not in self.put_keys and len(self.put_keys) - len(self.first) >= LIMITS.max_open
        if full:
            with pytest.raises(FullError, match="6 requests are open; at most 6 may be"):
                self.queue.put(key, "POST", "/v1/completions", key.encode(), "m", self.now)
            return
        known = self.first.get(key)
        answer = self.queue.put(key, "POST", "/v1/completions", key.encode(), "m", self.now)
        self.put_keys.add(key)
        if known is not None and known.status >= 500:
            assert answer is None, "a failure of the broker's own is tried again"
            del self.first[key]
        else:
            assert answer == known

    @rule(count=st.integers(1, 4))
    def lease(self, count: int) -> None:
        given = self.queue.lease("worker", ["m"], count, self.now)
        alive = {leased.key for leased, until in self.held if until >= self.now and leased.key not in self.first}
        for leased in given:
            assert leased.key not in self.first and leased.body == leased.key.encode()
            assert leased.key not in alive, "a request is in two hands while its lease holds"
        self.held += [(leased, self.now + LIMITS.lease_seconds) for leased in given]

    @rule(data=st.data())
    def finish(self, data) -> None:
        """By any lease that was ever given, its time over or not."""
        if self.held:
            leased, _ = data.draw(st.sampled_from(self.held))
            answer = Answer(200, data.draw(st.binary(max_size=3)))
            counted = self.queue.finish(leased.key, answer, self.now)
            assert counted == (leased.key not in self.first)
            self.first.setdefault(leased.key, answer)

    @rule(data=st.data(), used=st.booleans())
    def give_back(self, data, used: bool) -> None:
        if self.held:
            place = data.draw(st.integers(0, len(self.held) - 1))
            self.queue.give_back(self.held.pop(place)[0].lease, used=used)

    @rule(seconds=st.sampled_from([1.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        _, ended = self.queue.expire(self.now)
        for key in ended:
            answer = self.queue.answer(key)
            assert key not in self.first and answer is not None and answer.status == 502
            assert b"none answered it, the last one worker" in answer.body
            self.first[key] = answer

    @rule()
    def renew(self) -> None:
        lost = set(self.queue.renew([leased.lease for leased, _ in self.held], self.now))
        self.held = [(one, until if one.lease in lost else self.now + 10) for one, until in self.held]

    @rule()
    def die(self) -> None:
        self.queue.close()
        self.queue = WorkQueue(self.path, LIMITS)

    @invariant()
    def nothing_is_lost_and_nothing_counted_twice(self) -> None:
        if hasattr(self, "queue"):
            counts = self.queue.counts()
            assert sum(counts.values()) == len(self.put_keys) and counts["done"] == len(self.first)
            assert all(self.queue.answer(key) == self.first.get(key) for key in self.put_keys)


Workers.TestCase.settings = settings(deadline=None, max_examples=25, stateful_step_count=25)
TestWorkers = Workers.TestCase


def test_a_worker_gets_requests_of_its_models_and_of_none(tmp_path: Path) -> None:
    queue = WorkQueue(tmp_path / "q", LIMITS)
    for key, model in (("a", "one"), ("b", "two"), ("c", None)):
        queue.put(key, "POST", "/v1/completions", b"", model, 0.0)
    assert [leased.key for leased in queue.lease("w", ["two", "three"], 9, 0.0)] == ["b", "c"]
    assert queue.lease("w", [], 9, 0.0) == []
    assert queue.prune(before=99.0) == 0
    queue.finish("b", Answer(200, b""), 5.0)
    assert queue.prune(before=99.0) == 1 and queue.counts() == {"waiting": 1, "leased": 1, "done": 0}
    queue.close()


def test_requests_are_the_same_where_their_answer_is() -> None:
    body = {"model": "m", "prompt": "a", "temperature": 0}

    def same(path: str, one: dict, other: dict) -> bool:
        return key_of("POST", path, one) == key_of("POST", path, other)

    assert same("/v1/completions", body, dict(reversed(body.items())))
    assert not same("/v1/completions", body, body | {"prompt": "b"})
    assert not same("/v1/completions", body | {"temperature": 1}, body | {"temperature": 1})
    assert same("/v1/completions", body | {"temperature": 1, "seed": 3}, body | {"temperature": 1, "seed": 3})
    assert same("/tokenize", {"prompt": "a"}, {"prompt": "a"})
    assert key_of("POST", "/v1/completions", body) != key_of("POST", "/v1/chat/completions", body)


@pytest.mark.parametrize("field", ["lease_seconds", "max_attempts", "max_open"])
def test_limits_must_be_positive(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is 0; it must be positive"):
        QueueLimits(**{field: 0})
