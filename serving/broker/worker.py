"""A worker: leases requests from a broker, asks a server of OpenAI's API, and hands the answers back.

    python -m serving.broker.worker --broker http://127.0.0.1:8100 --server http://127.0.0.1:8001

It may be killed at any moment: its leases run out and others take them. Its server may die: it gives its requests back, says
so, and takes new ones when the server answers again; what a dead server was not asked costs a request no try. With an answer
goes the version of the model that gave it, as the server's `/v1/models` says it (`data_version`) or whoever started the worker.
"""

import argparse
import json
import logging
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from urllib3.exceptions import NewConnectionError, ReadTimeoutError

from serving.broker.forms import MOST_ANSWER_BYTES, MOST_LEASES
from serving.refusals import MODEL_VERSION_HEADER, RequestError, read_key, says_nothing

log = logging.getLogger("serving.broker.worker")
POLL_SECONDS = 5.0
PAUSE_SECONDS = 0.5
LAST_WORDS_SECONDS = 60.0
"""How long a worker that is to end tries to tell a broker that is away what it has."""


@dataclass
class Worker:
    """Leases at most `concurrency` requests at a time."""

    broker: str
    server: str
    name: str
    concurrency: int = 16
    broker_key: str | None = None
    server_key: str | None = None
    model_version: str | None = None
    """Of a server that does not say it itself."""
    own_server: bool = False
    """The server runs in this process. It answers whatever it failed on, so a connection that breaks (it was closing, and had
    accepted what it never read) says nothing about the request; and a death without an answer is this worker's too."""
    request_seconds: float = 1800.0
    stopping: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    held: set[str] = field(default_factory=set)
    lease_seconds: float = 1.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Work until `stopping` is set, then finish what is held. Raises: RuntimeError when the broker refuses the worker."""
        renewing = threading.Thread(target=self._renew, daemon=True)
        renewing.start()
        try:
            with ThreadPoolExecutor(self.concurrency, "broker-worker") as pool:
                self._take(pool)
        finally:
            self.ended.set()
        self._leave()

    def _leave(self) -> None:
        """Another version may have the name at once; a broker that is away finds out by the time that passed."""
        try:
            self._to_broker("leave", {"worker": self.name})
        except requests.RequestException as fault:
            log.warning("the broker %s does not know that this worker ended: %s", self.broker, _told(fault))

    def _take(self, pool: ThreadPoolExecutor) -> None:
        places = threading.Semaphore(self.concurrency)
        while not self.stopping.is_set():
            places.acquire()  # one is free: as many as are free are asked for
            free = 1 + sum(places.acquire(blocking=False) for _ in range(self.concurrency - 1))
            models = self._models()
            leased = self._lease(models, free) if models is not None else []
            for _ in range(free - len(leased)):
                places.release()
            for request in leased:
                version = (models or {}).get(request["model"])
                work = pool.submit(self._answer, request, version)
                work.add_done_callback(lambda done: self._release(places, done.exception()))
            if models is None:
                self.stopping.wait(PAUSE_SECONDS)

    def _release(self, places: threading.Semaphore, fault: BaseException | None) -> None:
        places.release()
        if fault is not None:
            log.error("a request was left to its lease: %r", fault)

    def _models(self) -> dict[str, str | None] | None:
        """What the server serves, with the version of each; None while it does not answer."""
        try:
            found = requests.get(f"{self.server}/v1/models", headers=_bearer(self.server_key), timeout=30)
            found.raise_for_status()
            return {card["id"]: self.model_version or card.get("data_version") for card in found.json()["data"]}
        except (requests.RequestException, ValueError, KeyError) as fault:
            log.warning("%s does not answer (%s); nothing is leased until it does", self.server, _told(fault))
            return None

    def _lease(self, models: dict[str, str | None], count: int) -> list[dict[str, Any]]:
        asked = {"worker": self.name, "models": models, "count": min(count, MOST_LEASES), "wait": POLL_SECONDS}
        try:
            answer = self._to_broker("lease", asked)
        except requests.RequestException as fault:
            if _is_final(fault):
                raise RuntimeError(f"the broker {self.broker} refuses this worker: {_told(fault)}") from fault
            log.warning("the broker %s gives nothing (%s); asking again", self.broker, _told(fault))
            self.stopping.wait(PAUSE_SECONDS)
            return []
        self.lease_seconds = answer["lease_seconds"]
        with self.lock:
            self.held |= {request["lease"] for request in answer["requests"]}
        return answer["requests"]

    def _answer(self, request: dict[str, Any], version: str | None) -> None:
        """Ask the server and tell the broker; the lease is held until the broker has it."""
        try:
            found = self._ask(request)
            if found is None:
                return
            said = found.headers.get(MODEL_VERSION_HEADER)
            if said is not None and version is not None and self.model_version is None and said != version:
                log.warning("%s serves another version than it said; the request is given back", self.server)
                self._insist("give_back", {"lease": request["lease"], "used": False})
                return
            status, body = found.status_code, found.content
            if len(body) > MOST_ANSWER_BYTES:
                message = f"the answer has {len(body)} bytes; at most {MOST_ANSWER_BYTES} are recorded: ask for less at a time"
                status, body = 413, json.dumps(RequestError(413, message, code="answer_too_long").body()).encode()
            query = {"key": request["key"], "status": status} | ({} if version is None else {"version": version})
            if not self._insist("finish", body, query).get("counted", False):
                log.info("an answer came too late and was not counted")
        finally:
            with self.lock:
                self.held.discard(request["lease"])

    def _ask(self, request: dict[str, Any]) -> requests.Response | None:
        """The server's answer; None where it said nothing about the request, which is given back then."""
        headers = {"content-type": "application/json", **_bearer(self.server_key)}
        where, body = self.server + request["path"], request["body"].encode()
        try:
            found = requests.request(request["method"], where, data=body, headers=headers, timeout=self.request_seconds)
        except requests.RequestException as fault:
            log.warning("%s failed on a request (%s); it is given back", self.server, type(fault).__name__)
            self._insist("give_back", {"lease": request["lease"], "used": not self._was_not_asked(fault)})
            return None
        if not says_nothing(found.status_code):
            return found
        log.warning("%s answered %d; the request is given back", self.server, found.status_code)
        self._insist("give_back", {"lease": request["lease"], "used": self._was_tried(found)})
        self.stopping.wait(PAUSE_SECONDS)
        return None

    def _was_not_asked(self, fault: requests.RequestException) -> bool:
        """Nobody listened, or our own server closed: the request cannot be what a server died of."""
        reason = getattr(fault.args[0], "reason", fault.args[0]) if fault.args else None
        if isinstance(reason, NewConnectionError):
            return True
        return self.own_server and isinstance(fault, requests.ConnectionError) and not isinstance(reason, ReadTimeoutError)

    def _was_tried(self, found: requests.Response) -> bool:
        """Not where the server says so, nor where our own is closing and cut its answers short."""
        if found.status_code in (429, 503):
            return False
        return not self.own_server or b'"scheduler_fault"' in found.content or self._models() is not None

    def _insist(self, path: str, body: dict[str, Any] | bytes, query: dict[str, Any] | None = None) -> dict[str, Any]:
        """Tell the broker, however long it is away: an answer that was made is not thrown away. Raises: what it refuses."""
        last = LAST_WORDS_SECONDS / PAUSE_SECONDS
        while True:
            try:
                return self._to_broker(path, body, query)
            except requests.RequestException as fault:
                if _is_final(fault) or last <= 0:
                    raise
                if self.stopping.wait(PAUSE_SECONDS):
                    last -= 1
                    time.sleep(PAUSE_SECONDS)
                log.warning("the broker %s does not answer (%s); telling it again", self.broker, _told(fault))

    def _to_broker(self, path: str, body: dict[str, Any] | bytes, query: dict[str, Any] | None = None) -> dict[str, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        where = f"{self.broker}/broker/{path}"
        found = requests.post(where, data, params=query, headers=_bearer(self.broker_key), timeout=60)
        found.raise_for_status()
        return found.json()

    def _renew(self) -> None:
        while not self.ended.wait(self.lease_seconds / 3):
            with self.lock:
                held = sorted(self.held)
            if held:
                try:
                    self._to_broker("renew", {"leases": held})
                except requests.RequestException as fault:
                    log.warning("leases were not renewed: %s", _told(fault))


def _is_final(fault: Exception) -> bool:
    """The broker was reached and refuses: it would again. A version that another worker still serves (409) passes."""
    status = fault.response.status_code if isinstance(fault, requests.HTTPError) else 0
    return 400 <= status < 500 and status != 409 and not says_nothing(status)


def _told(fault: Exception) -> str:
    """A fault in few words, with what was answered."""
    answered = f" {fault.response.status_code}: {fault.response.text[:500]}" if isinstance(fault, requests.HTTPError) else ""
    return type(fault).__name__ + answered


def worker_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


def _bearer(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m serving.broker.worker", description=__doc__)
    parser.add_argument("--broker", required=True, help="URL of the broker")
    parser.add_argument("--server", required=True, help="URL of a server with OpenAI's API, without /v1")
    parser.add_argument("--concurrency", type=int, default=16, help="requests at the server at a time")
    parser.add_argument(
        "--model-version",
        help="which bytes the server's model is (a revision, a digest), where its /v1/models has no data_version",
    )
    parser.add_argument("--broker-key-file", type=Path, help="file with the broker's key")
    parser.add_argument("--server-key-file", type=Path, help="file with the server's key")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    keys = read_key(given.broker_key_file), read_key(given.server_key_file)
    urls = given.broker.rstrip("/"), given.server.rstrip("/")
    worker = Worker(*urls, worker_name(), given.concurrency, *keys, model_version=given.model_version)
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: worker.stopping.set())
    log.info("%s: from %s to %s", worker.name, worker.broker, worker.server)
    worker.run()


if __name__ == "__main__":
    main()
