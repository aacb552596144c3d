"""Trajectories as training text: a line of JSON each, in the form `messages` of the data engine.

Observations are messages of the user, so the loss of a chat format counts the model's own turns alone
(docs/recipes/train_on_chat.md).
"""

import json
from collections.abc import Iterable
from pathlib import Path

from post_training.agents.loop import Step, Trajectory


def write_trajectories(path: Path, trajectories: Iterable[Trajectory]) -> int:
    """Write one line for each trajectory that the model has a part in; return how many."""
    count = 0
    with path.open("w") as file:
        for each in trajectories:
            if each.messages:
                file.write(json.dumps(record_of(each), ensure_ascii=False) + "\n")
                count += 1
    return count


def record_of(each: Trajectory) -> dict:
    steps = [vars(step) for step in each.steps]
    facts = {"end": each.end, "answer": each.answer, "version": each.version, "detail": each.detail, "steps": steps}
    return {"id": each.task, "messages": list(each.messages), **facts}


def read_trajectories(path: Path) -> list[Trajectory]:
    """Read what `write_trajectories` wrote. Raises: ValueError naming a line that is no trajectory."""
    trajectories = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            record = json.loads(line)
            messages, steps = tuple(record["messages"]), tuple(Step(**step) for step in record["steps"])
            facts = record["end"], record["answer"], record["version"], record["detail"]
            trajectories.append(Trajectory(record["id"], messages, steps, *facts))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number} is no trajectory: {error!r}") from error
    return trajectories
