"""The broker's queue: one SQLite file of requests, each waiting, leased until a time, or done with its answer.

- Every change is one transaction, so a broker that is killed at any moment loses nothing.
- The first answer of a request counts. Later answers, from workers whose lease expired while they worked, change nothing.
- Workers report which version of a model they serve. An answer is valid while the model's name means that version; a
  request that another version answered is queued again, unless the client named it.
- Times are seconds since 1970, given by the caller, because leases outlive the process.
"""

import json
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.broker.forms import NAMED
from serving.broker.schema import open_file

CURRENT = "(SELECT version FROM served WHERE model = requests.model ORDER BY seen_at DESC, left LIMIT 1)"
"""SQL for the current version of a request's model; null if no worker reported one or the request names no model."""


@dataclass(frozen=True)
class QueueLimits:
    """Limits of a queue."""

    lease_seconds: float = 30.0
    """Seconds that a lease lasts without renewal."""
    max_attempts: int = 5
    """Number of leases that one request may use."""
    max_open: int = 100_000
    """Number of requests that may wait or be leased."""
    unserved_seconds: float = 60.0
    """Seconds that a request waits for a model that no worker serves, while others are served."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"{name} is {value}; it must be positive")


@dataclass(frozen=True)
class Answer:
    """An HTTP status and the body of an answer."""

    status: int
    body: bytes


@dataclass(frozen=True)
class Wanted:
    """A client's request. `key` names it; `digest` of its content shows when one name is used for two requests."""

    key: str
    digest: str
    method: str
    path: str
    body: bytes
    model: str | None

    @property
    def named(self) -> bool:
        """Whether the client named the request, so that its first answer stays valid."""
        return self.key.startswith(NAMED)


@dataclass(frozen=True)
class Leased:
    """A request that a worker holds."""

    lease: str
    key: str
    model: str | None
    method: str
    path: str
    body: bytes


class FullError(RuntimeError):
    """The broker has as many open requests as it allows."""


class OtherRequestError(RuntimeError):
    """The key of a request belongs to a different request."""


class OtherVersionError(RuntimeError):
    """A worker serves other bytes under a name than another live worker."""


class WorkQueue:
    """The queue of requests. Not thread-safe: the application calls it from one thread."""

    def __init__(self, path: Path, limits: QueueLimits) -> None:
        self.limits = limits
        self.db = open_file(path)

    def close(self) -> None:
        self.db.close()

    def put(self, wanted: Wanted, now: float) -> Answer | None:
        """Record a request if it is new; return its answer if it has one.

        A request whose recorded answer is our failure (5xx) waits again. A request that the client did not name also
        waits again if its answer is of another version of its model. A named request is answered once.
        Raises: FullError, OtherRequestError.
        """
        question = f"SELECT state, status, answer, digest, version IS {CURRENT} FROM requests WHERE key = ?"
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            row_on_record = self.db.execute(question, (wanted.key,)).fetchone()
            if row_on_record is None:
                (open_now,) = self.db.execute("SELECT count(*) FROM requests WHERE state != 'done'").fetchone()
                if open_now >= self.limits.max_open:
                    raise FullError(f"{open_now} requests are open; at most {self.limits.max_open} are allowed")
                row = (*vars(wanted).values(), now)
                names = f"{', '.join(vars(wanted))}, put_at, state"
                self.db.execute(f"INSERT INTO requests ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting')", row)
                return None
            state, status, answer, digest, current = row_on_record
            if digest != wanted.digest:
                raise OtherRequestError(f"{wanted.key!r} names another request, on {wanted.path} or elsewhere")
            if state == "done" and (status >= 500 or not (current or wanted.named)):
                again = "state = 'waiting', attempts = 0, status = NULL, answer = NULL, done_at = NULL, put_at = ?"
                self.db.execute(f"UPDATE requests SET {again} WHERE key = ?", (now, wanted.key))
                return None
            return Answer(status, answer) if state == "done" else None

    def serve(self, worker: str, models: Mapping[str, str | None], now: float) -> None:
        """Record the models that a worker serves, each name with its version or None. Raises: OtherVersionError."""
        alive = now - self.limits.lease_seconds
        leased = "SELECT worker FROM requests WHERE state = 'leased' AND lease_until >= ?"
        another = f"worker != ? AND version IS NOT ? AND (seen_at >= ? AND NOT left OR worker IN ({leased}))"
        new = "INSERT INTO served (model, worker, version, seen_at) VALUES (?, ?, ?, ?)"
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            for model, version in models.items():
                parameters = (model, worker, version, alive, now)
                other = self.db.execute(
                    f"SELECT worker, version FROM served WHERE model = ? AND {another}", parameters
                ).fetchone()
                if other is not None:
                    raise OtherVersionError(
                        f"{worker} serves {model!r} as {version}, and {other[0]}, seen in the last "
                        f"{self.limits.lease_seconds:g} s, as {other[1]}; one name means one version at a time: stop that "
                        "worker, or give this model another name"
                    )
                seen = (model, worker, version, now)
                again = "version = excluded.version, seen_at = excluded.seen_at, left = 0"
                self.db.execute(f"{new} ON CONFLICT DO UPDATE SET {again}", seen)

    def leave(self, worker: str) -> None:
        """Sign a worker off: other versions may use its names at once, and the requests that it held wait again.

        The current version of its models stays until another version comes, so recorded answers stay valid.
        """
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            self.db.execute("UPDATE served SET left = 1 WHERE worker = ?", (worker,))
            again = "UPDATE requests SET state = 'waiting', lease = NULL WHERE state = 'leased' AND worker = ?"
            self.db.execute(again, (worker,))

    def lease(self, worker: str, models: Collection[str], count: int, now: float) -> list[Leased]:
        """Lease up to `count` requests, the oldest first, that name one of these models or do not name a model.

        A request that has had all its attempts is not leased. `now` is in seconds.
        """
        of_models = f"(model IS NULL OR model IN ({', '.join('?' * len(models))}))" if models else "model IS NULL"
        chosen = f"SELECT number FROM requests WHERE state = 'waiting' AND attempts < ? AND {of_models} ORDER BY number LIMIT ?"
        given = "state = 'leased', lease = ?, worker = ?, lease_until = ?, attempts = attempts + 1"
        leased = []
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            for (number,) in self.db.execute(chosen, (self.limits.max_attempts, *models, count)).fetchall():
                name = uuid.uuid4().hex
                until = now + self.limits.lease_seconds
                self.db.execute(f"UPDATE requests SET {given} WHERE number = ?", (name, worker, until, number))
                row = self.db.execute(
                    "SELECT key, model, method, path, body FROM requests WHERE number = ?", (number,)
                ).fetchone()
                leased.append(Leased(name, *row))
        return leased

    def renew(self, leases: Collection[str], now: float) -> list[str]:
        """Extend leases; returns those that are lost (expired and leased again, or answered)."""
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            until = now + self.limits.lease_seconds
            held = "UPDATE requests SET lease_until = ? WHERE lease = ? AND state = 'leased'"
            return [lease for lease in leases if not self.db.execute(held, (until, lease)).rowcount]

    def finish(self, key: str, answer: Answer, version: str | None, now: float) -> bool:
        """Record an answer; False if the request is unknown, has an answer, or needs another version of its model.

        A worker whose lease expired may still be the first to answer.
        """
        ended = "state = 'done', status = ?, answer = ?, version = ?, done_at = ?, lease = NULL"
        wanted = f"key = ? AND state != 'done' AND (model IS NULL OR ? IS {CURRENT})"
        with self.db:
            row = (answer.status, answer.body, version, now, key, version)
            return self.db.execute(f"UPDATE requests SET {ended} WHERE {wanted}", row).rowcount == 1

    def give_back(self, lease: str, *, used: bool) -> None:
        """Return a lease: the request waits again. `used`: the request was tried, so the try counts."""
        again = "UPDATE requests SET state = 'waiting', lease = NULL, attempts = attempts - ? WHERE lease = ?"
        with self.db:
            self.db.execute(f"{again} AND state = 'leased'", (0 if used else 1, lease))

    def expire(self, now: float) -> tuple[int, list[tuple[str, Answer]]]:
        """Requeue requests of expired leases; returns how many, and the errors of requests that have no tries left.

        A lease that ends later than a new one would was given before the clock stepped back. It counts as expired, because its
        worker may be dead; if the worker is alive, it may still answer first.
        """
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            run_out = "(lease_until < ? OR lease_until > ?)"
            free = f"UPDATE requests SET state = 'waiting', lease = NULL WHERE state = 'leased' AND {run_out}"
            freed = self.db.execute(free, (now, now + self.limits.lease_seconds)).rowcount
            spent = "SELECT key, attempts, worker FROM requests WHERE state = 'waiting' AND attempts >= ?"
            spent_requests = self.db.execute(spent, (self.limits.max_attempts,)).fetchall()
            message = "{} workers took this request and none answered it; the last was {}"
            return freed, [self._end(key, 502, message.format(*tried), "gave_up", now) for key, *tried in spent_requests]

    def refuse_unserved(self, now: float) -> list[tuple[str, Answer]]:
        """Refuse requests for a model that no worker ever served, while others are served (a misspelt name); returns them."""
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            query = "SELECT DISTINCT model FROM served WHERE seen_at >= ? AND NOT left ORDER BY model"
            served = [model for (model,) in self.db.execute(query, (now - self.limits.lease_seconds,))]
            of_nobody = "state = 'waiting' AND put_at < ? AND model IS NOT NULL AND model NOT IN (SELECT model FROM served)"
            late = now - self.limits.unserved_seconds
            unserved = (
                self.db.execute(f"SELECT key, model FROM requests WHERE {of_nobody}", (late,)).fetchall() if served else []
            )
            message = "model is {!r}, which no worker has served; served now: {}"
            names = ", ".join(map(repr, served))
            return [self._end(key, 503, message.format(model, names), "model_not_served", now) for key, model in unserved]

    def _end(self, key: str, status: int, message: str, code: str, now: float) -> tuple[str, Answer]:
        """Answer a request with an error in OpenAI's form."""
        error = {"message": message, "type": "server_error", "param": None, "code": code}
        answer = Answer(status, json.dumps({"error": error}).encode())
        done = "UPDATE requests SET state = 'done', status = ?, answer = ?, done_at = ? WHERE key = ?"
        self.db.execute(done, (answer.status, answer.body, now, key))
        return key, answer

    def answer(self, key: str) -> Answer | None:
        row = self.db.execute("SELECT status, answer FROM requests WHERE key = ? AND state = 'done'", (key,)).fetchone()
        return None if row is None else Answer(*row)

    def counts(self) -> dict[str, int]:
        """Return requests by state."""
        by_state = dict(self.db.execute("SELECT state, count(*) FROM requests GROUP BY state").fetchall())
        return {state: by_state.get(state, 0) for state in ("waiting", "leased", "done")}

    def prune(self, before: float) -> int:
        """Delete answers from before a time, and workers not seen since; returns the number of requests deleted."""
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            self.db.execute("DELETE FROM served WHERE seen_at < ?", (before,))
            return self.db.execute("DELETE FROM requests WHERE state = 'done' AND done_at < ?", (before,)).rowcount
