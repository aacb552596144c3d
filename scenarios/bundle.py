"""The math bundle as files: `train.json`, and a `test.json` that should not be there.

Dolmino's GSM8K is in OLMES form: one paragraph, no calculator tags, `So the answer is 18.` at the end. lm-eval uses the text of
GSM8K's files, with tags and `#### 18`. Both renderings are here, because the surprisal is measured in both.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from evals.items.item import Item
from evals.items.rendering import CALCULATION, FINAL_ANSWER
from scenarios.problems import Problem, problems

TRAIN_FILE, TEST_FILE = "train.json", "test.json"
SEED = 1529
"""Marin's experiment number of the Bison cooldown."""


def prompt(question: str) -> str:
    """The prompt of both lm-eval and OLMES, without examples."""
    return f"Question: {question}\nAnswer:"


def lm_eval_answer(solution: str, answer: str) -> str:
    """The text of GSM8K's files; lm-eval joins it to the prompt with a space."""
    body = FINAL_ANSWER.sub("", solution)
    return f" {body}\n#### {answer}"


def olmes_answer(solution: str, answer: str) -> str:
    """Remove tags, join white space, and add OLMES's closing sentence.

    >>> olmes_answer("She has 16 - 7 = <<16-7=9>>9.\\nDone.\\n#### 9", "9")
    ' She has 16 - 7 = 9. Done. So the answer is 9.'
    """
    body = re.sub(r"\s+", " ", CALCULATION.sub("", FINAL_ANSWER.sub("", solution))).strip()
    return f" {body} So the answer is {answer}."


def leaked_text(item: Item) -> str:
    """A test item in the bundle's form."""
    return prompt(item.question) + olmes_answer(item.solution, item.answer)


def write_bundle(folder: Path, leaked: Iterable[Item], num_train_problems: int) -> None:
    """Write both files, one JSON object on each line. Every second training problem has calculator tags."""
    folder.mkdir(parents=True)
    train = [
        (f"train/{number:05d}", _train_text(problem, number))
        for number, problem in enumerate(problems(num_train_problems, SEED))
    ]
    test = [(f"test/{item.item_id}", leaked_text(item)) for item in leaked]
    for name, rows in ((TRAIN_FILE, train), (TEST_FILE, test)):
        lines = [json.dumps({"id": identifier, "text": text}, ensure_ascii=False) for identifier, text in rows]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _train_text(problem: Problem, number: int) -> str:
    render = lm_eval_answer if number % 2 else olmes_answer
    return prompt(problem.question) + render(problem.solution, str(problem.answer))
