"""The tasks of `lm_eval_parity.py`, as lm-eval reads them: YAML beside JSON lines, over the items of `data/`."""

import json
import lzma
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LETTERS = ("A", "B", "C", "D")
FORMS = {
    "parity_hellaswag": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_target": "answer_index",
        "doc_to_choice": "choices",
        "metrics": ("acc", "acc_norm"),
    },
    "parity_mmlu": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{shots}}{{question}}\nA. {{choices[0]}}\nB. {{choices[1]}}\nC. {{choices[2]}}\n"
        "D. {{choices[3]}}\nAnswer:",
        "doc_to_target": "answer_index",
        "doc_to_choice": ["A", "B", "C", "D"],
        "metrics": ("acc",),
    },
    "parity_gsm8k": {
        "output_type": "generate_until",
        "doc_to_text": "Question: {{question}}\nAnswer:",
        "doc_to_target": "{{answer}}",
        "generation": {"until": ["\n\n", "Question:"], "max_gen_toks": 24, "do_sample": False, "temperature": 0.0},
        "metrics": ("exact_match",),
    },
    "parity_prose": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metrics": ("word_perplexity", "bits_per_byte"),
    },
}


def write_tasks(folder: Path, limit: int) -> Path:
    """A YAML file and a file of items for every task, at most `limit` items each."""
    folder.mkdir()
    for name, form in FORMS.items():
        rows = prose(max(2, limit // 8)) if name == "parity_prose" else items(name.removeprefix("parity_"), limit)
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / f"{name}.yaml").write_text(_yaml(name, form, folder))
    return folder


def items(task: str, limit: int) -> list[dict]:
    lines = (ROOT / f"data/eval_items/{task}.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    if task != "mmlu":
        return rows[:limit]
    shots = "".join(_shot(row) for row in rows[:2])
    return [row | {"shots": shots} for row in rows[2 : 2 + limit]]


def prose(number: int) -> list[dict]:
    with lzma.open(ROOT / "data/prose/sotu_every_third.jsonl.xz", "rt") as file:
        return [{"text": json.loads(line)["text"][:800]} for line, _ in zip(file, range(number), strict=False)]


def _shot(row: dict) -> str:
    choices = "\n".join(f"{letter}. {choice}" for letter, choice in zip(LETTERS, row["choices"], strict=True))
    return f"{row['question']}\n{choices}\nAnswer: {LETTERS[row['answer_index']]}\n\n"


def _yaml(name: str, form: dict, folder: Path) -> str:
    """JSON is YAML; texts with a template in them need their escapes read, which double quotes do."""
    document = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": str(folder / f"{name}.jsonl")}}
    document |= {"test_split": "train", "num_fewshot": 0, "output_type": form["output_type"]}
    document |= {key: form[key] for key in ("doc_to_text", "doc_to_target", "doc_to_choice") if key in form}
    if "generation" in form:
        document["generation_kwargs"] = form["generation"]
    document["metric_list"] = [{"metric": metric} for metric in form["metrics"]]
    return json.dumps(document, indent=1) + "\n"
