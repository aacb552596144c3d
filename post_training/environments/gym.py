"""Prompts of the library reasoning-gym, whose data sets generate questions and score answers.

The library is an extra: `pip install 'marin-lab[gym]'`.
"""

import importlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType
from typing import Any

from lineage.stage import Stage
from lineage.writing.writer import Writer
from post_training.environments.prompt import Prompt, Verdict, check_share, split_of
from post_training.environments.table import write_prompts


@dataclass(frozen=True)
class Gym:
    """Questions of one data set of the library, a function of its seed."""

    dataset: str
    size: int
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the data set, such as the number of digits."""
    held_out_share: float = 0.1

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ValueError(f"gym.size is {self.size}; give at least 2 questions, one for each split")
        check_share("gym", self.held_out_share)


def library() -> ModuleType:
    """Import the package. Raises: ImportError saying how to install it."""
    try:
        return importlib.import_module("reasoning_gym")  # by name, because types are checked without the extra
    except ImportError as error:
        raise ImportError("environments of reasoning-gym need the extra `gym`: pip install 'marin-lab[gym]'") from error


def prompts(config: Gym) -> Iterator[Prompt]:
    """Write every question once, with the data set's own answer."""
    recipe = {"dataset": config.dataset, "size": config.size, "seed": config.seed, "options": config.options}
    for number, entry in enumerate(_dataset(json.dumps(recipe, sort_keys=True))):
        name = f"{config.dataset}/{config.seed}/{number}"
        task = json.dumps({"recipe": recipe, "number": number}, sort_keys=True)
        yield Prompt(name, split_of(name, config.held_out_share), f"{entry['question']}\n", str(entry["answer"]), task)


def judge(prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
    """Judge by the data set's own score of every answer, in [0, 1]. Only the full score is right."""
    verdicts = []
    for prompt, text in zip(prompts, texts, strict=True):
        task = json.loads(prompt.task)
        questions = _dataset(json.dumps(task["recipe"], sort_keys=True))
        score = float(questions.score_answer(text.strip(), questions[task["number"]]))
        verdicts.append(Verdict("right" if score >= 1 else "wrong", {"score": score}))
    return verdicts


@lru_cache(maxsize=8)
def _dataset(recipe: str) -> Any:
    """Open the data set of a recipe in JSON. It is cached, because a verifier needs it at every completion."""
    wanted = json.loads(recipe)
    return library().create_dataset(wanted["dataset"], size=wanted["size"], seed=wanted["seed"], **wanted["options"])


def build(out: Writer, config: Gym) -> None:
    write_prompts(out, prompts(config))


GYM = Stage(
    "environments.gym",
    "1",
    build,
    description="Questions of a data set of reasoning-gym, scored by the library.",
    checks=("file_set",),
)
