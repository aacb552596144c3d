"""Verifiable instructions: checkers against lm-eval's verdicts, the reader, and accuracies by prompt and by instruction."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from ifeval_cases import texts

from evals.items.item import Item
from evals.items.stage import TaskSpec
from evals.items.tasks.ifeval import IFEVAL, followed, loose_texts, read_ifeval
from evals.items.tasks.ifeval_checks import CHECKERS, follows
from evals.tasks.generation import evaluate_generation
from evals.tasks.generator import Generated

ROOT = Path(__file__).resolve().parents[2]
OWN = ROOT / "data/instructions/items.jsonl"
VERDICTS = json.loads(Path(__file__).with_name("ifeval_verdicts.json").read_text())


@pytest.mark.parametrize(
    ("name", "given", "strict", "loose"), VERDICTS, ids=[f"{i} {row[0]}" for i, row in enumerate(VERDICTS)]
)
def test_a_checker_agrees_with_lm_evals(name: str, given: dict, strict: str, loose: str) -> None:
    """300 texts each, strict and loose, by lm-eval 0.4.13 (`benchmarks/ifeval_parity.py`)."""
    assert "".join("01"[follows(text, name, given)] for text in texts()) == strict
    assert "".join("01"[any(follows(one, name, given) for one in loose_texts(text))] for text in texts()) == loose


@pytest.mark.parametrize(
    ("name", "given", "right", "wrong"),
    [
        ("change_case:english_capital", {}, "STOP. MIND THE EDGE", "STOP. Mind the edge"),
        ("change_case:english_lowercase", {}, "stop here", "Stop here"),
        (
            "length_constraints:number_sentences",
            {"num_sentences": 2, "relation": "at least"},
            "It is 3.5 m. Go!",
            "It is 3.5 m",
        ),
        ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"}, "Go?", 'He said "go." We went.'),
    ],
)
def test_checkers_without_a_verdict_of_lm_eval(name: str, given: dict, right: str, wrong: str) -> None:
    assert follows(right, name, given) and not follows(wrong, name, given)
    assert not follows(" \n", name, given), "an empty text follows no instruction"


def test_what_no_checker_knows_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="instruction is 'language:response_language'; the checkers are: keywords:existence"):
        follows("text", "language:response_language", {"language": "de"})
    with pytest.raises(ValueError, match=r"instruction detectable_format:title has the arguments \{'x': 1\}"):
        follows("text", "detectable_format:title", {"x": 1})
    with pytest.raises(ValueError, match="relation is 'about'; allowed: less than, at least"):
        follows("text", "length_constraints:number_words", {"num_words": 1, "relation": "about"})
    record = {"key": 1, "prompt": "p", "instruction_id_list": ["keywords:frequency"], "kwargs": [{"keyword": "a"}]}
    (tmp_path / "file.jsonl").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="instruction keywords:frequency has the arguments"):
        list(read_ifeval(tmp_path / "file.jsonl"))


def own_items() -> list[Item]:
    return [Item("s", "ifeval", licence="Apache-2.0", source_digest="d", **channels) for channels in read_ifeval(OWN)]


def test_our_items_use_every_checker() -> None:
    items = own_items()
    assert len(items) == 24
    assert {name for item in items for name, _ in json.loads(item.code)} == set(CHECKERS)


@dataclass(frozen=True)
class ByHeart:
    texts: tuple[str, ...]

    def generate(self, prompts: Sequence[str], stops: Sequence[str], max_tokens: int) -> list[Generated]:
        assert all(prompt.endswith("\n\n") for prompt in prompts) and stops == ()
        return [Generated(text, "stop", 3, 0) for text in self.texts]


def test_accuracies_are_by_prompt_and_by_instruction_strict_and_loose() -> None:
    """Five instructions: the first two of item 9, one of item 2, and two of item 22."""
    chosen = {item.item_id: item for item in own_items()}
    items = [chosen["9"], chosen["2"], chosen["22"]]
    answers = (
        "Dear [name] of [street] in [town].",
        "Sure, here it is:\nA tall lamp by the sea.",
        "It is cold. It is dark. It is dry.",
    )
    assert [followed(item, text) for item, text in zip(items, answers, strict=True)] == [[True, False], [False], [False, True]]
    assert followed(items[1], answers[1], loose=True) == [True], "the loose reading leaves out the first line"
    spec = TaskSpec("ifeval", "generation", max_new_tokens=64)
    scores, records = evaluate_generation(ByHeart(answers), spec, items, "version", task=IFEVAL)
    found = {score.metric: score.value for score in scores}
    assert found.pop("cut_off") == found.pop("unparsed") == 0
    expected = {
        "pass_at_1": 0,
        "prompt_strict": 0,
        "instruction_strict": 2 / 5,
        "prompt_loose": 1 / 3,
        "instruction_loose": 3 / 5,
    }
    assert found == pytest.approx(expected)
    assert [(record.verdict, record.correct) for record in records] == [("graded", False)] * 3
