"""Judged pairs: turns in order, both orders of the sides, and outcomes that count only where the orders agree."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from chat_stub import ChatStub, chatting
from served_models import SETTINGS, serving, untrained

from evals.remote.pairs import (
    Asking,
    ChatModel,
    Conversation,
    converse,
    judge_pairs,
    main,
    outcome_of,
    read_conversations,
    stated_verdict,
    summary,
)
from serving.broker.client import Record
from serving.server.chat import ChatTemplate

HOW = Asking(max_tokens=20, concurrency=4, patience=20)


def long_answers(messages: list[dict]) -> str:
    return "word " * 9 + messages[-1]["content"]


def short_answers(messages: list[dict]) -> str:
    return f"turn {len(messages)}: {messages[-1]['content']}"


def judge(messages: list[dict]) -> str | int:
    """Prefers the longer side; is lost at some questions, by a word in them."""
    text = messages[0]["content"].partition("\n\n")[2]  # what stands behind the rules
    a, b = (re.search(rf"<conversation with assistant {name}>(.*)</conv.*{name}>", text, re.DOTALL)[1] for name in "AB")  # type: ignore[index]
    if "tie" in text:
        return "Both are fine. [[C]]"
    if "place" in text:
        return "The first one. [[B]] no, [[A]]"
    if "silent" in text:
        return "I cannot say."
    if "refuse" in text:
        return 400
    return "Length. [[A]]" if len(a) > len(b) else "Length. [[B]]"


QUESTIONS = [("plain", "and then?"), ("tie",), ("place",), ("silent",), ("refuse",), ("plain again",)]
CONVERSATIONS = [Conversation(f"c{number}", turns) for number, turns in enumerate(QUESTIONS)]


@pytest.fixture
def stubs() -> Iterator[list[ChatStub]]:
    with chatting(long_answers) as first, chatting(short_answers) as second, chatting(judge) as judging:
        yield [first, second, judging]


def models(stubs: list[ChatStub]) -> tuple[ChatModel, ChatModel, ChatModel]:
    first, second, judging = (ChatModel(stub.url, name) for stub, name in zip(stubs, ("long", "short", "judge"), strict=True))
    return first, second, judging


def test_a_verdict_counts_only_where_both_orders_agree(stubs, tmp_path: Path) -> None:
    found = judge_pairs(*models(stubs), CONVERSATIONS, tmp_path / "out", HOW)
    assert [one.outcome for one in found] == ["first", "tie", "inconsistent", "unparsed", "failed", "first"]
    assert [one.verdicts for one in found[:4]] == [("A", "B"), ("C", "C"), ("A", "A"), (None, None)]
    assert found[0].second == ("turn 1: plain", "turn 3: and then?"), "the second turn comes with the first and its answer"
    assert "refused" in found[4].reason
    counted = summary(found)
    assert counted["outcomes"] == {"first": 2, "second": 0, "tie": 1, "inconsistent": 1, "unparsed": 1, "failed": 1}
    assert counted["counted"] == 3 and counted["share_of_first"]["value"] == pytest.approx(2.5 / 3)
    assert counted["preferred_place_a"] == pytest.approx(4 / 6, abs=1e-4)
    lines = (tmp_path / "out/judgements.jsonl").read_text().splitlines()
    assert [json.loads(line)["texts"] for line in lines] == [list(one.texts) for one in found], "every judgement is recorded"
    assert json.loads((tmp_path / "out/result.json").read_text())["outcomes"] == counted["outcomes"]


def test_the_sides_swapped_give_the_mirrored_outcome(stubs, tmp_path: Path) -> None:
    first, second, judging = models(stubs)
    here = judge_pairs(first, second, judging, CONVERSATIONS, tmp_path / "here", HOW)
    there = judge_pairs(second, first, judging, CONVERSATIONS, tmp_path / "there", HOW)
    mirrored = {"first": "second", "second": "first"}
    assert [mirrored.get(one.outcome, one.outcome) for one in here] == [one.outcome for one in there]


def test_a_second_run_asks_nothing_and_a_cut_one_asks_the_rest(stubs, tmp_path: Path) -> None:
    asked = (*models(stubs), CONVERSATIONS, tmp_path, HOW)
    first = judge_pairs(*asked)
    counts = [len(stub.bodies) for stub in stubs]
    assert judge_pairs(*asked) == first and [len(stub.bodies) for stub in stubs] == counts
    kept = (tmp_path / "judge.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "judge.jsonl").write_text("".join(kept[:5]) + kept[5][:20])
    assert judge_pairs(*asked) == first
    assert len(stubs[2].bodies) == counts[2] + len(kept) - 5


def test_a_judge_that_is_one_of_the_models_is_refused(stubs, tmp_path: Path) -> None:
    first, second, _ = models(stubs)
    with pytest.raises(ValueError, match=r"the judge 'short' at .* is one of the compared models"):
        judge_pairs(first, second, second, CONVERSATIONS, tmp_path, HOW)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": 1}', "line 1: KeyError"),
        ('{"id": 1, "turns": ["a", " "]}', "give at least one, none empty"),
        ('{"id": 1, "turns": ["a"]}\n{"id": 1, "turns": ["b"]}', "ids that occur twice: \\['1'\\]"),
        ("", "has 0 conversations"),
    ],
)
def test_conversations_that_cannot_be_asked_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file.jsonl").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_conversations(tmp_path / "file.jsonl")


def test_verdicts() -> None:
    assert [stated_verdict(text) for text in ("[[A]] [[B]]", "[[D]]", "A", "so [[C]].")] == ["B", None, None, "C"]
    assert outcome_of(("B", "A")) == "second" and outcome_of(("A", "C")) == "inconsistent"
    assert summary([])["share_of_first"] is None


def test_our_server_converses_in_turns_and_the_command_writes_the_counts(stubs, tmp_path: Path) -> None:
    template = ChatTemplate("{% for message in messages %}{{ message.role[0] }}:{{ message.content }};{% endfor %}a:")
    (tmp_path / "file.jsonl").write_text('{"id": "x", "turns": ["hi", "go on"]}\n')
    with serving(replace(untrained("ours"), chat_template=template), SETTINGS) as client:
        url = client.url("")
        answers = converse(ChatModel(url, "ours"), [Conversation("x", ("hi", "go on"))], Record(tmp_path / "r.jsonl"), HOW)["x"]
        assert [answer.status for answer in answers] == [200, 200]
        sides = ["--first", url, "ours", "--second", stubs[1].url, "short", "--judge", stubs[2].url, "judge"]
        main(["--conversations", str(tmp_path / "file.jsonl"), "--out", str(tmp_path / "out"), "--max-tokens", "20", *sides])
    assert sum(json.loads((tmp_path / "out/result.json").read_text())["outcomes"].values()) == 1
