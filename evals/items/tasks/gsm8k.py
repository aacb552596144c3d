"""GSM8K (Cobbe et al. 2021, arXiv:2110.14168): word problems of school mathematics with worked solutions."""

import itertools
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from evals.items.files import json_lines, table_rows
from evals.items.item import Item
from evals.items.rendering import CALCULATION, continuation, styles
from evals.items.task import Channels, RenderedItem, Task

_NUMBER = r"-?\$?-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d{1,2}(?![\w])|/\d[\d,]*)?"
_STATED = (re.compile(rf"####\s*({_NUMBER})"), re.compile(rf"[Tt]he answer is:?\s*({_NUMBER})"))
"""lm-eval's `#### 18` and OLMES's "So the answer is 18."."""
_ANY_NUMBER = re.compile(_NUMBER)


def extract_number(text: str) -> str | None:
    """Return the last stated answer of a text, else its last number, in the form that `plain_number` gives."""
    stated = next((matched[-1] for form in _STATED if (matched := form.findall(text))), None)
    if stated is None:
        numbers = _ANY_NUMBER.findall(text)
        stated = numbers[-1] if numbers else None
    return None if stated is None else plain_number(stated)


MOST_DIGITS = 1_000
"""Python turns no text of more than 4,300 digits into a number."""


def plain_number(stated: str) -> str:
    """A number without commas, dollar signs and trailing zeros; `1e3` is 1000, `1/2` is 0.5, and `2/3` stays a fraction."""
    text = stated.replace(",", "").replace("$", "")
    if len(text) > MOST_DIGITS:
        return text
    try:
        value = Fraction(text)
    except ZeroDivisionError:
        return text
    if 10 ** value.denominator.bit_length() % value.denominator:
        return str(value)
    places = next(places for places in itertools.count() if not 10**places % value.denominator)
    digits = str(abs(value) * 10**places).zfill(places + 1)
    decimal = digits[: len(digits) - places] + ("." + digits[-places:] if places else "")
    return f"-{decimal}" if value < 0 else decimal


def _normalize(answer: str) -> str:
    return extract_number(answer) or answer


def _lm_eval(item: Item) -> RenderedItem:
    """The solution keeps its last line `#### 18`."""
    solved = CALCULATION.sub("", item.solution) if item.solution else item.answer
    return RenderedItem((f"Question: {item.question}\nAnswer:",), (continuation(solved),), 0)


def read_gsm8k_requests(path: Path) -> Iterator[Channels]:
    """OLMES requests. `solution` is the dataset's own text, with calculator tags and the last line `#### answer`."""
    for record in json_lines(path):
        doc = record["doc"]
        yield {
            "item_id": f"{record['doc_id']:04d}",
            "question": doc["question"].strip(),
            "solution": doc["answer"].strip(),
            "answer": doc["short_answer"].strip(),
        }


def read_gsm8k_rows(path: Path) -> Iterator[Channels]:
    """Yield the hub's table. `answer` is the worked solution, and its last line is `#### 18`."""
    for row, record in enumerate(table_rows(path)):
        solution, mark, answer = record["answer"].strip().rpartition("\n#### ")
        if not mark:
            raise KeyError(f"row {row}: no '#### ' before the answer in {solution[-80:]!r}")
        channels = {"question": record["question"].strip(), "solution": record["answer"].strip(), "answer": answer.strip()}
        yield {"item_id": f"{row:04d}", **channels}


GSM8K = Task(
    "gsm8k",
    styles(lm_eval=_lm_eval),
    kind="gold_bpb",
    stops=("Question:", "</s>", "<|im_end|>", "\n\n"),  # OLMES
    extract=extract_number,
    normalize=_normalize,
    formats={"gsm8k_requests": read_gsm8k_requests, "gsm8k_rows": read_gsm8k_rows},
)
