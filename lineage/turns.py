"""Which call a worker gets next."""

from collections import deque
from collections.abc import Hashable, Iterable


class Turns:
    """Calls in their order to whoever is free, or `in_runs`: to each worker calls that stand next to each other.

    In runs a worker goes on behind its last call. One that has none left takes the later half of the longest run, so all end
    together and few neighbours are parted: at most one pair for each such half.
    """

    def __init__(self, names: Iterable[str], *, in_runs: bool):
        self.unbegun = deque(names)
        self.runs: dict[Hashable, deque[str]] | None = {} if in_runs else None

    def next(self, worker: Hashable) -> str | None:
        """The name of the worker's next call; None where all are begun."""
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
