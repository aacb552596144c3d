"""How an item becomes a prompt: the one place, so that two evaluations of a task ask the same question.

The policy is part of a record's identity; a changed rendering is a new policy name.
"""

import re

from evals.items import Item

CALCULATION = re.compile(r"<<[^>]*>>")
FINAL_ANSWER = re.compile(r"\s*#### .*$")

POLICY = "plain-0shot/1"


def prompt(item: Item) -> str:
    """What the model is given. A task of continuations (HellaSwag) is its context alone; others are asked as questions."""
    if item.task == "hellaswag":
        return item.question
    passage = f"{item.passage}\n\n" if item.passage else ""
    return f"{passage}Question: {item.question}\nAnswer:"


def continuation(text: str) -> str:
    """A choice or gold answer as it follows the prompt."""
    return f" {text.strip()}"


def gold_answer(item: Item) -> str:
    """The text whose likelihood is the primary number of a small model: the worked solution, else the answer.

    GSM8K's calculator tags and its `#### 18` line are notation of the dataset, not of the answer (OLMES cuts them too).
    """
    if item.solution:
        return FINAL_ANSWER.sub("", CALCULATION.sub("", item.solution))
    return item.choices[item.answer_index] if item.choices else item.answer
