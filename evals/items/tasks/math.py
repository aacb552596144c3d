"""MATH (Hendrycks et al. 2021, arXiv:2103.03874): competition problems with worked solutions.

The answer is Minerva's "The final answer is $x$.", else the last \\boxed{}. Answers are normalized as Minerva does (Lewkowycz
et al. 2022, arXiv:2206.14858), with more forms. Two answers are equal when their texts are, or when SymPy shows that they are
(`evals/tasks/math_equal.py`). On the 174 labelled pairs of `tests/evals/math_pairs.txt` this agrees with every label;
lm-eval 0.4.13's minerva refuses 34 equal pairs and takes 9 different ones for equal (2026-11-24).
"""

import re
from collections.abc import Iterator
from pathlib import Path

from evals.items.files import json_lines
from evals.items.item import Item
from evals.items.rendering import prompted, styles
from evals.items.task import Channels, Task

_FINAL = re.compile(r"[Ff]inal [Aa]nswer: The final answer is\s*(.*?)\.?\s*I hope it is correct", re.DOTALL)
_UNITS = (
    "dollars", "cents", "degrees", "inches", "square", "hours", "minutes", "seconds", "days", "years", "miles", "feet", "cm",
    "mm", "km", "mph", "units", "cubic", "meters", "pounds", "students", "people", "ways", "points", "digits", "percent",
)  # fmt: skip
_UNIT = re.compile(rf"(?<![A-Za-z\\])(?:{'|'.join(_UNITS)})(?![A-Za-z])(?:\^(?:[23]|\{{[23]\}}))?")
"""A unit as a word of its own, with its square or cube: `5cm^2` holds one; `common` and `\\square` hold none."""
_DELIMITER = re.compile(r"\\(?:left|right)(?![A-Za-z])")
_REMOVED = (
    "{,}", "~", "\\quad", "\\$", "$", "\\%", "%", "^\\circ", "^{\\circ}", "°", "\\displaystyle"
)  # fmt: skip
_SPACE = re.compile(r"(?<!\\)\\[!,;: ]")
"""Spaces by a command of one character; `\\\\` ends a row of a matrix."""
_HELD_SPACE = re.compile(r"(\\[A-Za-z]+)\s+(?=[A-Za-z])|([_^]\w)\s+(?=\d)")
"""A space that says something: `\\ln e`, `\\log_2 8`."""
_NAMED = re.compile(r"(?:[A-Za-z]|\\[A-Za-z]+|[A-Za-z]\([A-Za-z]\))\s*")
"""What an answer may be an equation for: `x =`, `f(x) =`."""


def extract_math(text: str) -> str | None:
    """Return the normalized final answer of a text; None when it states none."""
    match = _FINAL.search(text)
    stated = match[1] if match else last_boxed(text)
    return normalized_math(stated) if stated is not None and stated.strip() else None


def last_boxed(text: str) -> str | None:
    """Return the content of the last \\boxed{...}, with braces matched; None when there is none or it never closes."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, begin = 0, start + len("\\boxed{")
    for place in range(begin - 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[begin:place]
    return None


def normalized_math(answer: str) -> str:
    """Return an answer without what does not change its meaning: units, spacing, delimiters, short forms of fractions."""
    before, sign, behind = answer.strip(" $").partition("=")
    text = behind if sign and "=" not in behind and _NAMED.fullmatch(before) else answer
    text = text.replace("tfrac", "frac").replace("dfrac", "frac").replace("cfrac", "frac")
    text = re.sub(r"\\(?:text|mathrm|textbf|mbox|mathbf|textit|textrm|operatorname)\{(.*?)\}", r"\1", text)
    text = _UNIT.sub("", _DELIMITER.sub("", text))
    for removed in _REMOVED:
        text = text.replace(removed, "")
    text = re.sub(r"\\frac(\d)(\d)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\sqrt(\w)", r"\\sqrt{\1}", text)
    text = re.sub(r"([_^])\{(\w)\}", r"\1\2", text)
    text = re.sub(r"(?<![\d,])(\d{1,3}(?:,\d{3})+)(?!\d)", lambda number: number[1].replace(",", ""), text)
    text = _HELD_SPACE.sub("\\1\\2\x00", _SPACE.sub("", text))
    text = re.sub(r"\s+", "", text).replace("\x00", " ").rstrip(".,")
    text = text[1:-1] if re.fullmatch(r"\{[^{}]*\}|\([A-Z]\)", text) else text
    return text.lower() if re.fullmatch(r"[A-Z][a-z]{2,}", text) else text


def _prompt(item: Item) -> str:
    return f"Problem:\n{item.question}\n\nSolution:"


def read_math(path: Path) -> Iterator[Channels]:
    """OLMES requests, one subject a file. Ids are `<subject>/<row>`."""
    for record in json_lines(path):
        doc = record["doc"]
        yield {
            "item_id": f"{record['task_name'].removeprefix('minerva_math_')}/{record['doc_id']:04d}",
            "question": doc["problem"],
            "solution": doc["solution"],
            "answer": doc["answer"],
        }


MATH = Task(
    "math",
    styles(cloze=prompted(_prompt)),
    kind="gold_bpb",
    stops=("Problem:", "\n\n"),  # OLMES
    extract=extract_math,
    normalize=normalized_math,
    equality="math",
    formats={"math_requests": read_math},
)
