"""The broker's memory: requests in one SQLite file, each waiting, leased until a time, or done with its answer.

Every change is one transaction, so a broker that is killed at any moment finds everything again. The first answer of a request
counts; later ones (of a worker whose lease ran out while it worked) change nothing. An answer stands for as long as the model's
name means the same bytes: workers say which version they serve, and what another version answered is asked anew. Times are
seconds since 1970, given by the caller: leases outlive the process that gave them.
"""

import json
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.broker.schema import open_file

CURRENT = "(SELECT version FROM served WHERE model = requests.model ORDER BY seen_at DESC, left LIMIT 1)"
"""What a request's model means now; null where nobody said, and for a request that names no model."""


@dataclass(frozen=True)
class QueueLimits:
    """What a queue promises and what not."""

    lease_seconds: float = 30.0
    """How long a lease lasts without being renewed."""
    max_attempts: int = 5
    """How many leases a request may use up."""
    max_open: int = 100_000
    """How many requests may wait or be leased."""
    unserved_seconds: float = 60.0
    """How long one waits for a model that nobody serves, while others are served."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"{name} is {value}; it must be positive")


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes


@dataclass(frozen=True)
class Wanted:
    """A client's request. `key` names it; `digest` is of what it says, so that a name is not used for two requests."""

    key: str
    digest: str
    method: str
    path: str
    body: bytes
    model: str | None


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
    """More requests are open than the broker promises to hold."""


class OtherRequestError(RuntimeError):
    """The name of a request was given to another one before."""


class OtherVersionError(RuntimeError):
    """A worker serves a name with other bytes than another worker that is still heard of."""


class WorkQueue:
    """Not for several threads at once: the application calls it from one."""

    def __init__(self, path: Path, limits: QueueLimits) -> None:
        self.limits = limits
        self.db = open_file(path)

    def close(self) -> None:
        self.db.close()

    def put(self, wanted: Wanted, now: float) -> Answer | None:
        """Write a request down, unless it is already there; its answer where it has one.

        A request whose recorded answer is a failure of ours (5xx), or is of another version of its model, waits again.
        Raises: FullError, OtherRequestError.
        """
        known = f"SELECT state, status, answer, digest, version IS {CURRENT} FROM requests WHERE key = ?"
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            found = self.db.execute(known, (wanted.key,)).fetchone()
            if found is None:
                (open_now,) = self.db.execute("SELECT count(*) FROM requests WHERE state != 'done'").fetchone()
                if open_now >= self.limits.max_open:
                    raise FullError(f"{open_now} requests are open; at most {self.limits.max_open} may be")
                row = (*vars(wanted).values(), now)
                names = f"{', '.join(vars(wanted))}, put_at, state"
                self.db.execute(f"INSERT INTO requests ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting')", row)
                return None
            state, status, answer, digest, current = found
            if digest != wanted.digest:
                raise OtherRequestError(f"{wanted.key!r} names another request, on {wanted.path} or elsewhere")
            if state == "done" and (status >= 500 or not current):
                again = "state = 'waiting', attempts = 0, status = NULL, answer = NULL, done_at = NULL, put_at = ?"
                self.db.execute(f"UPDATE requests SET {again} WHERE key = ?", (now, wanted.key))
                return None
            return Answer(status, answer) if state == "done" else None

    def serve(self, worker: str, models: Mapping[str, str | None], now: float) -> None:
        """A worker says what it serves, each name with its version (None: it does not know). Raises: OtherVersionError."""
        alive = now - self.limits.lease_seconds
        leased = "SELECT worker FROM requests WHERE state = 'leased' AND lease_until >= ?"
        another = f"worker != ? AND version IS NOT ? AND (seen_at >= ? AND NOT left OR worker IN ({leased}))"
        new = "INSERT INTO served (model, worker, version, seen_at) VALUES (?, ?, ?, ?)"
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            for model, version in models.items():
                asked = (model, worker, version, alive, now)
                found = self.db.execute(f"SELECT worker, version FROM served WHERE model = ? AND {another}", asked).fetchone()
                if found is not None:
                    raise OtherVersionError(
                        f"{worker} serves {model!r} as {version}, and {found[0]}, heard of in the last "
                        f"{self.limits.lease_seconds:g} s, as {found[1]}; one name is one version at a time: end that "
                        "worker, or give this model another name"
                    )
                seen = (model, worker, version, now)
                again = "version = excluded.version, seen_at = excluded.seen_at, left = 0"
                self.db.execute(f"{new} ON CONFLICT DO UPDATE SET {again}", seen)

    def leave(self, worker: str) -> None:
        """A worker takes no more: its names are free for another version at once, and what it held waits again.

        What its models mean stays until another version comes: answers on record keep standing.
        """
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            self.db.execute("UPDATE served SET left = 1 WHERE worker = ?", (worker,))
            again = "UPDATE requests SET state = 'waiting', lease = NULL WHERE state = 'leased' AND worker = ?"
            self.db.execute(again, (worker,))

    def lease(self, worker: str, models: Collection[str], count: int, now: float) -> list[Leased]:
        """Up to `count` of the requests that wait longest, of these models or of none, to a worker that said what it serves."""
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
        """Hold leases for longer; those that are lost (run out and given on, or answered)."""
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            until = now + self.limits.lease_seconds
            held = "UPDATE requests SET lease_until = ? WHERE lease = ? AND state = 'leased'"
            return [lease for lease in leases if not self.db.execute(held, (until, lease)).rowcount]

    def finish(self, key: str, answer: Answer, version: str | None, now: float) -> bool:
        """Record the answer of a version of its model; False where the request had one, is not known, or wants another version.

        A worker without its lease may still be first.
        """
        ended = "state = 'done', status = ?, answer = ?, version = ?, done_at = ?, lease = NULL"
        wanted = f"key = ? AND state != 'done' AND (model IS NULL OR ? IS {CURRENT})"
        with self.db:
            row = (answer.status, answer.body, version, now, key, version)
            return self.db.execute(f"UPDATE requests SET {ended} WHERE {wanted}", row).rowcount == 1

    def give_back(self, lease: str, *, used: bool) -> None:
        """A worker could not: the request waits again. `used`: it was tried, and the try counts."""
        again = "UPDATE requests SET state = 'waiting', lease = NULL, attempts = attempts - ? WHERE lease = ?"
        with self.db:
            self.db.execute(f"{again} AND state = 'leased'", (0 if used else 1, lease))

    def expire(self, now: float) -> tuple[int, list[tuple[str, Answer]]]:
        """Requests of leases that ran out wait again: how many, and the answers of those that end here, their tries used up.

        A lease that ends later than a new one would was given before the clock stepped back. It counts as run out, because
        its worker may be dead; one that is alive may still answer first.
        """
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            run_out = "(lease_until < ? OR lease_until > ?)"
            free = f"UPDATE requests SET state = 'waiting', lease = NULL WHERE state = 'leased' AND {run_out}"
            freed = self.db.execute(free, (now, now + self.limits.lease_seconds)).rowcount
            spent = "SELECT key, attempts, worker FROM requests WHERE state = 'waiting' AND attempts >= ?"
            found = self.db.execute(spent, (self.limits.max_attempts,)).fetchall()
            message = "{} workers took this request and none answered it, the last one {}"
            return freed, [self._end(key, 502, message.format(*tried), "gave_up", now) for key, *tried in found]

    def refuse_unserved(self, now: float) -> list[tuple[str, Answer]]:
        """The answers of requests that end here: nobody ever served their model, while others are served; a name misspelt."""
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            heard = "SELECT DISTINCT model FROM served WHERE seen_at >= ? AND NOT left ORDER BY model"
            served = [model for (model,) in self.db.execute(heard, (now - self.limits.lease_seconds,))]
            of_nobody = "state = 'waiting' AND put_at < ? AND model IS NOT NULL AND model NOT IN (SELECT model FROM served)"
            late = now - self.limits.unserved_seconds
            found = self.db.execute(f"SELECT key, model FROM requests WHERE {of_nobody}", (late,)).fetchall() if served else []
            message = "model is {!r}, which no worker has served so far; served now: {}"
            names = ", ".join(map(repr, served))
            return [self._end(key, 503, message.format(model, names), "model_not_served", now) for key, model in found]

    def _end(self, key: str, status: int, message: str, code: str, now: float) -> tuple[str, Answer]:
        """The broker's own answer to a request, in OpenAI's form."""
        error = {"message": message, "type": "server_error", "param": None, "code": code}
        answer = Answer(status, json.dumps({"error": error}).encode())
        done = "UPDATE requests SET state = 'done', status = ?, answer = ?, done_at = ? WHERE key = ?"
        self.db.execute(done, (answer.status, answer.body, now, key))
        return key, answer

    def answer(self, key: str) -> Answer | None:
        found = self.db.execute("SELECT status, answer FROM requests WHERE key = ? AND state = 'done'", (key,)).fetchone()
        return None if found is None else Answer(*found)

    def counts(self) -> dict[str, int]:
        """Requests by state."""
        found = dict(self.db.execute("SELECT state, count(*) FROM requests GROUP BY state").fetchall())
        return {state: found.get(state, 0) for state in ("waiting", "leased", "done")}

    def prune(self, before: float) -> int:
        """Forget what was answered before a time, and workers not heard of since; how many requests."""
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            self.db.execute("DELETE FROM served WHERE seen_at < ?", (before,))
            return self.db.execute("DELETE FROM requests WHERE state = 'done' AND done_at < ?", (before,)).rowcount
