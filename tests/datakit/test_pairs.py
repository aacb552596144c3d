"""Preference pairs from records to rows of tokens: both sides are rendered alike, each bad pair is a drop with its reason."""

import json
from pathlib import Path

import numpy as np
import pytest
from inputs import made
from test_token_formats import TEMPLATE, TOKENIZER, cache, opened

from datakit.readers.pairs import pair_record
from datakit.readers.read import read_records
from datakit.sources.record import Record, Unreadable
from datakit.sources.source import Records
from datakit.tokens.cache import TokenCacheConfig
from datakit.tokens.formats import Preferences
from datakit.tokens.tokenizer import TOKENIZER_FILE, load_tokenizer
from lineage.order.token_cache import TokenCache

SIDE = 40
FORMAT = Preferences(TEMPLATE, end_of_turn="<|end|>", side_tokens=SIDE)
TURNS = [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "2+2"}]


def said(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def document(*given: object) -> tuple[str, str]:
    record = pair_record("r", *given)
    assert isinstance(record, Record) and record.text is not None
    return record.text, json.dumps(dict(record.fields))


@pytest.mark.parametrize(
    ("chosen", "rejected", "prompt"),
    [("4", "5", "2+2"), ([said("4")], [said("5")], "2+2"), ([*TURNS, said("4")], [*TURNS, said("5")], None)],
)
def test_the_forms_of_a_pair_are_read(chosen: object, rejected: object, prompt: object) -> None:
    record = pair_record("r", chosen, rejected, prompt)
    assert isinstance(record, Record) and record.text is not None
    assert record.text.endswith("user: 2+2\n\nassistant: 4\n\nassistant: 5")


@pytest.mark.parametrize(
    ("chosen", "rejected", "prompt", "reason"),
    [
        ("4", "4", "2+2", "equal_sides"),
        ("4", " ", "2+2", "empty_side"),
        ("", "5", "2+2", "empty_side"),
        ([], [said("5")], "2+2", "empty_side"),
        ([*TURNS, said("4")], [TURNS[0], said("5")], None, "prompts_differ"),
        ([said("4")], [said("5")], None, "no_prompt"),
        ([*TURNS], [*TURNS[:-1], said("5")], None, "no_answer"),
        ("4", 5, "2+2", "not_messages"),
        ("4", None, "2+2", "not_messages"),
        ("4", "5", [{"content": "2+2"}], "not_messages"),
        ("4\ud800", "5", "2+2", "lone_surrogate"),
    ],
)
def test_a_bad_pair_is_a_drop_with_its_reason(chosen: object, rejected: object, prompt: object, reason: str) -> None:
    assert pair_record("r", chosen, rejected, prompt) == Unreadable("r", reason)


def test_records_of_pairs_are_read_from_a_file(tmp_path: Path) -> None:
    rows = [{"id": "a", "q": "2+2", "good": "4", "bad": "5"}, {"id": "b", "q": "2+2", "good": "4", "bad": "4"}]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    format = Records("jsonl", text="good", form="preferences", rejected="bad", prompt="q")
    first, second = read_records(format, "x.jsonl", tmp_path / "x.jsonl")
    assert isinstance(first, Record) and first.source_id == "a"
    assert second == Unreadable("b", "equal_sides")
    with pytest.raises(ValueError, match="form 'preferences' needs the field of the rejected side"):
        Records("jsonl", text="good", form="preferences")


def test_a_cache_has_a_row_a_pair_whose_answers_alone_count(tmp_path: Path) -> None:
    good = document([*TURNS, said("four <|end|>")], [*TURNS, said("5")], None)
    rows = [good, document("short", "x" * 200, "2+2"), document("4", "5", "x" * 200), ("no pair", "{}")]
    artifact, found = opened(tmp_path, rows, format=FORMAT, eos=None)
    assert artifact.manifest.statistics["drops"] == {"answer_too_long": 1, "no_pair": 1, "prompt_too_long": 1}
    assert TokenCache.open(artifact).row_tokens == 2 * SIDE
    loaded = load_tokenizer(made(tmp_path, TOKENIZER).files(TOKENIZER_FILE)[0])
    tokens, weights = found[good[0]]
    sides, counted = tokens.reshape(2, SIDE), weights.reshape(2, SIDE) > 0
    for side, counts, answer in zip(sides, counted, ("four <|end|><|end|>", "5<|end|>"), strict=True):
        assert loaded.decode(side[counts].tolist(), skip_special_tokens=False) == answer
        begin, end = np.flatnonzero(counts)[[0, -1]]
        prompt = "<|user|>1+1<|end|><|assistant|>2<|end|><|user|>2+2<|end|><|assistant|>"
        assert loaded.decode(side[:begin].tolist(), skip_special_tokens=False) == prompt
        assert not side[end + 1 :].any()


def test_a_template_without_a_way_to_find_answers_drops_every_pair_and_the_cache_is_refused(tmp_path: Path) -> None:
    broken = Preferences("{% for m in messages %}{{ m.content }}{% endfor %}", "<|end|>", SIDE)
    with pytest.raises(ValueError, match=r"no document has tokens; dropped: {'template_not_by_prefix': 1}"):
        made(tmp_path, cache([document("4", "5", "2+2")], format=broken, eos=None))


def test_settings_that_do_not_fit_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"side_tokens is 1; it must be at least 2"):
        Preferences(TEMPLATE, "<|end|>", 1)
    with pytest.raises(ValueError, match="pairs are rows that the template frames, so both must be None"):
        TokenCacheConfig("here", format=FORMAT)


def test_a_template_that_shows_the_answer_in_the_prompt_drops_pairs_whose_prompts_then_differ(tmp_path: Path) -> None:
    """The prompt of a side has the length of its answer: equal for one pair, different for the other."""
    telling = FORMAT.template.replace("{% for m", "{{ messages[-1].content | length }}{% for m", 1)
    rows = [document("4", "5", "2+2"), document("4", "five", "2+2")]
    artifact, found = opened(tmp_path, rows, format=Preferences(telling, "<|end|>", SIDE), eos=None)
    assert artifact.manifest.statistics["drops"] == {"prompts_differ": 1}
    assert list(found) == [rows[0][0]]
