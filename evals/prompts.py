"""How an item becomes prompts: the one place, so that two evaluations of a task ask the same question.

Three styles. `cloze`: the question alone, each choice as its continuation (OLMES "rc"). `letters`: choices listed, the letter
as continuation (OLMES "mc"). `lm_eval`: lm-eval 0.4's own form, where it differs. Cloze and letters, with the five examples of
OLMES, give the contexts and continuations that the wheel ships of seven tasks, up to white space around PIQA's choices (all
11,644 items were compared on 2026-11-22, docs/log.md); HellaSwag's are lm-eval's text, whose ".." OLMES makes ".". Gold answers
of GSM8K are the dataset's own words; OLMES rewrites their arithmetic. The style and the number of examples are part of a
record's policy; a changed rendering is a new `RENDERING`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from evals.items import Item
from evals.shots import BLANK, CONTINUE, LETTERS
from evals.table_formats import COPA_QUESTIONS
from trainer.stage import Weights

CALCULATION = re.compile(r"<<[^>]*>>")
FINAL_ANSWER = re.compile(r"\s*#### .*$")
RENDERING = "3"
"""2: styles and examples; what was `plain-0shot/1` is `cloze-0shot/2`, the same text for the five tasks there were; 3: what
MMLU's questions are about is said once before all examples, as lm-eval says it, and no more before each of them."""

type Style = Literal["cloze", "letters", "lm_eval"]
UNCONDITIONAL = "Answer:"
"""What a choice follows when nothing is asked: its probability there is what acc_uncond divides by (OLMES; lm-eval asks
after an empty text)."""
_COPA_LINKS = {"cause": "because", "effect": "therefore"}


@dataclass(frozen=True)
class Asked:
    """An item as a model meets it: one prompt and one continuation for every choice, one of each where there are none."""

    prompts: tuple[str, ...]
    continuations: tuple[str, ...]
    gold: int

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return list(zip(self.prompts, self.continuations, strict=True))

    @property
    def solved(self) -> str:
        """The item as an example: its prompt with the right continuation."""
        return self.prompts[self.gold] + self.continuations[self.gold]


def policy_name(style: Style, num_shots: int, weights: Weights = "raw") -> str:
    """What a record's `policy` says of how it was asked, and of which weights where they are not the raw ones."""
    return f"{style}-{num_shots}shot/{RENDERING}" + ("" if weights == "raw" else f"+{weights}")


def ask(item: Item, style: Style = "cloze", shots: Sequence[Item] = ()) -> Asked:
    """The prompts of an item behind what its task is about, where the style says that, and solved examples of its task."""
    asked = _STYLES[style](item)
    solved = "".join(f"{_STYLES[style](shot).solved}\n\n" for shot in shots)
    before = _description(item, style) + solved
    return Asked(tuple(before + prompt for prompt in asked.prompts), asked.continuations, asked.gold)


def choose_shots(item: Item, shots: Sequence[Item], count: int) -> list[Item]:
    """The first `count` examples of the item's task; of MMLU, of its subject.

    Raises: ValueError when there are fewer.
    """
    found = [shot for shot in shots if shot.task == item.task and _subject(shot) == _subject(item)]
    if len(found) < count:
        raise ValueError(f"item {item.task}/{item.item_id}: {count} examples are asked for, the shots hold {len(found)}")
    return found[:count]


def _subject(item: Item) -> str:
    return item.item_id.partition("/")[0] if item.task == "mmlu" else ""


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


def _asked(item: Item, prompt: str) -> Asked:
    """One prompt for every choice, or for the gold answer of an item without any."""
    if not item.choices:
        return Asked((prompt,), (continuation(gold_answer(item)),), 0)
    endings = tuple(continuation(choice) for choice in item.choices)
    return Asked((prompt,) * len(endings), endings, item.answer_index)


def _cloze(item: Item) -> Asked:
    match item.task:
        case "hellaswag" | "lambada":
            return _asked(item, item.question)
        case "winogrande":
            return _filled_blank(item)
        case "copa":
            return _linked(item)
        case "boolq":
            return _asked(item, f"{item.passage}\nQuestion: {item.question}\nAnswer:")
        case "piqa":
            return _asked(item, f"Goal: {item.question}\nAnswer:")
        case "math":
            return _asked(item, f"Problem:\n{item.question}\n\nSolution:")
        case "humaneval":
            return Asked((item.question,), (item.solution,), 0)
        case "mbpp":
            return Asked((f"{item.question}\n```python\n",), (f"{item.solution}\n```",), 0)
    passage = f"{item.passage}\n\n" if item.passage else ""
    return _asked(item, f"{passage}Question: {item.question}\nAnswer:")


def _filled_blank(item: Item) -> Asked:
    """Partial scoring: the choice stands in the prompt, what follows the blank is scored (Trinh and Le 2018)."""
    before, _, after = item.question.partition("_")
    ending = continuation(after)
    return Asked(tuple(before + choice for choice in item.choices), (ending,) * len(item.choices), item.answer_index)


def _linked(item: Item) -> Asked:
    kind = next(kind for kind, asked in COPA_QUESTIONS.items() if item.question.endswith(asked))
    premise = item.question.removesuffix(COPA_QUESTIONS[kind]).strip()
    endings = tuple(continuation(choice[0].lower() + choice[1:]) for choice in item.choices)
    return Asked((f"{premise[:-1]} {_COPA_LINKS[kind]}",) * len(endings), endings, item.answer_index)


def _letters(item: Item) -> Asked:
    if not item.choices:
        raise ValueError(f"item {item.task}/{item.item_id} has no choices, so no letters; ask it in another style")
    heads = {
        "hellaswag": f"{item.question}{CONTINUE}",
        "winogrande": f"Fill in the blank: {item.question.replace('_', BLANK)}",
        "boolq": f"{item.passage}\nQuestion: {item.question}",
        "piqa": f"Goal: {item.question}",
    }
    return _listed(item, heads.get(item.task, f"Question: {item.question}"), indent=" ")


def _listed(item: Item, head: str, indent: str = "") -> Asked:
    listed = "".join(f"\n{indent}{letter}. {choice}" for letter, choice in zip(LETTERS, item.choices, strict=False))
    endings = tuple(f" {letter}" for letter in LETTERS[: len(item.choices)])
    return Asked((f"{head}{listed}\nAnswer:",) * len(endings), endings, item.answer_index)


def _description(item: Item, style: Style) -> str:
    """What lm-eval says once, before the examples (`description` of its tasks)."""
    if style != "lm_eval" or item.task != "mmlu":
        return ""
    subject = _subject(item).replace("_", " ")
    return f"The following are multiple choice questions (with answers) about {subject}.\n\n"


def _lm_eval(item: Item) -> Asked:
    match item.task:
        case "mmlu":
            return _listed(item, item.question)
        case "csqa":
            return _listed(item, f"Question: {item.question}")
        case "piqa":
            return _asked(item, f"Question: {item.question}\nAnswer:")
        case "openbookqa":
            return _asked(item, item.question)
        case "mbpp":
            task = "You are an expert Python programmer, and here is your task:"
            tests = item.code.strip()
            prompt = f"{task} {item.question} Your code should pass these tests:\n\n{tests}\n[BEGIN]\n"
            return Asked((prompt,), (f"{item.solution}\n[DONE]",), 0)
        case "gsm8k":
            solved = CALCULATION.sub("", item.solution) if item.solution else item.answer
            return Asked((f"Question: {item.question}\nAnswer:",), (continuation(solved),), 0)
    return _cloze(item)


_STYLES = {"cloze": _cloze, "letters": _letters, "lm_eval": _lm_eval}
