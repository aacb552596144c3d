"""Trial results as declared scores, shared by tests of stages that read results."""

from dataclasses import dataclass
from pathlib import Path

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build_all
from lineage.stage import Stage
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class Score:
    """The outcome of one run."""

    loss: float
    policy: str = "p"
    diverged: str | None = None


def write_score(out: Writer, config: Score, trial: Artifact) -> None:
    scores = [{"task": "held-out", "metric": "loss", "value": config.loss}]
    out.extra["result"] = {"scores": scores, "policy": config.policy, "diverged": config.diverged}
    (out.folder / "scores.json").write_text("{}")


SCORE = Stage("tests.score", "1", write_score)


def made(root: Path, node: Node) -> Artifact:
    """Build a node and all above it in a new store."""
    store = Store(str(root))
    return build_all(store, [node])[0]
