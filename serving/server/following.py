"""Follow a folder of weights: a trainer names the newest ones in `newest.json`, and this server replaces its own by them.

The folder with `newest.json` has a folder in Hugging Face's format for each version. A server that starts again begins with
the newest version. Answers name the weights that gave them, so a reader of the answers sees which version was late.
"""

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import requests

from serving.server.weights import ADMIN_KEY_HEADER

log = logging.getLogger("serving.server")
NEWEST_FILE = "newest.json"
POLL_SECONDS = 0.2
LOAD_SECONDS = 600.0


@dataclass(frozen=True)
class Newest:
    """The folder of the newest weights, by name, and their digest (`serving.server.loaded_model.folder_digest`)."""

    folder: str
    digest: str


def name_newest(folder: Path, newest: Newest) -> None:
    """Write `newest.json`. A reader sees the old file or the new one, whole."""
    scratch = folder / f"{NEWEST_FILE}.new"
    scratch.write_text(json.dumps(asdict(newest)) + "\n")
    scratch.replace(folder / NEWEST_FILE)


def newest_of(folder: Path) -> Newest | None:
    """Read `newest.json`; None if no weights were named yet."""
    try:
        return Newest(**json.loads((folder / NEWEST_FILE).read_text()))
    except FileNotFoundError:
        return None


def first_of(folder: Path) -> Path:
    """Wait until weights are named, and return their folder."""
    while (newest := newest_of(folder)) is None:
        log.info("%s names no weights yet; waiting for its trainer", folder)
        time.sleep(5 * POLL_SECONDS)
    return folder / newest.folder


@dataclass
class Follower:
    """Sends `POST /v1/weights` to one server whenever other weights are the newest."""

    folder: Path
    server: str
    headers: Mapping[str, str] = field(default_factory=dict)
    stopping: threading.Event = field(default_factory=threading.Event)
    loaded: str = ""
    """Digest of the weights that the server took last."""

    def run(self) -> None:
        """Follow until `stopping` is set. A failure is logged, and the next poll tries again."""
        while not self.stopping.wait(POLL_SECONDS):
            newest = newest_of(self.folder)
            if newest is not None and newest.digest != self.loaded:
                self._load(newest)

    def _load(self, newest: Newest) -> None:
        body = {"folder": str(self.folder / newest.folder), "digest": newest.digest}
        try:
            answer = requests.post(f"{self.server}/v1/weights", json=body, headers=dict(self.headers), timeout=LOAD_SECONDS)
        except requests.RequestException as fault:
            log.warning("%s did not take the weights %s: %s", self.server, newest.folder, type(fault).__name__)
            return
        if answer.status_code == 200:
            self.loaded = newest.digest
        else:
            log.warning("%s refuses the weights %s: %d %s", self.server, newest.folder, answer.status_code, answer.text[:500])


@contextmanager
def following(folder: Path | None, server: str, api_key: str | None, admin_key: str | None) -> Iterator[None]:
    """Follow a folder during the block; None follows nothing."""
    if folder is None:
        yield
        return
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
    headers |= {} if admin_key is None else {ADMIN_KEY_HEADER: admin_key}
    follower = Follower(folder, server, headers)
    thread = threading.Thread(target=follower.run, name="follow-weights", daemon=True)
    thread.start()
    try:
        yield
    finally:
        follower.stopping.set()
        thread.join(2 * POLL_SECONDS)
