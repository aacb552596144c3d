"""Send many requests to one URL and record each answer once, even if processes are killed.

    python -m serving.broker.client --url http://127.0.0.1:8100 ASKS.jsonl RECORD.jsonl

A line of ASKS is `{"item": ..., "path": "/v1/completions", "body": {...}}`, with `"once": true` for sampled answers. A line
of RECORD is `{"item", "digest", "status", "answer"}`. Recorded items are not sent again, so a client that was killed resumes.
A record has answers of one version of each model: servers that report their version (`system_fingerprint`; our servers do)
must all report the same one.
"""

import argparse
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from serving.refusals import read_key, says_nothing

log = logging.getLogger("serving.broker.client")
PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class ItemRequest:
    """The request of one item."""

    item: str
    path: str
    body: dict[str, Any]
    once: bool = False
    """Whether `item` is sent as `Idempotency-Key`. A broker then answers the request once, and repeats that answer whenever the
    request is sent again, with any weights. For sampled answers."""

    @property
    def digest(self) -> str:
        text = json.dumps([self.path, self.body], sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Recorded:
    """The answer to one item: the body, and an HTTP status about the request (2xx, 4xx)."""

    digest: str
    status: int
    answer: Any

    @property
    def model(self) -> tuple[str, str] | None:
        """Name and version of the model that answered; None unless the answer gives both."""
        document = self.answer if isinstance(self.answer, dict) else {}
        name, version = document.get("model"), document.get("system_fingerprint")
        return None if name is None or version is None else (name, version)


@dataclass
class Record:
    """A file of answers, one on each line, each on disk before the next request. An incomplete last line is removed."""

    path: Path
    one_version: bool = True
    """Refuse an answer if its model's version differs from that of earlier answers. False for rollouts while weights change."""
    answers: dict[str, Recorded] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    """Version of each model that answered, by its name."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if not self.path.exists():
            return
        content = self.path.read_bytes()
        kept = content[: content.rfind(b"\n") + 1]
        if len(kept) < len(content):
            log.warning("%s: the last line is incomplete; its item is sent again", self.path)
            os.truncate(self.path, len(kept))
        for line in kept.splitlines():
            row = json.loads(line)
            if row["item"] in self.answers:
                raise ValueError(f"{self.path} has item {row['item']!r} twice; one answer for each item is allowed")
            self.answers[row["item"]] = Recorded(row["digest"], row["status"], row["answer"])
            self._check_version(row["item"], self.answers[row["item"]])

    def _check_version(self, item: str, recorded: Recorded) -> None:
        """Check that the answer is from the recorded version of its model. Raises: ValueError."""
        if recorded.model is not None:
            name, version = recorded.model
            if self.versions.setdefault(name, version) != version and self.one_version:
                raise ValueError(
                    f"{self.path} has answers of {name!r} in version {self.versions[name]}, and item {item!r} is from "
                    f"version {version}; a record may have one version: use a new file"
                )

    def add(self, item: str, recorded: Recorded) -> None:
        line = json.dumps({"item": item, **vars(recorded)}, ensure_ascii=False) + "\n"
        with self.lock, self.path.open("a") as file:
            if item in self.answers:
                raise ValueError(f"item {item!r} was answered twice")
            self._check_version(item, recorded)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            self.answers[item] = recorded


def ask_all(
    url: str,
    item_requests: Iterable[ItemRequest],
    record: Record,
    *,
    concurrency: int = 32,
    key: str | None = None,
    patience: float = 600.0,
) -> dict[str, Recorded]:
    """Send the requests that the record lacks, and return all answers by item.

    A server that does not answer is tried again for `patience` seconds. Raises: ValueError for an item that occurs twice, a
    request that differs from the recorded one, or an answer from another version of the model; RuntimeError when the patience
    ends, the key is refused, or the URL does not serve OpenAI's API.
    """
    item_requests = list(item_requests)
    items = [one.item for one in item_requests]
    if len(set(items)) < len(items):
        raise ValueError(f"{len(items) - len(set(items))} items occur more than once; each must occur once")
    changed = [
        one.item for one in item_requests if one.item in record.answers and record.answers[one.item].digest != one.digest
    ]
    if changed:
        raise ValueError(
            f"{record.path} answers another request for {len(changed)} items, such as {changed[0]!r}; use a new file"
        )
    left = [one for one in item_requests if one.item not in record.answers]
    log.info("%d items, %d on record, %d to send to %s", len(item_requests), len(item_requests) - len(left), len(left), url)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    local, giving_up = threading.local(), threading.Event()

    def ask(one: ItemRequest) -> None:
        if giving_up.is_set():
            return
        if not hasattr(local, "session"):
            local.session = requests.Session()
        try:
            record.add(one.item, ask_one(local.session, url, one, headers, patience))
        except BaseException:
            giving_up.set()  # the remaining requests are not started
            raise

    with ThreadPoolExecutor(concurrency) as pool:
        for _ in pool.map(ask, left):
            pass
    return {one.item: record.answers[one.item] for one in item_requests}


def ask_one(session: requests.Session, url: str, one: ItemRequest, headers: dict[str, str], patience: float) -> Recorded:
    """Send one request until it has an answer; a broker returns the recorded answer of a known request."""
    end = time.monotonic() + patience
    sent = headers | ({"idempotency-key": one.item} if one.once else {})
    while True:
        try:
            response = session.post(url + one.path, json=one.body, headers=sent, timeout=max(patience, 1.0))
        except requests.RequestException as fault:
            problem = type(fault).__name__
        else:
            problem = f"{response.status_code}: {response.text[:200]}"
            if not says_nothing(response.status_code):
                answer = _answer_of(response)
                if answer is None or response.status_code in (401, 403):  # every item would fail like this
                    raise RuntimeError(f"{url}{one.path} does not serve requests (item {one.item!r}): {problem}")
                return Recorded(one.digest, response.status_code, answer)
        if time.monotonic() > end:
            raise RuntimeError(f"{url} gave no answer for item {one.item!r} in {patience:g} s; the last problem: {problem}")
        time.sleep(PAUSE_SECONDS)


def _answer_of(response: requests.Response) -> dict[str, Any] | None:
    """Return the answer as a JSON object; None if it is anything else."""
    try:
        answer = response.json()
    except requests.JSONDecodeError:
        return None
    return answer if isinstance(answer, dict) else None


def main() -> None:
    """Send requests from a file, and record the answers."""
    parser = argparse.ArgumentParser(prog="python -m serving.broker.client", description=__doc__)
    parser.add_argument("--url", required=True, help="URL of a broker, or of any server with OpenAI's API")
    parser.add_argument("asks", type=Path)
    parser.add_argument("record", type=Path)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--patience", type=float, default=600.0, help="seconds to wait for an answer to one request")
    parser.add_argument("--api-key-file", type=Path)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    item_requests = [ItemRequest(**json.loads(line)) for line in given.asks.read_text().splitlines()]
    keys = {"key": read_key(given.api_key_file), "concurrency": given.concurrency, "patience": given.patience}
    answers = ask_all(given.url.rstrip("/"), item_requests, Record(given.record), **keys)
    bad = sum(recorded.status >= 400 for recorded in answers.values())
    log.info("%d items answered, %d of them refused", len(answers), bad)


if __name__ == "__main__":
    main()
