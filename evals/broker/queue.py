"""The broker's memory: requests in one SQLite file, each waiting, leased until a time, or done with its answer.

Every change is one transaction, so a broker that is killed at any moment finds everything again. The first answer of a request
counts; later ones (of a worker whose lease ran out while it worked) change nothing. Times are seconds since 1970, given by
the caller: leases outlive the process that gave them.
"""

import json
import sqlite3
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    model TEXT,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    body BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'leased', 'done')),
    attempts INTEGER NOT NULL DEFAULT 0,
    lease TEXT,
    worker TEXT,
    lease_until REAL,
    status INTEGER,
    answer BLOB,
    put_at REAL NOT NULL,
    done_at REAL
);
CREATE INDEX IF NOT EXISTS requests_by_state ON requests (state, number);
CREATE INDEX IF NOT EXISTS requests_by_lease ON requests (lease) WHERE lease IS NOT NULL;
"""


@dataclass(frozen=True)
class QueueLimits:
    """How long a lease lasts without being renewed, how many leases a request may use up, and how many requests may be open."""

    lease_seconds: float = 30.0
    max_attempts: int = 5
    max_open: int = 100_000

    def __post_init__(self) -> None:
        for name in ("lease_seconds", "max_attempts", "max_open"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive")


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes


@dataclass(frozen=True)
class Leased:
    """A request that a worker holds."""

    lease: str
    key: str
    method: str
    path: str
    body: bytes


class FullError(RuntimeError):
    """More requests are open than the broker promises to hold."""


class WorkQueue:
    """Not for several threads at once: the application calls it from one."""

    def __init__(self, path: Path, limits: QueueLimits) -> None:
        self.limits = limits
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.executescript(SCHEMA)

    def close(self) -> None:
        self.db.close()

    def put(self, key: str, method: str, path: str, body: bytes, model: str | None, now: float) -> Answer | None:
        """Write a request down, unless it is already there; its answer where it has one.

        A request whose recorded answer is a failure of ours (5xx) waits again. Raises: FullError.
        """
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            found = self.db.execute("SELECT state, status, answer FROM requests WHERE key = ?", (key,)).fetchone()
            if found is None:
                (open_now,) = self.db.execute("SELECT count(*) FROM requests WHERE state != 'done'").fetchone()
                if open_now >= self.limits.max_open:
                    raise FullError(f"{open_now} requests are open; at most {self.limits.max_open} may be")
                row = (key, model, method, path, body, now)
                names = "key, model, method, path, body, put_at, state"
                self.db.execute(f"INSERT INTO requests ({names}) VALUES (?, ?, ?, ?, ?, ?, 'waiting')", row)
                return None
            state, status, answer = found
            if state == "done" and status >= 500:
                again = "state = 'waiting', attempts = 0, status = NULL, answer = NULL, done_at = NULL"
                self.db.execute(f"UPDATE requests SET {again} WHERE key = ?", (key,))
                return None
            return Answer(status, answer) if state == "done" else None

    def lease(self, worker: str, models: Sequence[str], count: int, now: float) -> list[Leased]:
        """Up to `count` of the requests that wait longest, of these models or of none, to a worker."""
        of_models = f"(model IS NULL OR model IN ({', '.join('?' * len(models))}))" if models else "model IS NULL"
        chosen = f"SELECT number FROM requests WHERE state = 'waiting' AND {of_models} ORDER BY number LIMIT ?"
        leased = []
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            for (number,) in self.db.execute(chosen, (*models, count)).fetchall():
                name = uuid.uuid4().hex
                self.db.execute(
                    "UPDATE requests SET state = 'leased', lease = ?, worker = ?, lease_until = ?, attempts = attempts + 1 "
                    "WHERE number = ?",
                    (name, worker, now + self.limits.lease_seconds, number),
                )
                row = self.db.execute("SELECT key, method, path, body FROM requests WHERE number = ?", (number,)).fetchone()
                leased.append(Leased(name, *row))
        return leased

    def renew(self, leases: Sequence[str], now: float) -> list[str]:
        """Hold leases for longer; those that are lost (run out and given on, or answered)."""
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            until = now + self.limits.lease_seconds
            held = "UPDATE requests SET lease_until = ? WHERE lease = ? AND state = 'leased'"
            return [lease for lease in leases if not self.db.execute(held, (until, lease)).rowcount]

    def finish(self, key: str, answer: Answer, now: float) -> bool:
        """Record an answer; False where the request had one, or is not known. A worker without its lease may still be first."""
        ended = "UPDATE requests SET state = 'done', status = ?, answer = ?, done_at = ?, lease = NULL WHERE key = ?"
        with self.db:
            return self.db.execute(f"{ended} AND state != 'done'", (answer.status, answer.body, now, key)).rowcount == 1

    def give_back(self, lease: str, *, used: bool) -> None:
        """A worker could not: the request waits again. `used`: it was tried, and the try counts."""
        again = "UPDATE requests SET state = 'waiting', lease = NULL, attempts = attempts - ? WHERE lease = ?"
        with self.db:
            self.db.execute(f"{again} AND state = 'leased'", (0 if used else 1, lease))

    def expire(self, now: float) -> tuple[int, list[str]]:
        """Requests of leases that ran out wait again: how many, and the keys of those that end here, their tries used up."""
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            free = "UPDATE requests SET state = 'waiting', lease = NULL WHERE state = 'leased' AND lease_until < ?"
            freed = self.db.execute(free, (now,)).rowcount
            spent = "SELECT key, attempts, worker FROM requests WHERE state = 'waiting' AND attempts >= ?"
            ended = self.db.execute(spent, (self.limits.max_attempts,)).fetchall()
            for key, attempts, worker in ended:
                message = f"{attempts} workers took this request and none answered it, the last one {worker}"
                body = json.dumps({"error": {"message": message, "type": "server_error", "param": None, "code": "gave_up"}})
                done = "UPDATE requests SET state = 'done', status = 502, answer = ?, done_at = ? WHERE key = ?"
                self.db.execute(done, (body.encode(), now, key))
        return freed, [key for key, _, _ in ended]

    def answer(self, key: str) -> Answer | None:
        found = self.db.execute("SELECT status, answer FROM requests WHERE key = ? AND state = 'done'", (key,)).fetchone()
        return None if found is None else Answer(*found)

    def counts(self) -> dict[str, int]:
        """Requests by state."""
        found = dict(self.db.execute("SELECT state, count(*) FROM requests GROUP BY state").fetchall())
        return {state: found.get(state, 0) for state in ("waiting", "leased", "done")}

    def prune(self, before: float) -> int:
        """Forget what was answered before a time; how many."""
        with self.db:
            return self.db.execute("DELETE FROM requests WHERE state = 'done' AND done_at < ?", (before,)).rowcount
