"""Train the runs of a study in worker processes, one on each core, and say what is done and what is left.

Runs as small as these are as fast on one core as on two, so two at a time take half the time: 83,000 tokens/s on two cores and
87,000 on one, for width 32, 512 tokens a step (2026-11-25, two cores).
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, ancestors_first, exists, resolve
from lineage.build.plan import build
from scenarios.in_workers import Made, build_in_workers

SHARED = ("text", "mixture")
"""First part of the keys of what many runs read."""
log = logging.getLogger("isoflop")


@dataclass
class Progress:
    """What is done of the runs of a study."""

    total: int
    done: int = 0
    reused: int = 0
    started: float = field(default_factory=time.perf_counter)

    def tell(self, name: str, what: str, seconds: float | None) -> None:
        """Log a line: done, reused, left, and how long the rest takes if it is like what was trained here."""
        self.done, self.reused = self.done + 1, self.reused + (seconds is None)
        spent, trained = time.perf_counter() - self.started, self.done - self.reused
        left = f", about {spent / trained * (self.total - self.done):.0f} s left" if trained else ""
        log.info(
            "%s: %s%s; %d of %d runs done, %d of them reused, %.0f s%s",
            name, what, "" if seconds is None else f" in {seconds:.1f} CPU s", self.done, self.total, self.reused, spent, left,
        )  # fmt: skip


def build_runs(root: Path, nodes: Sequence[Node], workers: int) -> Iterator[Made]:
    """Build the last nodes of runs, several at a time. Raises: RuntimeError that names the run that failed."""
    return build_in_workers(store_of(root), nodes, workers, "isoflop", lambda node: node.key[0] in SHARED)


def build_here(store: Store, node: Node) -> Artifact:
    """Build a node whose runs are there. What exists is reused."""
    for ancestor in ancestors_first([node]):
        if not exists(store, ancestor):
            build(store, ancestor, run_id="isoflop")
    return resolve(store, node)


def store_of(root: Path) -> Store:
    return Store(str(root / "store"))
