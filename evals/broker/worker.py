"""A worker: leases requests from a broker, asks a server of OpenAI's API, and hands the answers back.

    python -m evals.broker.worker --broker http://127.0.0.1:8100 --server http://127.0.0.1:8001

It may be killed at any moment: its leases run out and others take them. Its server may die: it gives its requests back, says
so, and takes new ones when the server answers again; what a dead server was not asked costs a request no try.
"""

import argparse
import json
import logging
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from urllib3.exceptions import NewConnectionError

from evals.serve.refusals import read_key, says_nothing

log = logging.getLogger("evals.broker.worker")
POLL_SECONDS = 5.0
PAUSE_SECONDS = 0.5


@dataclass
class Worker:
    """Leases at most `concurrency` requests at a time."""

    broker: str
    server: str
    name: str
    concurrency: int = 16
    broker_key: str | None = None
    server_key: str | None = None
    request_seconds: float = 1800.0
    stopping: threading.Event = field(default_factory=threading.Event)
    held: set[str] = field(default_factory=set)
    lease_seconds: float = 1.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Work until `stopping` is set, then finish what is held."""
        renewing = threading.Thread(target=self._renew, daemon=True)
        renewing.start()
        places = threading.Semaphore(self.concurrency)
        with ThreadPoolExecutor(self.concurrency, "broker-worker") as pool:
            while not self.stopping.is_set():
                models = self._models()
                places.acquire()  # one is free: as many as are free are asked for
                free = 1 + sum(places.acquire(blocking=False) for _ in range(self.concurrency - 1))
                leased = self._lease(models, free) if models is not None else []
                for _ in range(free - len(leased)):
                    places.release()
                for request in leased:
                    pool.submit(self._answer, request).add_done_callback(lambda done: self._release(places, done.exception()))
                if models is None:
                    self.stopping.wait(PAUSE_SECONDS)

    def _release(self, places: threading.Semaphore, fault: BaseException | None) -> None:
        places.release()
        if fault is not None:
            log.error("a request was left to its lease: %r", fault)

    def _models(self) -> list[str] | None:
        """What the server serves; None while it does not answer."""
        try:
            found = requests.get(f"{self.server}/v1/models", headers=_bearer(self.server_key), timeout=30)
            found.raise_for_status()
            return [card["id"] for card in found.json()["data"]]
        except (requests.RequestException, ValueError, KeyError) as fault:
            log.warning("%s does not answer (%s); nothing is leased until it does", self.server, type(fault).__name__)
            return None

    def _lease(self, models: list[str], count: int) -> list[dict[str, Any]]:
        asked = {"worker": self.name, "models": models, "count": count, "wait": POLL_SECONDS}
        try:
            answer = self._to_broker("lease", asked)
        except requests.RequestException as fault:
            log.warning("the broker %s does not answer (%s); asking again", self.broker, type(fault).__name__)
            self.stopping.wait(PAUSE_SECONDS)
            return []
        self.lease_seconds = answer["lease_seconds"]
        with self.lock:
            self.held |= {request["lease"] for request in answer["requests"]}
        return answer["requests"]

    def _answer(self, request: dict[str, Any]) -> None:
        """Ask the server and tell the broker; the lease is held until the broker has it."""
        try:
            headers = {"content-type": "application/json", **_bearer(self.server_key)}
            where, body = self.server + request["path"], request["body"].encode()
            try:
                found = requests.request(request["method"], where, data=body, headers=headers, timeout=self.request_seconds)
            except requests.RequestException as fault:
                log.warning("%s failed on a request (%s); it is given back", self.server, type(fault).__name__)
                self._insist("give_back", {"lease": request["lease"], "used": not _never_reached(fault)})
                return
            if says_nothing(found.status_code):
                log.warning("%s answered %d; the request is given back", self.server, found.status_code)
                self._insist("give_back", {"lease": request["lease"], "used": found.status_code not in (429, 503)})
                self.stopping.wait(PAUSE_SECONDS)
                return
            query = {"key": request["key"], "status": found.status_code}
            told = self._insist("finish", found.content, query)
            if not told.get("counted", False):
                log.info("an answer came too late and was not counted")
        finally:
            with self.lock:
                self.held.discard(request["lease"])

    def _insist(self, path: str, body: dict[str, Any] | bytes, query: dict[str, Any] | None = None) -> dict[str, Any]:
        """Tell the broker, however long it is away: an answer that was made is not thrown away."""
        while True:
            try:
                return self._to_broker(path, body, query)
            except requests.RequestException as fault:
                if self.stopping.wait(PAUSE_SECONDS):
                    raise
                log.warning("the broker %s does not answer (%s); telling it again", self.broker, type(fault).__name__)

    def _to_broker(self, path: str, body: dict[str, Any] | bytes, query: dict[str, Any] | None = None) -> dict[str, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        where = f"{self.broker}/broker/{path}"
        found = requests.post(where, data, params=query, headers=_bearer(self.broker_key), timeout=60)
        found.raise_for_status()
        return found.json()

    def _renew(self) -> None:
        while not self.stopping.wait(self.lease_seconds / 3):
            with self.lock:
                held = sorted(self.held)
            if held:
                try:
                    self._to_broker("renew", {"leases": held})
                except requests.RequestException as fault:
                    log.warning("leases were not renewed: %s", type(fault).__name__)


def _never_reached(fault: requests.RequestException) -> bool:
    """Nobody listened, so the request cannot be what the server died of."""
    reason = getattr(fault.args[0], "reason", None) if fault.args else None
    return isinstance(reason, NewConnectionError)


def worker_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


def _bearer(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m evals.broker.worker", description=__doc__)
    parser.add_argument("--broker", required=True, help="URL of the broker")
    parser.add_argument("--server", required=True, help="URL of a server with OpenAI's API, without /v1")
    parser.add_argument("--concurrency", type=int, default=16, help="requests at the server at a time")
    parser.add_argument("--broker-key-file", type=Path, help="file with the broker's key")
    parser.add_argument("--server-key-file", type=Path, help="file with the server's key")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    keys = read_key(given.broker_key_file), read_key(given.server_key_file)
    worker = Worker(given.broker.rstrip("/"), given.server.rstrip("/"), worker_name(), given.concurrency, *keys)
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: worker.stopping.set())
    log.info("%s: from %s to %s", worker.name, worker.broker, worker.server)
    worker.run()


if __name__ == "__main__":
    main()
