"""What a result says of a run, whichever evaluation made it: a trial's result or an evaluation of a declared run."""

from dataclasses import dataclass

from lineage.artifact.store import Artifact


@dataclass(frozen=True)
class Outcome:
    """Scores of one checkpoint."""

    name: str
    checkpoint: Artifact
    scores: dict[tuple[str, str], float]
    """(task, metric) -> value."""
    policy: str
    """What scores must share to be comparable."""
    diverged: str | None
    """Why there are no scores; None if the run did not diverge."""

    def score(self, task: str, metric: str) -> float:
        """A score. Raises: ValueError naming what there is."""
        if (task, metric) not in self.scores:
            known = ", ".join(f"{name} {of}" for name, of in sorted(self.scores))
            raise ValueError(f"{self.name} has no score {task} {metric}; it has {known or 'none'}")
        return self.scores[task, metric]


def outcome_of(result: Artifact) -> Outcome:
    """Read a result from its manifest. Raises: ValueError for an artifact that is neither kind of result."""
    extra, inputs = result.manifest.extra, {ref.name for ref in result.spec.inputs}
    if "result" in extra and "trial" in inputs:
        recorded = extra["result"]
        return Outcome(
            result.name, result.input("trial"), _scores(recorded["scores"]), str(recorded["policy"]), recorded["diverged"]
        )
    if "scores" in extra and "policy" in extra and "checkpoint" in inputs:
        policy = str(extra["policy"]["data_version"])
        return Outcome(result.name, result.input("checkpoint"), _scores(extra["scores"]), policy, None)
    raise ValueError(f"{result.name} (stage {result.spec.stage}) is no result of a trial or of an evaluation")


def _scores(listed: list[dict[str, object]]) -> dict[tuple[str, str], float]:
    return {(str(score["task"]), str(score["metric"])): float(str(score["value"])) for score in listed}
