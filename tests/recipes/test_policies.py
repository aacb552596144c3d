"""Lines with different tasks have policies of different names, so their results stay on separate boards."""

from recipes.lab import averaged_line, chat_line, default_line, packed_line
from recipes.policies import policy_config
from recipes.suites import shot_tasks


def test_lines_with_other_tasks_have_policies_of_other_names() -> None:
    line = default_line()
    policies = [policy_config(each) for each in (line, packed_line(), averaged_line(), chat_line())]
    assert policies[0] == policies[1], "the same tasks, the same policy"
    assert len({policy.name for policy in policies[1:]}) == 3
    assert policies[2].rule("heldout_ema").task.weights == "ema"
    raw, average = (policies[2].rule(name).task for name in ("arc_easy", "arc_easy_ema"))
    assert (average.item_task, average.kind, average.weights) == (raw.name, raw.kind, "ema"), "the same items"
    assert policies[3].rule("assistant_turns").task.kind == "trajectories"


def test_solutions_are_generated_behind_all_the_published_examples() -> None:
    policy, examples = policy_config(default_line()), {task.name: task.num_items for task in shot_tasks()}
    for name in ("gsm8k", "math"):
        task = policy.rule(f"{name}_generate").task
        assert (task.kind, task.item_task, task.num_shots) == ("generation", name, examples[name])
