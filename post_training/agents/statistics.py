"""Numbers of a set of trajectories, as published ones are counted (marin #4561, #4653).

A command is unique if its Jaccard similarity with every earlier unique one of the set is below .5, over its words. An
observation is useful if its command succeeded and printed something.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from post_training.agents.loop import Trajectory

UNIQUE_BELOW = 0.5
_WORD = re.compile(r"[\w./*-]+")


@dataclass(frozen=True)
class AgentStatistics:
    """Shares are None if there is nothing to divide by."""

    trajectories: int
    commands: int
    unique_commands: float | None
    useful_observations: float | None
    submitted: float | None
    mean_turns: float | None
    mean_tokens: float | None
    """Generated tokens of a trajectory."""

    ends: dict[str, int]


def statistics(trajectories: Sequence[Trajectory]) -> AgentStatistics:
    """Count over all trajectories."""
    steps = [step for each in trajectories for step in each.steps if step.command]
    useful = sum(step.status == 0 and bool(step.observation.strip()) for step in steps)
    count = len(trajectories)
    return AgentStatistics(
        trajectories=count,
        commands=len(steps),
        unique_commands=_share(len(unique_commands([step.command for step in steps])), len(steps)),
        useful_observations=_share(useful, len(steps)),
        submitted=_share(sum(each.end == "submitted" for each in trajectories), count),
        mean_turns=_share(sum(len(each.steps) for each in trajectories), count),
        mean_tokens=_share(sum(each.tokens for each in trajectories), count),
        ends=dict(Counter(str(each.end) for each in trajectories)),
    )


def unique_commands(commands: Sequence[str]) -> list[str]:
    """Return the commands that are unlike every earlier one that was kept."""
    kept: list[tuple[str, frozenset[str]]] = []
    for command in commands:
        words = frozenset(_WORD.findall(command))
        if all(_jaccard(words, other) < UNIQUE_BELOW for _, other in kept):
            kept.append((command, words))
    return [command for command, _ in kept]


def _jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b) if a | b else 1.0


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
