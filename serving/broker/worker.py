"""A worker leases requests from a broker, sends them to a server with OpenAI's API, and returns the answers.

    python -m serving.broker.worker --broker http://127.0.0.1:8100 --server http://127.0.0.1:8001

- A worker may be killed at any moment: its leases expire and other workers take them.
- If its server dies, the worker logs this, returns its leases, and takes new ones when the server answers again. A request
  that never reached the dead server loses no try.
- Each answer carries the version of the model that gave it: `data_version` in the server's `/v1/models`, or an argument.
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
"""Seconds that a stopping worker tries to send its answers to a broker that does not answer."""


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
    """The model's version, for a server that does not report one."""
    own_server: bool = False
    """The server runs in this process. It sends an answer even if it fails on a request. So a broken connection means that the
    server was closing and had not read the request."""
    request_seconds: float = 1800.0
    stopping: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    held: set[str] = field(default_factory=set)
    lease_seconds: float = 1.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Work until `stopping` is set, then finish the held leases. Raises: RuntimeError if the broker refuses."""
        renewing = threading.Thread(target=self._renew, daemon=True)
        renewing.start()
        try:
            with ThreadPoolExecutor(self.concurrency, "broker-worker") as pool:
                self._take(pool)
        finally:
            self.ended.set()
        self._leave()

    def _leave(self) -> None:
        """Sign off, so that another version may use the name at once. A broker that cannot be reached notices by timeout."""
        try:
            self._to_broker("leave", {"worker": self.name})
        except requests.RequestException as fault:
            log.warning("could not sign off from the broker %s: %s", self.broker, _describe(fault))

    def _take(self, pool: ThreadPoolExecutor) -> None:
        places = threading.Semaphore(self.concurrency)
        while not self.stopping.is_set():
            places.acquire()  # wait for one free place, then take all that are free
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
            log.error("a request failed in this worker; its lease will expire: %r", fault)

    def _models(self) -> dict[str, str | None] | None:
        """Models of the server with their versions; None while it does not answer."""
        try:
            response = requests.get(f"{self.server}/v1/models", headers=_bearer(self.server_key), timeout=30)
            response.raise_for_status()
            return {card["id"]: self.model_version or card.get("data_version") for card in response.json()["data"]}
        except (requests.RequestException, ValueError, KeyError) as fault:
            log.warning("%s does not answer (%s); no leases are taken until it does", self.server, _describe(fault))
            return None

    def _lease(self, models: dict[str, str | None], count: int) -> list[dict[str, Any]]:
        form = {"worker": self.name, "models": models, "count": min(count, MOST_LEASES), "wait": POLL_SECONDS}
        try:
            answer = self._to_broker("lease", form)
        except requests.RequestException as fault:
            if _is_final(fault):
                raise RuntimeError(f"the broker {self.broker} refuses this worker: {_describe(fault)}") from fault
            log.warning("the broker %s gives no leases (%s); trying again", self.broker, _describe(fault))
            self.stopping.wait(PAUSE_SECONDS)
            return []
        self.lease_seconds = answer["lease_seconds"]
        with self.lock:
            self.held |= {request["lease"] for request in answer["requests"]}
        return answer["requests"]

    def _answer(self, request: dict[str, Any], version: str | None) -> None:
        """Get the server's answer and send it to the broker; the lease is renewed until the broker has it."""
        try:
            response = self._ask(request)
            if response is None:
                return
            served_version = response.headers.get(MODEL_VERSION_HEADER)
            if served_version is not None and version is not None and self.model_version is None and served_version != version:
                log.warning("%s serves another version than it reported; the lease is returned", self.server)
                self._insist("give_back", {"lease": request["lease"], "used": False})
                return
            status, body = response.status_code, response.content
            if len(body) > MOST_ANSWER_BYTES:
                message = f"the answer has {len(body)} bytes; at most {MOST_ANSWER_BYTES} are recorded: request less at a time"
                status, body = 413, json.dumps(RequestError(413, message, code="answer_too_long").body()).encode()
            query = {"key": request["key"], "status": status} | ({} if version is None else {"version": version})
            if not self._insist("finish", body, query).get("counted", False):
                log.info("an answer came too late and was not counted")
        finally:
            with self.lock:
                self.held.discard(request["lease"])

    def _ask(self, request: dict[str, Any]) -> requests.Response | None:
        """Return the server's answer; None if the request is not the cause of a failure. Then the lease is returned."""
        headers = {"content-type": "application/json", **_bearer(self.server_key)}
        where, body = self.server + request["path"], request["body"].encode()
        try:
            response = requests.request(request["method"], where, data=body, headers=headers, timeout=self.request_seconds)
        except requests.RequestException as fault:
            log.warning("%s failed on a request (%s); the lease is returned", self.server, type(fault).__name__)
            self._insist("give_back", {"lease": request["lease"], "used": not self._was_not_asked(fault)})
            return None
        if not says_nothing(response.status_code):
            return response
        log.warning("%s answered %d; the lease is returned", self.server, response.status_code)
        self._insist("give_back", {"lease": request["lease"], "used": self._was_tried(response)})
        self.stopping.wait(PAUSE_SECONDS)
        return None

    def _was_not_asked(self, fault: requests.RequestException) -> bool:
        """Whether the server never read the request, so that the request cannot have caused a crash."""
        reason = getattr(fault.args[0], "reason", fault.args[0]) if fault.args else None
        if isinstance(reason, NewConnectionError):
            return True
        return self.own_server and isinstance(fault, requests.ConnectionError) and not isinstance(reason, ReadTimeoutError)

    def _was_tried(self, response: requests.Response) -> bool:
        """Whether a try counts: not if the server says so, nor if our own server is closing."""
        if response.status_code in (429, 503):
            return False
        return not self.own_server or b'"scheduler_fault"' in response.content or self._models() is not None

    def _insist(self, path: str, body: dict[str, Any] | bytes, query: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send to the broker, and retry while it does not answer, so that no answer is lost. Raises: if the broker refuses."""
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
                log.warning("the broker %s does not answer (%s); sending again", self.broker, _describe(fault))

    def _to_broker(self, path: str, body: dict[str, Any] | bytes, query: dict[str, Any] | None = None) -> dict[str, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        where = f"{self.broker}/broker/{path}"
        response = requests.post(where, data, params=query, headers=_bearer(self.broker_key), timeout=60)
        response.raise_for_status()
        return response.json()

    def _renew(self) -> None:
        while not self.ended.wait(self.lease_seconds / 3):
            with self.lock:
                held = sorted(self.held)
            if held:
                try:
                    self._to_broker("renew", {"leases": held})
                except requests.RequestException as fault:
                    log.warning("leases were not renewed: %s", _describe(fault))


def _is_final(fault: Exception) -> bool:
    """Whether the broker refuses for good. A version conflict (409) ends when the other worker stops."""
    status = fault.response.status_code if isinstance(fault, requests.HTTPError) else 0
    return 400 <= status < 500 and status != 409 and not says_nothing(status)


def _describe(fault: Exception) -> str:
    """Describe a fault briefly, with the answer's text."""
    answered = f" {fault.response.status_code}: {fault.response.text[:500]}" if isinstance(fault, requests.HTTPError) else ""
    return type(fault).__name__ + answered


def worker_name() -> str:
    """Return the name of this process for leases: machine and process id."""
    return f"{socket.gethostname()}-{os.getpid()}"


def _bearer(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


def main() -> None:
    """Run a worker that takes requests from a broker to a server until it is stopped."""
    parser = argparse.ArgumentParser(prog="python -m serving.broker.worker", description=__doc__)
    parser.add_argument("--broker", required=True, help="URL of the broker")
    parser.add_argument("--server", required=True, help="URL of a server with OpenAI's API, without /v1")
    parser.add_argument("--concurrency", type=int, default=16, help="number of requests at the server at a time")
    parser.add_argument(
        "--model-version",
        help="version of the server's model (a revision, a digest), if its /v1/models has no data_version",
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
