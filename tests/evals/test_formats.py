"""Formats of the wider suites: one small file in each layout, with its special cases."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evals.items.formats import formats
from evals.items.shots import read_choice_shots, read_solution_shots


def lines(path: Path, rows: list[dict]) -> Path:
    path.write_bytes(
        gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), mtime=0) + bytes(512)
    )  # padded, as gzip(1) allows
    return path


def request(doc: dict, doc_id: int = 0, **fields: object) -> dict:
    return {"doc": doc, "doc_id": doc_id, "native_id": None, "request": {"context": "", "continuation": ""}} | fields


def read(tmp_path: Path, form: str, *rows: dict) -> list[dict]:
    return list(formats()[form](lines(tmp_path / "requests.jsonl.gz", list(rows))))


def test_unconditional_rows_are_no_items(tmp_path):
    doc = {"goal": "Cool tea", "sol1": "Wait.", "sol2": "Boil it.", "label": 0}
    items = read(tmp_path, "piqa_requests", *(request(doc, base + n) for base in (0, 1_000_000) for n in (0, 0, 1)))
    assert [(c["item_id"], c["question"], c["answer"]) for c in items] == [
        ("0000", "Cool tea", "Wait."),
        ("0001", "Cool tea", "Wait."),
    ]


def test_winogrande_is_keyed_by_row_because_its_native_id_is_null(tmp_path):
    doc = {"sentence": "Ann hired Bo as _ was ill.", "option1": "Ann", "option2": "Bo", "answer": "1"}
    items = read(tmp_path, "winogrande_requests", request(doc, 0), request(doc, 0), request(doc, 1))
    assert [(c["item_id"], c["answer"], c["answer_index"]) for c in items] == [("0000", "Ann", 0), ("0001", "Ann", 0)]
    with pytest.raises(KeyError, match="2 blanks"):
        read(tmp_path, "winogrande_requests", request(doc | {"sentence": "_ and _"}))


def test_boolq_gives_its_passage_apart(tmp_path):
    doc = {"query": "Tea -- A drink.\nQuestion: Hot?\nQuestion: is tea hot?\nAnswer:", "choices": ["yes", "no"], "gold": 0}
    (item,) = read(tmp_path, "boolq_requests", request(doc))
    assert (item["passage"], item["question"]) == ("Tea -- A drink.\nQuestion: Hot?", "is tea hot?")
    with pytest.raises(KeyError, match="no passage"):
        read(tmp_path, "boolq_requests", request(doc | {"query": "is tea hot?\nAnswer:"}))


def test_mbpp_loses_carriage_returns_and_gains_a_judge(tmp_path):
    doc = {
        "task_id": 11,
        "text": "Write f.",
        "code": "def f():\r\n  return 1",
        "test_list": ["assert f() == 1"],
        "test_setup_code": "x = 1\r\ny = 2",
    }
    (item,) = read(tmp_path, "mbpp_requests", request(doc))
    assert (item["item_id"], item["solution"]) == ("0011", "def f():\n  return 1")
    assert item["code"] == "x = 1\ny = 2\nassert f() == 1\n"


def test_humaneval_keeps_its_prompt_to_the_letter_and_calls_its_check(tmp_path):
    row = {
        "task_id": "HumanEval/0",
        "prompt": "\n\ndef f():\n",
        "canonical_solution": "    return 1\n",
        "entry_point": "f",
        "test": "\n\ndef check(c):\n    assert c() == 1\n",
    }
    (item,) = read(tmp_path, "humaneval_jsonl", row)
    assert item["question"] == "\n\ndef f():\n"
    exec(item["question"] + item["solution"] + "\n" + item["code"], {})  # ours: a file of this test


def test_math_ids_have_their_subject_and_lambada_its_word(tmp_path):
    doc = {"problem": "1+1?", "solution": "It is $\\boxed{2}$.", "answer": "2"}
    (item,) = read(tmp_path, "math_requests", request(doc, 7, task_name="minerva_math_algebra"))
    assert (item["item_id"], item["answer"]) == ("algebra/0007", "2")
    (word,) = read(tmp_path, "lambada_requests", request({"query": "He said", "answers_text": ["no"]}))
    assert (word["question"], word["answer"]) == ("He said", "no")


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_copa_from_a_folder_of_datasets_or_from_the_hubs_parquet(tmp_path, kind):
    row = {
        "premise": "It rained. ",
        "choice1": "Streets dried.",
        "choice2": "Streets were wet.",
        "question": "effect",
        "idx": 3,
        "label": 1,
    }
    table = pa.Table.from_pylist([row])
    path = tmp_path / f"copa.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    (item,) = formats()["copa_arrow"](path)
    assert item["question"] == "It rained. What happened as a RESULT?"
    assert (item["item_id"], item["answer"]) == ("003", "Streets were wet.")


def test_whole_items_come_back_out_of_rendered_examples():
    context = (
        "Tea -- A drink.\nQuestion: is tea hot?\n A. yes\n B. no\nAnswer: A\n\n"
        "Goal: Cool tea\n A. Wait.\n B. Boil it.\nAnswer: A\n\n"
        "Fill in the blank: Ann hired Bo as ___ was ill.\n A. Ann\n B. Bo\nAnswer: B\n\n"
        "A man sits. He \nChoose the best continuation:\n A. stands.\n B. flies.\nAnswer: A\n\n"
        "Question: What now?\n A. this\n B. that\nAnswer:"
    )
    items = list(read_choice_shots(context))
    assert [(c["passage"], c["question"], c["answer"]) for c in items] == [
        ("Tea -- A drink.", "is tea hot?", "yes"),
        ("", "Cool tea", "Wait."),
        ("", "Ann hired Bo as _ was ill.", "Bo"),
        ("", "A man sits. He", "stands."),
    ]
    with pytest.raises(ValueError, match="begins with no example"):
        list(read_choice_shots("Question: What now?\nAnswer:"))


def test_worked_examples_come_back_with_their_answers():
    shots = (
        "Question: 1+1?\nAnswer: It is 2. So the answer is 2.\n\n"
        "Question: 2+2?\nAnswer: 4. So the answer is 4.\n\nQuestion: 3?\nAnswer:"
    )
    assert [(c["question"], c["answer"]) for c in read_solution_shots(shots)] == [("1+1?", "2"), ("2+2?", "4")]
    solved = "Problem:\n1?\n\nSolution: $1$.\nFinal Answer: The final answer is $1$. I hope it is correct."
    math = f"{solved}\n\nProblem:\n2?\n\nSolution:"
    assert [(c["question"], c["answer"]) for c in read_solution_shots(math)] == [("1?", "$1$")]
    with pytest.raises(ValueError, match="example 0 states no answer"):
        list(read_solution_shots("Question: 1?\nAnswer: Who knows.\n\nQuestion: 2?\nAnswer:"))
