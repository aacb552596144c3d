"""The forms in which a benchmark item leaks: sixteen ways of rendering and editing it.

A form is a function from an item (a row of `item/1`) and a random generator to the leaked text, or None if the form
does not apply: a question without a number has no changed numbers. A policy's proof plants every form
(`measure_recall.py`), a scan's canaries a few of them (`planted_items.py`); `benchmarks/planted_leaks.py` compares
policies on all.
"""

import random
import re
import string
from collections.abc import Callable, Mapping
from itertools import cycle, islice
from typing import Any

from datakit.text.canonical_text import blank_calculator_tags, canonical_bytes

type Item = Mapping[str, Any]
type Form = Callable[[Item, random.Random], str | None]

MIN_ANSWER_WORDS = 10
NAMES = ("Ottoline", "Barnaby", "Quillon", "Marisol", "Thaddeus", "Ingrid", "Calloway", "Perpetua", "Vashti", "Lysander")
OTHER_WORDS = """
harbour copper seldom window gather paper yellow bridge remember quiet market seven village garden shoulder winter early candle
borrow narrow engine letter orange morning silver follow mountain answer distance kitchen perhaps carry blanket
"""
"""Replacement words of an edit."""
AROUND = """
The harbour lay quiet under a grey sky and the boats that came in with the morning tide were drying their nets along the wall
while an old clerk counted barrels by the gate and nobody hurried him for the price of salt had fallen again and the merchants
were content to wait for better news from the capital before they opened their books for the season
"""


def lm_eval_text(item: Item) -> str:
    """Return the prompt of lm-eval with its gold answer: the record that an index of rendered prompts holds."""
    question, answer = item["question"], item["solution"] or item["answer"]
    match item["task"]:
        case "mmlu":
            choices = "\n".join(f"{letter}. {choice}" for letter, choice in zip("ABCD", item["choices"], strict=False))
            return f"{question}\n{choices}\nAnswer: {'ABCD'[item['answer_index']]}"
        case "hellaswag":
            return f"{question} {answer}"
        case _:
            return f"Question: {question}\nAnswer: {answer}"


def verbatim(item: Item, choose: random.Random) -> str:
    """Return the prompt of lm-eval with its gold answer: what an index of rendered prompts holds, calculator tags included."""
    return lm_eval_text(item)


def olmes(item: Item, choose: random.Random) -> str:
    """Return one paragraph without calculator tags; choices after letters in one line."""
    if item["task"] == "hellaswag" or not item["choices"]:
        return " ".join(blank_calculator_tags(verbatim(item, choose)).split())
    lettered = " ".join(f"{letter}. {choice}" for letter, choice in zip(string.ascii_uppercase, item["choices"], strict=False))
    return f"Question: {item['question']} {lettered} Answer: {string.ascii_uppercase[item['answer_index']]}"


def question_only(item: Item, choose: random.Random) -> str:
    """Return the question alone."""
    return item["question"]


def answer_only(item: Item, choose: random.Random) -> str | None:
    """Return the solution or the answer alone; None if it has too few words."""
    text = blank_calculator_tags(item["solution"] or item["answer"])
    return text if len(re.findall(r"[^\W\d]{3,}", text)) >= MIN_ANSWER_WORDS else None


def wrapped(item: Item, choose: random.Random) -> str:
    """Return the item with a line feed after every eight words."""
    words = verbatim(item, choose).split()
    return "\n".join(" ".join(words[low : low + 8]) for low in range(0, len(words), 8))


def unpunctuated(item: Item, choose: random.Random) -> str:
    """Return the item in canonical form, without punctuation and capital letters."""
    return " ".join(canonical_bytes(verbatim(item, choose)).decode().split())


def in_longer_paragraph(item: Item, choose: random.Random) -> str:
    """Return the text inside four times as many other words, without a line break."""
    words = verbatim(item, choose).split()
    around, half = islice(cycle(AROUND.split()), 4 * len(words)), 2 * len(words)
    return " ".join([*islice(around, half), *words, *around])


def edited(share: float, text: Form) -> Form:
    """Replace each word by another with this probability."""
    others = OTHER_WORDS.split()

    def edit(item: Item, choose: random.Random) -> str:
        words = (text(item, choose) or "").split()
        return " ".join(choose.choice(others) if choose.random() < share else word for word in words)

    return edit


def question_and_answer(item: Item, choose: random.Random) -> str:
    """Return question and answer after the words `Question:` and `Answer:`."""
    return f"Question: {item['question']}\nAnswer: {item['solution'] or item['answer']}"


def numbers_changed(item: Item, choose: random.Random) -> str | None:
    """Replace every number of question and answer by another with as many digits; tags, which would no longer compute,
    are cut.
    """
    if not re.search(r"\d", item["question"]):
        return None
    return re.sub(r"\d", lambda _: str(choose.randint(1, 9)), blank_calculator_tags(question_and_answer(item, choose)))


def names_changed(item: Item, choose: random.Random) -> str | None:
    """Replace capitalised words that do not begin a sentence, and their other occurrences, by invented names."""
    names = re.findall(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b", item["question"])
    if not names:
        return None
    text = question_and_answer(item, choose)
    for name in dict.fromkeys(names):
        text = re.sub(rf"\b{name}\b", choose.choice(NAMES), text)
    return text


def in_markup(item: Item, choose: random.Random) -> str:
    """Add HTML blocks, Markdown emphasis on every fifth word, and LaTeX around numbers."""
    words = re.sub(r"(\d+)", r"$\1$", item["question"]).split()
    question = " ".join(f"**{word}**" if at % 5 == 4 else word for at, word in enumerate(words))
    answer = item["solution"] or item["answer"]
    return f'<div class="item"><h3>Question</h3>\n<p>{question}</p>\n<ul><li>{answer}</li></ul></div>'


def typographic(item: Item, choose: random.Random) -> str:
    """Use curly quotes, long dashes, no-break spaces and ligatures."""
    text = question_and_answer(item, choose).replace("'", "’").replace("-", "–").replace("fi", "ﬁ").replace(". ", ".\u00a0")
    return re.sub(r'"([^"]*)"', "“\\1”", text)


def choices_relabelled(item: Item, choose: random.Random) -> str | None:
    """Return the question with numbered choices in another order; None for an item without choices."""
    if len(item["choices"]) < 2:
        return None
    choices = choose.sample(list(item["choices"]), len(item["choices"]))
    return f"{item['question']}\n" + "\n".join(f"({number}) {choice}" for number, choice in enumerate(choices, start=1))


LEAK_FORMS: Mapping[str, Form] = {
    "verbatim": verbatim,
    "olmes": olmes,
    "question_only": question_only,
    "answer_only": answer_only,
    "wrapped": wrapped,
    "unpunctuated": unpunctuated,
    "in_longer_paragraph": in_longer_paragraph,
    "edited_5_percent": edited(0.05, question_and_answer),
    "edited_12_percent": edited(0.12, question_and_answer),
    "edited_25_percent": edited(0.25, question_and_answer),
    "numbers_changed": numbers_changed,
    "names_changed": names_changed,
    "in_markup": in_markup,
    "typographic": typographic,
    "choices_relabelled": choices_relabelled,
    "question_edited_12_percent": edited(0.12, question_only),
}
FORMAT_CHANGES = (*list(LEAK_FORMS)[:7], "in_markup", "typographic", "choices_relabelled")
"""The forms that change no word; their recall must be at least .98."""
EDITED_12 = "edited_12_percent"
"""The recall of this form must be at least .88."""
