"""The lab's current evaluation policy: the tasks, their settings, and the saved steps at which they run.

Do not edit a policy that has results: give the next one a new date. Results of two policies never share a table
(docs/recipes/add_an_eval_suite.md).
"""

from dataclasses import replace
from functools import cache

from datakit.tokens.formats import Chat
from evals.items.stage import TaskSpec
from evals.items.tasks.registry import task_named
from evals.tasks.policy import PolicyConfig, PolicyRule
from recipes.records.run import HELDOUT_TASK, Run
from recipes.suites import Suite

DATE = "2026-11-22-described"
EVAL_SEED = 5
TURNS_TASK = "assistant_turns"
LAST_ONLY = 0
GSM8K_SHOTS, MATH_SHOTS = 8, 4
"""Number of examples in the suite."""


@cache
def policy_config(run: Run) -> PolicyConfig:
    """The policy of a run.

    Held-out text and the main suite run at every saved step. The last step also gets the wider suites, prompts with examples,
    generated answers, and programs. Averaged weights, if the run keeps them, get held-out text at every saved step and the
    main suite at the last step.
    """
    main, *others = run.evaluation.suites
    raw = _by_likelihood(main)
    averaged = () if run.spec.ema is None else _of_the_average(raw)
    every = (*_heldout(run), *raw, *averaged)
    more = [rule for suite in others for rule in _by_likelihood(suite, LAST_ONLY)]
    named = {suite.name for suite in others}
    has_shots = bool(run.evaluation.shots)
    answers = _generated_answers(has_shots=has_shots) if "math_code" in named else ()
    generated = (*answers, *(_programs() if "humaneval" in named else ()))
    shots = _few_shot() if has_shots else ()
    own = {main.name: not more, "ema": run.spec.ema is not None, "turns": isinstance(run.tokens.format, Chat)}
    name = "-".join(
        [DATE, *(word for word, differs in own.items() if differs)]
    )  # other tasks mean another policy and another leaderboard
    return PolicyConfig(name, (*every, *more, *shots, *generated), EVAL_SEED)


def _heldout(run: Run) -> tuple[PolicyRule, ...]:
    """Tasks on held-out text, for the raw weights and their average; conversations also score the assistant's turns."""
    average = () if run.spec.ema is None else (TaskSpec(f"{HELDOUT_TASK}_ema", "perplexity", weights="ema"),)
    turn_tasks = (TaskSpec(TURNS_TASK, "trajectories"),) if isinstance(run.tokens.format, Chat) else ()
    return tuple(PolicyRule(task, priority=2) for task in (TaskSpec(HELDOUT_TASK, "perplexity"), *average, *turn_tasks))


def _by_likelihood(suite: Suite, every_saves: int = 1) -> tuple[PolicyRule, ...]:
    tasks = [task.name for task in suite.config.tasks]
    specs = [TaskSpec(name, task_named(name).kind) for name in tasks]
    return tuple(PolicyRule(spec, every_saves, priority=1 if every_saves else 0) for spec in specs)


def _of_the_average(rules: tuple[PolicyRule, ...]) -> tuple[PolicyRule, ...]:
    """The same items for the averaged weights, once per run."""
    tasks = [replace(rule.task, name=f"{rule.task.name}_ema", items=rule.task.item_task, weights="ema") for rule in rules]
    return tuple(PolicyRule(task, LAST_ONLY) for task in tasks)


def _few_shot() -> tuple[PolicyRule, ...]:
    """OLMES's five examples, as cloze and with letters, and MMLU with lm-eval's prompts."""
    return (
        PolicyRule(TaskSpec("arc_easy_5shot", "multiple_choice", items="arc_easy", num_shots=5), LAST_ONLY),
        PolicyRule(TaskSpec("arc_easy_mc_5shot", "multiple_choice", items="arc_easy", style="letters", num_shots=5), LAST_ONLY),
        PolicyRule(TaskSpec("mmlu_5shot", "multiple_choice", items="mmlu", style="lm_eval", num_shots=5), LAST_ONLY),
    )


def _generated_answers(*, has_shots: bool) -> tuple[PolicyRule, ...]:
    """Generated solutions after the published examples (OLMES's eight for GSM8K, Minerva's four for MATH), and LAMBADA.

    The smallest runs read 256 tokens: there most of the examples are cut off on the left, and records say how much.
    """
    return (
        PolicyRule(_solved("gsm8k", GSM8K_SHOTS if has_shots else 0), LAST_ONLY, -1),
        PolicyRule(_solved("math", MATH_SHOTS if has_shots else 0), LAST_ONLY, -1),
        PolicyRule(TaskSpec("lambada_generate", "generation", items="lambada", max_items=100, max_new_tokens=8), LAST_ONLY, -1),
    )


def _solved(name: str, num_shots: int) -> TaskSpec:
    return TaskSpec(f"{name}_generate", "generation", items=name, max_items=50, num_shots=num_shots)


def _programs() -> tuple[PolicyRule, ...]:
    """Programs are run in a sandbox; where a machine cannot hold them the task fails, and its result is missing."""
    return (
        PolicyRule(TaskSpec("humaneval_run", "program", items="humaneval", max_items=40), LAST_ONLY, -1),
        PolicyRule(TaskSpec("mbpp_run", "program", items="mbpp", style="lm_eval", max_items=40), LAST_ONLY, -1),
    )
