"""Many requests to one URL, each answered and recorded once, whatever is killed meanwhile.

    python -m serving.broker.client --url http://127.0.0.1:8100 ASKS.jsonl RECORD.jsonl

A line of ASKS is `{"item": ..., "path": "/v1/completions", "body": {...}}`, a line of RECORD `{"item", "digest", "status",
"answer"}`. What is in the record is not asked again, so a client that was killed goes on where it was. Servers that say which
bytes they are (`system_fingerprint`: ours do) must all say the same: one record is of one version of each model.
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
class Asked:
    """One item's request."""

    item: str
    path: str
    body: dict[str, Any]

    @property
    def digest(self) -> str:
        text = json.dumps([self.path, self.body], sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Recorded:
    """One item's answer: an HTTP status that says something about the request (2xx, 4xx), and the body."""

    digest: str
    status: int
    answer: Any

    @property
    def model(self) -> tuple[str, str] | None:
        """Name and version of the model that answered, where the answer says both."""
        told = self.answer if isinstance(self.answer, dict) else {}
        name, version = told.get("model"), told.get("system_fingerprint")
        return None if name is None or version is None else (name, version)


@dataclass
class Record:
    """A file of answers, a line each, on disk before the next is asked for; a line that a kill cut off is taken away."""

    path: Path
    found: dict[str, Recorded] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    """Of the models that answered."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if not self.path.exists():
            return
        whole = self.path.read_bytes()
        kept = whole[: whole.rfind(b"\n") + 1]
        if len(kept) < len(whole):
            log.warning("%s: the last line was cut off by a kill and is asked again", self.path)
            os.truncate(self.path, len(kept))
        for line in kept.splitlines():
            row = json.loads(line)
            if row["item"] in self.found:
                raise ValueError(f"{self.path} holds item {row['item']!r} twice; one answer an item is allowed")
            self.found[row["item"]] = Recorded(row["digest"], row["status"], row["answer"])
            self._check_version(row["item"], self.found[row["item"]])

    def _check_version(self, item: str, recorded: Recorded) -> None:
        """Raises: ValueError for an answer of another version of its model than the others are of."""
        if recorded.model is not None:
            name, version = recorded.model
            if self.versions.setdefault(name, version) != version:
                raise ValueError(
                    f"{self.path} holds answers of {name!r} in version {self.versions[name]}, and item {item!r} is answered by "
                    f"version {version}; a record is of one: take a new file"
                )

    def add(self, item: str, recorded: Recorded) -> None:
        line = json.dumps({"item": item, **vars(recorded)}, ensure_ascii=False) + "\n"
        with self.lock, self.path.open("a") as file:
            if item in self.found:
                raise ValueError(f"item {item!r} was answered twice")
            self._check_version(item, recorded)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            self.found[item] = recorded


def ask_all(
    url: str, asked: Iterable[Asked], record: Record, *, concurrency: int = 32, key: str | None = None, patience: float = 600.0
) -> dict[str, Recorded]:
    """Ask what the record does not hold; all answers, by item. A server that is away is asked again for `patience` seconds.

    Raises: ValueError for items that occur twice, whose request is not the recorded one, or that another version of the model
    answers; RuntimeError past the patience, for a key that is refused, and for a URL where nobody speaks OpenAI's API.
    """
    asked = list(asked)
    items = [one.item for one in asked]
    if len(set(items)) < len(items):
        raise ValueError(f"{len(items) - len(set(items))} items occur more than once; each must once")
    changed = [one.item for one in asked if one.item in record.found and record.found[one.item].digest != one.digest]
    if changed:
        raise ValueError(
            f"{record.path} answers another request for {len(changed)} items, such as {changed[0]!r}; take a new file"
        )
    left = [one for one in asked if one.item not in record.found]
    log.info("%d items, %d on record, %d to ask of %s", len(asked), len(asked) - len(left), len(left), url)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    local, giving_up = threading.local(), threading.Event()

    def ask(one: Asked) -> None:
        if giving_up.is_set():
            return
        if not hasattr(local, "session"):
            local.session = requests.Session()
        try:
            record.add(one.item, _insist(local.session, url, one, headers, patience))
        except BaseException:
            giving_up.set()  # the others are not started
            raise

    with ThreadPoolExecutor(concurrency) as pool:
        for _ in pool.map(ask, left):
            pass
    return {one.item: record.found[one.item] for one in asked}


def _insist(session: requests.Session, url: str, one: Asked, headers: dict[str, str], patience: float) -> Recorded:
    """The same request until it has an answer: a broker that knows it gives the answer that it has."""
    end = time.monotonic() + patience
    while True:
        try:
            found = session.post(url + one.path, json=one.body, headers=headers, timeout=max(patience, 1.0))
        except requests.RequestException as fault:
            problem = type(fault).__name__
        else:
            problem = f"{found.status_code}: {found.text[:200]}"
            if not says_nothing(found.status_code):
                answer = _answer_of(found)
                if answer is None or found.status_code in (401, 403):  # every item would have this, and none be answered
                    raise RuntimeError(f"{url}{one.path} is not to be asked, for item {one.item!r} or any; it says {problem}")
                return Recorded(one.digest, found.status_code, answer)
        if time.monotonic() > end:
            raise RuntimeError(f"{url} gave no answer for item {one.item!r} in {patience:g} s; the last was {problem}")
        time.sleep(PAUSE_SECONDS)


def _answer_of(found: requests.Response) -> dict[str, Any] | None:
    """A JSON object; None where it is something else."""
    try:
        answer = found.json()
    except requests.JSONDecodeError:
        return None
    return answer if isinstance(answer, dict) else None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m serving.broker.client", description=__doc__)
    parser.add_argument("--url", required=True, help="a broker, or any server of OpenAI's API")
    parser.add_argument("asks", type=Path)
    parser.add_argument("record", type=Path)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--patience", type=float, default=600.0, help="seconds without an answer to one request")
    parser.add_argument("--api-key-file", type=Path)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    asked = [Asked(**json.loads(line)) for line in given.asks.read_text().splitlines()]
    keys = {"key": read_key(given.api_key_file), "concurrency": given.concurrency, "patience": given.patience}
    found = ask_all(given.url.rstrip("/"), asked, Record(given.record), **keys)
    bad = sum(recorded.status >= 400 for recorded in found.values())
    log.info("%d items answered, %d of them refused", len(found), bad)


if __name__ == "__main__":
    main()
