"""Choose the call that a worker gets next."""

from collections import deque
from collections.abc import Hashable, Iterable


class WorkQueue:
    """Give calls in their order to any free worker, or, with `in_runs`, neighbouring calls to one worker.

    With runs, a worker continues after its last call. A worker without calls takes the later half of the longest run, so all
    workers end together and at most one pair of neighbours is separated each time.
    """

    def __init__(self, names: Iterable[str], *, in_runs: bool):
        self.unbegun = deque(names)
        self.runs: dict[Hashable, deque[str]] | None = {} if in_runs else None

    def next(self, worker: Hashable) -> str | None:
        """Return the name of the worker's next call, or None if all are started."""
        if self.runs is None:
            return self.unbegun.popleft() if self.unbegun else None
        if not self.runs.get(worker):
            self.runs[worker] = self._taken(self.runs)
        return self.runs[worker].popleft() if self.runs[worker] else None

    def _taken(self, runs: dict[Hashable, deque[str]]) -> deque[str]:
        if not runs:
            return self.unbegun
        longest = max(runs.values(), key=len)
        half = [longest.pop() for _ in range((len(longest) + 1) // 2)]
        return deque(reversed(half))
