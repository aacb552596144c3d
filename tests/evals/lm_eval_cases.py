"""Documents and a small model for the comparison of lm-eval's tasks with ours. Nothing of this lab is imported here,
because `benchmarks/lm_eval_yaml_peer.py` reads this file in lm-eval's own environment.

The documents are made from `data/eval_items/` in the layout of each dataset's own rows; the texts of some tasks make no
sense as questions, which does not matter for the comparison.
"""

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[2] / "data/eval_items"
YAML = Path(__file__).parent / "lm_eval_tasks"
NUM_SHOTS = {"arc_easy": 2, "gsm8k": 2, "hellaswag": 0, "lambada_openai": 0, "piqa": 0, "winogrande": 1}
"""Every task of the comparison, and how many examples its prompts begin with."""
NUM_DOCUMENTS = 60
MAX_NEW_TOKENS = 600
START = 256
_CONTEXT, _NOISE_CONTEXT, _CERTAINTY = 24, 2, 8.0


def documents(task: str) -> tuple[list[dict], list[dict]]:
    """(examples, documents) of a task."""
    rows = _DOCUMENTS[task]()
    return rows[NUM_DOCUMENTS : NUM_DOCUMENTS + 4], rows[:NUM_DOCUMENTS]


def write_documents(folder: Path) -> None:
    """`<task>.shots.jsonl` and `<task>.jsonl` of every task."""
    for task in NUM_SHOTS:
        for name, rows in zip((f"{task}.shots.jsonl", f"{task}.jsonl"), documents(task), strict=True):
            (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def _items(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


def _arc_easy() -> list[dict]:
    return [
        {
            "question": item["question"],
            "choices": {"text": item["choices"], "label": list("ABCD")},
            "answerKey": "ABCD"[item["answer_index"]],
        }
        for item in _items("mmlu")
    ]


def _gsm8k() -> list[dict]:
    return [{"question": item["question"], "answer": item["solution"]} for item in _items("gsm8k")]


def _hellaswag() -> list[dict]:
    rows = []
    for item in _items("hellaswag"):
        activity, _, context = item["question"].partition(": ")
        *first, second, last = context.split(" ")
        row = {"activity_label": activity, "ctx_a": " ".join(first), "ctx_b": f"{second} {last}"}
        rows.append(row | {"endings": item["choices"], "label": str(item["answer_index"])})
    return rows


def _piqa() -> list[dict]:
    rows = []
    for number, item in enumerate(_items("hellaswag")):
        wrong = item["choices"][item["answer_index"] - 1]
        first, second = (item["answer"], wrong) if number % 2 else (wrong, item["answer"])
        rows.append({"goal": item["question"], "sol1": first, "sol2": second, "label": 1 - number % 2})
    return rows


def _winogrande() -> list[dict]:
    rows = []
    for number, item in enumerate(_items("gsm8k")):
        words = item["question"].split(" ")
        word, words[2] = words[2], "_"
        options = (word, "nobody") if number % 2 else ("nobody", word)
        rows.append({"sentence": " ".join(words), "option1": options[0], "option2": options[1], "answer": str(2 - number % 2)})
    return rows


def _lambada_openai() -> list[dict]:
    return [{"text": f"{item['question']} {item['answer'].rstrip('.')}"} for item in _items("hellaswag")]


_DOCUMENTS = {
    "arc_easy": _arc_easy,
    "gsm8k": _gsm8k,
    "hellaswag": _hellaswag,
    "lambada_openai": _lambada_openai,
    "piqa": _piqa,
    "winogrande": _winogrande,
}


def process_hellaswag(rows: Sequence[dict]) -> list[dict]:
    """lm-eval's `utils.process_docs` of HellaSwag, on a list."""
    import re

    def clean(text: str) -> str:
        text = text.strip().replace(" [title]", ". ")
        return re.sub("\\[.*?\\]", "", text).replace("  ", " ")

    return [
        {
            "query": clean(f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}"),
            "choices": [clean(ending) for ending in row["endings"]],
            "label": row["label"],
        }
        for row in rows
    ]


FUNCTIONS = {
    "utils.process_docs": process_hellaswag,
    "preprocess_winogrande.doc_to_text": lambda doc: {"1": 0, "2": 1}[doc["answer"]],
    "preprocess_winogrande.doc_to_target": lambda doc: doc["sentence"].partition("_")[2].strip(),
    "preprocess_winogrande.doc_to_choice": lambda doc: [
        doc["sentence"].partition("_")[0] + doc[option] for option in ("option1", "option2")
    ],
}
"""The functions that the YAML files name, as lm-eval's modules beside them define them."""


@cache
def _counts() -> dict[tuple[int, ...], dict[int, int]]:
    """How often each byte follows a context in the texts that the model has learnt: those of every second document."""
    counts: dict[tuple[int, ...], dict[int, int]] = {}
    for task in NUM_SHOTS:
        for row in documents(task)[1][::2]:
            if task == "gsm8k":
                text = f"Question: {row['question']}\nAnswer: {row['answer']}\n\n"
            elif task == "arc_easy":
                text = f"Question: {row['question']}\nAnswer: {row['choices']['text'][ord(row['answerKey']) - ord('A')]}"
            else:
                text = " ".join(str(value) for value in row.values())
            symbols = [START, *text.encode()]
            for at in range(1, len(symbols)):
                following = counts.setdefault(tuple(symbols[max(0, at - _CONTEXT) : at]), {})
                following[symbols[at]] = following.get(symbols[at], 0) + 1
    return counts


@cache
def _noise(context: tuple[int, ...]) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(context)).standard_normal(257)


@cache
def log_probs(context: tuple[int, ...]) -> np.ndarray:
    """[257] log-probability of every symbol after a context of at most `_CONTEXT` symbols: counts of bytes over fixed
    noise."""
    logits = _noise(context[-_NOISE_CONTEXT:]).copy()
    for symbol, count in _counts().get(context, {}).items():
        logits[symbol] += _CERTAINTY + math.log(count)
    return logits - np.log(np.exp(logits).sum())


def score(symbols: Sequence[int], tail: int) -> tuple[np.ndarray, bool]:
    """(nats of each of the last `tail` symbols, whether each of them is the likeliest)."""
    places = range(len(symbols) - tail, len(symbols))
    rows = [log_probs(tuple(symbols[max(0, at - _CONTEXT) : at])) for at in places]
    nats = np.array([-row[symbols[at]] for row, at in zip(rows, places, strict=True)])
    return nats, all(int(row.argmax()) == symbols[at] for row, at in zip(rows, places, strict=True))


def generate(prompt: str, stops: Sequence[str], max_tokens: int = MAX_NEW_TOKENS) -> str:
    """The greedy continuation up to a stop."""
    symbols = [START, *prompt.encode()]
    begin = len(symbols)
    for _ in range(max_tokens):
        symbols.append(int(log_probs(tuple(symbols[-_CONTEXT:]))[:256].argmax()))
        text = bytes(symbols[begin:]).decode(errors="ignore")
        for stop in stops:
            if stop in text:
                return text[: text.index(stop)]
    return bytes(symbols[begin:]).decode(errors="ignore")
