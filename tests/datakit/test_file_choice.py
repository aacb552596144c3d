"""File selection of a source: every pattern must match, and held-out files are refused."""

import pytest

from datakit.sources.file_choice import choose, is_held_out

NAMES = ["b.jsonl", "a.jsonl", "math/gsm8k/train.jsonl", "math/gsm8k/test.jsonl", "README.md"]


def test_names_come_sorted_once_and_without_the_excluded() -> None:
    chosen = choose(NAMES + NAMES, ("*.jsonl", "a*"), ("*/test*",), trainable=True, what="s")
    assert chosen == ["a.jsonl", "b.jsonl", "math/gsm8k/train.jsonl"]


def test_what_an_exclusion_takes_is_said(caplog: pytest.LogCaptureFixture) -> None:
    choose(NAMES, ("*.jsonl",), ("*/test*", "*.md"), trainable=True, what="s")
    assert [record.getMessage() for record in caplog.records] == ["s: 1 of 4 files are excluded: math/gsm8k/test.jsonl"]


def test_a_glob_without_a_file_is_an_error_that_shows_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"s: no file matches the glob '\*\.csv'; it has README\.md, a\.jsonl"):
        choose(NAMES, ("*.jsonl", "*.csv"), (), trainable=False, what="s")
    with pytest.raises(ValueError, match=r"exclusions \('\*',\) leave none"):
        choose(NAMES, ("*.jsonl",), ("*",), trainable=False, what="s")


def test_held_out_files_of_a_training_source_are_refused_unless_named() -> None:
    with pytest.raises(ValueError, match=r"1 of its files look like a test or validation split \(math/gsm8k/test\.jsonl\)"):
        choose(NAMES, ("*.jsonl",), (), trainable=True, what="s")
    assert "math/gsm8k/test.jsonl" in choose(NAMES, ("*.jsonl", "math/gsm8k/test.jsonl"), (), trainable=True, what="s")
    assert "math/gsm8k/test.jsonl" in choose(NAMES, ("*.jsonl",), (), trainable=False, what="s")


def test_a_name_with_brackets_names_itself() -> None:
    names = ["part[1].jsonl", "part1.jsonl", "test[0].jsonl"]
    assert choose(names, ("part[1].jsonl",), (), trainable=True, what="s") == ["part[1].jsonl"]
    assert choose(names, ("part*",), ("part[1].jsonl",), trainable=True, what="s") == ["part1.jsonl"]
    assert choose(names, ("test[0].jsonl",), (), trainable=True, what="s") == ["test[0].jsonl"]


@pytest.mark.parametrize("name", ["/etc/passwd", "../up.jsonl", "a/../../up.jsonl"])
def test_a_name_may_not_leave_the_artifact(name: str) -> None:
    with pytest.raises(ValueError, match="would leave the artifact's folder"):
        choose([name], ("*",), (), trainable=False, what="s")


@pytest.mark.parametrize(
    "name",
    [
        "test.json",
        "data/test-00000-of-00001.parquet",
        "Validation/x",
        "x/val.jsonl.gz",
        "gsm8k_test.jsonl",
        "test0.txt",
        "TEST/a",
        "qaTestSplit.json",
        "a/held_out.jsonl",
        "hold-out/b",
        "evaluation/0.parquet",
        "devset.json",
    ],
)
def test_a_word_of_the_path_says_held_out(name: str) -> None:
    assert is_held_out(name)


@pytest.mark.parametrize(
    "name",
    [
        "de/v2/a.json",
        "out/held.json",
        "latest/a.json",
        "contest.json",
        "train.json",
        "testament.txt",
        "values.csv",
        "unittest.py",
    ],
)
def test_words_that_only_contain_it_do_not(name: str) -> None:
    assert not is_held_out(name)
