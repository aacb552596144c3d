"""The broker's queue: whatever workers and kills do, each request gets one answer, the first given."""

import sqlite3
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from serving.broker.forms import NAMED, digest_of, key_of
from serving.broker.queue import (
    Answer,
    FullError,
    Leased,
    OtherRequestError,
    OtherVersionError,
    QueueLimits,
    Wanted,
    WorkQueue,
)

LIMITS = QueueLimits(lease_seconds=10, max_attempts=3, max_open=6, unserved_seconds=20)
KEYS = [f"request {i}" for i in range(5)] + [f"{NAMED}{i}" for i in range(3)]


def wanted(key: str, model: str | None = "m", says: str = "") -> Wanted:
    return Wanted(key, f"digest {key} {says}", "POST", "/v1/completions", f"{key}{says}".encode(), model)


class Workers(RuleBasedStateMachine):
    """Clients, workers, a clock, a retrained model and a broker that dies, against a dictionary of first answers."""

    @initialize(folder=st.uuids())
    def start(self, folder) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "queue.sqlite"
        self.queue, self.now = WorkQueue(self.path, LIMITS), 1000.0
        self.put_keys: set[str] = set()
        self.first: dict[str, Answer] = {}
        self.held: list[tuple[Leased, float, str]] = []
        self.versions: dict[str, str] = {}
        """That gave the first answers."""
        self.version = "version 1"
        self.queue.serve("worker of version 1", {"m": "version 1"}, self.now)

    def teardown(self) -> None:
        self.queue.close()
        self.folder.cleanup()

    @rule(key=st.sampled_from(KEYS))
    def put(self, key: str) -> None:
        full = key not in self.put_keys and len(self.put_keys) - len(self.first) >= LIMITS.max_open
        if full:
            with pytest.raises(FullError, match="6 requests are open; at most 6 are allowed"):
                self.queue.put(wanted(key), self.now)
            return
        known, named = self.first.get(key), key.startswith(NAMED)
        answer = self.queue.put(wanted(key), self.now)
        self.put_keys.add(key)
        if known is not None and (known.status >= 500 or (self.versions[key] != self.version and not named)):
            assert answer is None, "a failure of the broker's own is tried again, and so is what another model answered"
            del self.first[key]
        else:
            assert answer == known

    @rule(count=st.integers(1, 4))
    def lease(self, count: int) -> None:
        self.queue.serve(f"worker of {self.version}", {"m": self.version}, self.now)
        given = self.queue.lease(f"worker of {self.version}", ["m"], count, self.now)
        alive = {leased.key for leased, until, _ in self.held if until >= self.now and leased.key not in self.first}
        for leased in given:
            assert leased.key not in self.first and leased.body == leased.key.encode()
            assert leased.key not in alive, "a request is in two hands while its lease holds"
        self.held += [(leased, self.now + LIMITS.lease_seconds, self.version) for leased in given]

    @rule(in_order=st.booleans())
    def train_anew(self, in_order: bool) -> None:
        """Change the bytes of a model's name. It counts when no server of the old bytes is alive or registered."""
        number = int(self.version.removeprefix("version ")) + 1
        new = f"version {number}"
        with pytest.raises(OtherVersionError, match=f"worker of {new} serves 'm' as {new}, and worker of {self.version}, "):
            self.queue.serve(f"worker of {self.version}", {"m": self.version}, self.now)
            self.queue.serve(f"worker of {new}", {"m": new}, self.now)
        if in_order:
            self.queue.leave(f"worker of {self.version}")
            self.held = [(one, -1.0 if by == self.version else until, by) for one, until, by in self.held]
        else:
            self.wait(11.0)
        self.queue.serve(f"worker of {new}", {"m": new}, self.now)
        self.version = new

    @rule(data=st.data())
    def finish(self, data) -> None:
        """By any lease that was ever given, its time over or not."""
        if self.held:
            leased, _, version = data.draw(st.sampled_from(self.held))
            answer = Answer(200, data.draw(st.binary(max_size=3)))
            counted = self.queue.finish(leased.key, answer, version, self.now)
            assert counted == (leased.key not in self.first and version == self.version)
            if counted:
                self.first[leased.key], self.versions[leased.key] = answer, version

    @rule(data=st.data(), used=st.booleans())
    def give_back(self, data, used: bool) -> None:
        if self.held:
            place = data.draw(st.integers(0, len(self.held) - 1))
            self.queue.give_back(self.held.pop(place)[0].lease, used=used)

    @rule(seconds=st.sampled_from([1.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        _, ended = self.queue.expire(self.now)
        for key, answer in ended:
            assert key not in self.first and answer.status == 502
            assert b"none answered it; the last was worker" in answer.body
            self.first[key], self.versions[key] = answer, "the broker"

    @rule()
    def renew(self) -> None:
        lost = set(self.queue.renew([leased.lease for leased, _, _ in self.held], self.now))
        self.held = [(one, until if one.lease in lost else self.now + 10, by) for one, until, by in self.held]

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


Workers.TestCase.settings = settings(stateful_step_count=25)
TestWorkers = Workers.TestCase


def test_a_worker_gets_requests_of_its_models_and_of_none(tmp_path: Path) -> None:
    queue = WorkQueue(tmp_path / "q", LIMITS)
    for key, model in (("a", "one"), ("b", "two"), ("c", None)):
        queue.put(wanted(key, model), 0.0)
    queue.serve("w", {"two": "v", "three": None}, 0.0)
    assert [(leased.key, leased.model) for leased in queue.lease("w", ["two", "three"], 9, 0.0)] == [("b", "two"), ("c", None)]
    assert queue.lease("w", [], 9, 0.0) == []
    assert queue.prune(before=0.0) == 0
    assert not queue.finish("b", Answer(200, b""), "another", 5.0)
    assert queue.finish("b", Answer(200, b""), "v", 5.0)
    assert queue.prune(before=99.0) == 1 and queue.counts() == {"waiting": 1, "leased": 1, "done": 0}
    queue.close()


def test_a_request_for_a_model_that_nobody_serves_ends_while_others_are_served(tmp_path: Path) -> None:
    queue = WorkQueue(tmp_path / "q", LIMITS)
    for key, model in (("a", "m"), ("b", "mm"), ("c", None)):
        queue.put(wanted(key, model), 0.0)
    assert queue.refuse_unserved(100.0) == [], "no worker is there at all: they are yet to come"
    queue.serve("w", {"m": None}, 100.0)
    assert queue.refuse_unserved(20.0) == [], "not so soon"
    ((key, answer),) = queue.refuse_unserved(100.0)
    assert (key, answer.status) == ("b", 503)
    assert b"model is 'mm', which no worker has served; served now: 'm'" in answer.body
    assert queue.refuse_unserved(111.0) == []
    assert queue.put(wanted("b", "mm"), 111.0) is None, "asked again it waits again"
    queue.close()


def test_a_lease_runs_out_though_the_clock_steps_back(tmp_path: Path) -> None:
    """An hour back, a dead worker's lease lasted an hour and thirty seconds (red team, E-D5)."""
    queue = WorkQueue(tmp_path / "q", LIMITS)
    queue.serve("w", {"m": None}, 4000.0)
    queue.put(wanted("a"), 4000.0)
    queue.lease("w", ["m"], 1, 4000.0)
    assert queue.expire(400.0)[0] == 1, "a lease that ends later than a new one would is no promise"
    (again,) = queue.lease("w", ["m"], 1, 400.0)
    assert queue.expire(405.0)[0] == 0
    assert queue.renew([again.lease], 405.0) == []
    queue.close()


def test_what_a_worker_that_left_answered_stands_and_what_it_held_waits_again(tmp_path: Path) -> None:
    queue = WorkQueue(tmp_path / "q", LIMITS)
    queue.serve("w", {"m": "v"}, 1.0)
    for key in "ab":
        queue.put(wanted(key), 1.0)
    held = queue.lease("w", ["m"], 2, 1.0)
    assert queue.finish("a", Answer(200, b"yes"), "v", 1.0)
    queue.leave("w")
    assert queue.renew([one.lease for one in held], 2.0) == [one.lease for one in held]
    assert queue.put(wanted("a"), 2.0) == Answer(200, b"yes"), "its model still means what it meant"
    assert queue.refuse_unserved(100.0) == [], "nobody is there, so a misspelt name cannot be told from a late worker"
    queue.serve("other", {"m": "other"}, 3.0)
    assert [one.key for one in queue.lease("other", ["m"], 2, 3.0)] == ["b"]
    assert queue.put(wanted("a"), 3.0) is None, "another version answers again"
    queue.close()


def test_a_name_is_of_one_request(tmp_path: Path) -> None:
    queue = WorkQueue(tmp_path / "q", LIMITS)
    assert queue.put(wanted("k"), 0.0) is None
    with pytest.raises(OtherRequestError, match="'k' names another request"):
        queue.put(wanted("k", says="something else"), 0.0)
    queue.finish("k", Answer(200, b"yes"), None, 1.0)
    with pytest.raises(OtherRequestError):
        queue.put(wanted("k", says="something else"), 2.0)
    assert queue.put(wanted("k"), 2.0) == Answer(200, b"yes")
    queue.close()


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "q") as db:
        db.execute("CREATE TABLE requests (number INTEGER PRIMARY KEY)")
    db.close()
    with pytest.raises(ValueError, match=r"q has schema 0 of a broker's file; 3 is allowed: use a new file"):
        WorkQueue(tmp_path / "q", LIMITS)


def test_requests_are_the_same_where_their_answer_is() -> None:
    body = {"model": "m", "prompt": "a", "temperature": 0}

    def same(path: str, one: dict, other: dict) -> bool:
        return key_of("POST", path, one) == key_of("POST", path, other)

    assert same("/v1/completions", body, dict(reversed(body.items())))
    assert not same("/v1/completions", body, body | {"prompt": "b"})
    assert not same("/v1/completions", body | {"temperature": 1}, body | {"temperature": 1})
    assert not same("/v1/completions", body | {"temperature": 1, "seed": 3}, body | {"temperature": 1, "seed": 3})
    assert same("/tokenize", {"model": "m", "prompt": "a"}, {"model": "m", "prompt": "a"})
    assert not same("/tokenize", {"prompt": "a"}, {"prompt": "a"}), "whoever answers next may serve another model"
    assert key_of("POST", "/v1/completions", body, "mine") == key_of("POST", "/v1/completions", body | {"prompt": "b"}, "mine")
    assert key_of("POST", "/v1/completions", body, digest_of("/v1/completions", body)) != key_of(
        "POST", "/v1/completions", body
    )
    assert key_of("POST", "/v1/completions", body) != key_of("POST", "/v1/chat/completions", body)


@pytest.mark.parametrize("field", ["lease_seconds", "max_attempts", "max_open", "unserved_seconds"])
def test_limits_must_be_positive(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is 0; it must be positive"):
        QueueLimits(**{field: 0})
