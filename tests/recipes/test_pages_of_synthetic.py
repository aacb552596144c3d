"""The code and the query of docs/recipes/make_synthetic_data.md run, and do what the page says."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from chat_stub import chatting
from test_pages_of_rewards import PAGES, run_page

from datakit.sources.raw import RAW
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build_all
from marin_assets.cli.query import query
from marin_assets.synthetic import synthetic_templates
from post_training.environments.arithmetic import ADDITION, Addition
from post_training.environments.rephrase import INSTRUCTIONS, judge
from post_training.environments.table import read_prompts
from post_training.synthetic.spec import Teacher
from recipes.records.synthetic import SyntheticSet
from recipes.synthetic import accepted, teacher_checkpoint

PAGE = "make_synthetic_data.md"


def right(messages: list[dict]) -> str:
    left, other = messages[0]["content"].removesuffix("=").split("+")
    return f"{int(left) + int(other):02d}"


def test_the_set_of_the_page_becomes_a_source_and_its_query_names_every_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = run_page(PAGE)
    declared: SyntheticSet = page["sums"]
    assert [each.example.key[-1] for each in synthetic_templates(declared)] == ["addition", "rollouts", "accepted"]
    assert teacher_checkpoint(declared).key == ("runs", "addition_rloo", "checkpoint")
    store = Store(str(tmp_path))
    with chatting(right) as stub:
        synthesis = replace(declared.synthesis, teacher=Teacher("stub", stub.url, "chat"), most_prompts=20)
        small = SyntheticSet(synthesis, Node(("environments", "small"), None, ADDITION, Addition(1)), declared.accept)
        raw = Node(("datakit", "raw"), "sums", RAW, page["source"], {"accepted": accepted(small)})
        [made] = build_all(store, [raw])
    assert made.file("files/accepted.jsonl").read_text().count("\n") == 20
    (question,) = re.findall(r"^\./marin query --question (\S+)$", (PAGES / PAGE).read_text(), flags=re.MULTILINE)
    query(question=question, as_json=True, root=str(tmp_path))
    found = json.loads(capsys.readouterr().out)
    assert len({row["rollout"] for row in found}) == 20
    assert {(row["verifier"], row["teacher_digest"]) for row in found} == {("environments.addition@1", "unknown")}


def test_rephrasings_keep_numbers_and_are_no_copies(tmp_path: Path) -> None:
    prompts = run_page(PAGE)["prompts"]
    store = Store(str(tmp_path))
    [made] = build_all(store, [prompts])
    asked = [prompt for split in ("train", "held_out") for prompt in read_prompts(made, split)]
    documents = {prompt.prompt_id.partition("/")[2] for prompt in asked}
    assert len(asked) == 2 * len(documents) and len(asked) > 50
    assert all(prompt.text.startswith(INSTRUCTIONS[prompt.prompt_id.partition("/")[0]]) for prompt in asked)
    text = "In 1969 two people walked on the moon and came back with 21 kilograms of rock from there."
    prompt = replace(asked[0], task=json.dumps({"document": text, "least": 0.3, "most": 2.0, "copied": 0.5}))
    said = {
        "Two people walked on the moon in 1969. They brought 21 kilograms of rock.": "right",
        "Two people walked on the moon in 1970. They brought 21 kilograms of rock.": "wrong",
        text: "wrong",
        "1969.": "wrong",
        f"{text} {text} {text}": "wrong",
    }
    assert {answer: judge([prompt], [answer])[0].outcome for answer in said} == said
