"""MATH (Hendrycks et al. 2021, arXiv:2103.03874): competition problems with worked solutions.

The answer is Minerva's "The final answer is $x$.", else the last \\boxed{}. Two answers are equal when their normalized
texts are equal (Lewkowycz et al. 2022, arXiv:2206.14858). lm-eval also asks sympy, so its score can only be higher than
ours.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from evals.items.files import json_lines
from evals.items.item import Item
from evals.items.rendering import prompted, styles
from evals.items.task import Channels, Task

_FINAL = re.compile(r"[Ff]inal [Aa]nswer: The final answer is\s*(.*?)\.?\s*I hope it is correct", re.DOTALL)
_UNITS = ("dollars", "cents", "degrees", "inches", "square", "hours", "minutes", "miles", "feet", "cm", "mm", "units")
_UNIT = re.compile(rf"(?<![A-Za-z\\])(?:{'|'.join(_UNITS)})(?![A-Za-z])(?:\^(?:[23]|\{{[23]\}}))?")
"""A unit as a word of its own, with its square or cube: `5cm^2` holds one; `common` and `\\square` hold none."""
_DELIMITER = re.compile(r"\\(?:left|right)(?![A-Za-z])")
_REMOVED = ("\\!", "\\,", "\\ ", "\\$", "$", "\\%", "%", "^\\circ", "^{\\circ}")


def extract_math(text: str) -> str | None:
    """The normalized final answer of a text; None when it states none."""
    found = _FINAL.search(text)
    stated = found[1] if found else last_boxed(text)
    return normalized_math(stated) if stated is not None and stated.strip() else None


def last_boxed(text: str) -> str | None:
    """The content of the last \\boxed{...}, with braces matched; None when there is none or it never closes."""
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
    """An answer without what does not change its meaning: units, spacing, delimiters, short forms of fractions."""
    text = answer.split("=")[-1] if answer.count("=") == 1 and len(answer.split("=")[0].strip()) <= 2 else answer
    text = text.replace("tfrac", "frac").replace("dfrac", "frac")
    text = re.sub(r"\\(?:text|mathrm|textbf|mbox)\{(.*?)\}", r"\1", text)
    text = _UNIT.sub("", _DELIMITER.sub("", text))
    for removed in _REMOVED:
        text = text.replace(removed, "")
    text = re.sub(r"\\frac(\d)(\d)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\sqrt(\w)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<![\d,])(\d{1,3}(?:,\d{3})+)(?!\d)", lambda number: number[1].replace(",", ""), text)
    text = re.sub(r"\s+", "", text)
    return text.removeprefix("{").removesuffix("}") if re.fullmatch(r"\{[^{}]*\}", text) else text.rstrip(".")


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
    formats={"math_requests": read_math},
)
