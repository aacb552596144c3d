"""A line that is asked other tasks has a policy of another name: results under the two are on two boards."""

from dataclasses import replace

from recipes.lab import chat_line, default_line, packed_line
from recipes.policies import policy_config
from trainer.optimizers.config import EmaConfig


def test_lines_with_other_tasks_have_policies_of_other_names() -> None:
    line = default_line()
    averaged = replace(line, run=replace(line.run, ema=EmaConfig()))
    policies = [policy_config(each) for each in (line, packed_line(), averaged, chat_line())]
    assert policies[0] == policies[1], "the same tasks, the same policy"
    assert len({policy.name for policy in policies[1:]}) == 3
    assert policies[2].rule("heldout_ema").task.weights == "ema"
    assert policies[3].rule("assistant_turns").task.kind == "trajectories"
