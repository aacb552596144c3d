"""Requests for rollouts that are answered in threads while the trainer works; each answer is on disk until it is committed."""

import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import requests

from serving.broker.client import ItemRequest, Record, Recorded, ask_one

CLOSING_SECONDS = 2.0


@dataclass
class RolloutRequests:
    """The requests of a run by iteration. Requests have names, so a broker answers each once, also if it is asked again."""

    url: str
    folder: Path
    concurrency: int = 16
    patience: float = 600.0
    """Seconds that one request may wait for an answer."""
    records: dict[int, Record] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    waiting: "queue.SimpleQueue[tuple[Record, ItemRequest] | None]" = field(default_factory=queue.SimpleQueue)
    changed: threading.Condition = field(default_factory=threading.Condition)
    fault: BaseException | None = None
    threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for number in range(self.concurrency):
            self.threads.append(threading.Thread(target=self._work, name=f"rollouts-{number}", daemon=True))
            self.threads[-1].start()

    def send(self, iteration: int, wanted: Sequence[ItemRequest]) -> None:
        """Send the requests that have no answer on disk and were not sent. Returns at once.

        Raises: ValueError if the record of the iteration answers another request under the same name.
        """
        record = self._record(iteration)
        for one in wanted:
            there = record.answers.get(one.item)
            if there is not None and there.digest != one.digest:
                raise ValueError(f"{record.path} answers another request as {one.item!r}; delete the file")
            if there is None and one.item not in self.sent:
                self.sent.add(one.item)
                self.waiting.put((record, one))

    def answers(self, iteration: int, items: Sequence[str]) -> Mapping[str, Recorded]:
        """Wait for the answers of some items. Raises: RuntimeError if a request failed."""
        record = self._record(iteration)
        with self.changed:
            while self.fault is None and any(item not in record.answers for item in items):
                self.changed.wait()
        if self.fault is not None:
            raise RuntimeError(f"a rollout of iteration {iteration} has no answer: {self.fault}") from self.fault
        return {item: record.answers[item] for item in items}

    def forget_before(self, iteration: int) -> None:
        """Delete the answers of earlier iterations, because their tables are committed."""
        for path in self.folder.glob("iteration-*.jsonl"):
            if path.name < self._path(iteration).name:
                path.unlink()
        self.records = {number: record for number, record in self.records.items() if number >= iteration}

    def close(self) -> None:
        """End the threads that wait for work. One that waits for an answer ends with the process; the broker keeps it."""
        for _ in self.threads:
            self.waiting.put(None)
        for thread in self.threads:
            thread.join(CLOSING_SECONDS / len(self.threads))

    def _record(self, iteration: int) -> Record:
        if iteration not in self.records:
            self.records[iteration] = Record(self._path(iteration), one_version=False)
        return self.records[iteration]

    def _path(self, iteration: int) -> Path:
        return self.folder / f"iteration-{iteration:08d}.jsonl"

    def _work(self) -> None:
        session = requests.Session()
        while (work := self.waiting.get()) is not None:
            record, one = work
            try:
                answer = ask_one(session, self.url, one, {}, self.patience)
                if answer.status != 200:  # not on disk: a run that starts again asks again
                    raise RuntimeError(f"{self.url} refuses {one.item!r} ({answer.status}): {answer.answer}")
                record.add(one.item, answer)
            except Exception as fault:  # `answers` raises it in the trainer's thread
                self.fault = self.fault or fault
            with self.changed:
                self.changed.notify_all()
