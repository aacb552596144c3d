"""GSM8K (Cobbe et al. 2021, arXiv:2110.14168): word problems of school mathematics with worked solutions."""

import re
from collections.abc import Iterator
from pathlib import Path

from evals.items.files import json_lines, table_rows
from evals.items.item import Item
from evals.items.rendering import CALCULATION, continuation, styles
from evals.items.task import Channels, RenderedItem, Task

_NUMBER = r"-?\$?\d[\d,]*(?:\.\d+)?"
_STATED = (re.compile(rf"####\s*({_NUMBER})"), re.compile(rf"[Tt]he answer is:?\s*({_NUMBER})"))
"""lm-eval's `#### 18` and OLMES's "So the answer is 18."."""
_ANY_NUMBER = re.compile(_NUMBER)


def extract_number(text: str) -> str | None:
    """The last stated answer of a text, else its last number; without commas, dollar signs and trailing zeros."""
    stated = next((found[-1] for form in _STATED if (found := form.findall(text))), None)
    if stated is None:
        numbers = _ANY_NUMBER.findall(text)
        stated = numbers[-1] if numbers else None
    if stated is None:
        return None
    plain = stated.replace(",", "").replace("$", "")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


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
    """The hub's table. `answer` is the worked solution, and its last line is `#### 18`."""
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
