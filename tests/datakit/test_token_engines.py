"""The fast tokenizer engine is used only where it gives the reference's ids."""

import contextlib
import json
import logging
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from inputs import random_texts
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from datakit.tokens.engines import Encoder, EngineError, choose_engine, differing, fast_encoder, reference_encoder
from datakit.tokens.line_cache import encode_repeated_once, lines
from datakit.tokens.tokenizer import END_OF_TEXT, MAX_PIECE_CHARS, SPLIT_PATTERN, load_tokenizer, new_tokenizer, pieces
from datakit.tokens.unicode_check import has_unassigned

SPECIALS = (END_OF_TEXT, "<|end|>")
PARTS = st.one_of(
    st.sampled_from([*SPECIALS, "<|", "|>", "don't", "'S", "\r\n", "  ", "12345", "e\u0301", "👨‍👩‍👧", "שלום", "字", "\x00"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
TEXTS = st.lists(PARTS, max_size=12).map("".join)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    trained = new_tokenizer()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator([*random_texts(40, 60, seed=3), "it's 字 é e\u0301 12 345 \r\n  x"], trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(trained.to_str())
    return path


@pytest.fixture(scope="module")
def encoders(tokenizer):
    return reference_encoder(tokenizer), fast_encoder(tokenizer)


@pytest.fixture(scope="module")
def loaded(tokenizer):
    return load_tokenizer(tokenizer)


def altered(tokenizer: Path, target: Path, change) -> Path:
    description = json.loads(tokenizer.read_text())
    change(description)
    target.write_text(json.dumps(description))
    return target


def with_single_word(description) -> None:
    """An added token that counts between word boundaries alone: gigatoken loads it and takes it everywhere."""
    description["added_tokens"].append(
        {
            "id": 700,
            "content": "word",
            "single_word": True,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": False,
        }
    )


def with_unknown_split(description) -> None:
    description["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\w+|\s+|[^\w\s]+"


@given(st.text(st.characters(categories=["Cn"]), min_size=1, max_size=3), st.sampled_from(['"', "b", "1", ",\n", " "]))
@example("\ua7cf", '",\n')
def test_characters_of_a_newer_unicode_are_the_reference_s(encoders, unassigned, behind):
    text = f"  {unassigned}{behind}{unassigned}"
    (wanted,), (ids,) = (one.encode([text]) for one in encoders)
    assert np.array_equal(wanted, ids)


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("\U0010ffff")
@example("\U000e0fff")
@example("\U00050000")
def test_unassigned_is_what_this_python_s_unicode_says(text):
    assert has_unassigned(text) == any(
        unicodedata.category(character) == "Cn" for character in text if ord(character) < 0xF0000
    )


@given(TEXTS)
@example(f"{END_OF_TEXT}{END_OF_TEXT} a<|end|>")
def test_both_engines_give_the_same_ids_which_decode_to_the_text(loaded, encoders, text):
    (wanted,), (ids,) = (one.encode([text]) for one in encoders)
    assert np.array_equal(wanted, ids)
    assert loaded.decode(ids.tolist(), skip_special_tokens=False) == text
    assert not np.isin(ids, range(len(SPECIALS))).any(), "a text made a special token"


@pytest.mark.parametrize("unit", [" ", "字a"])
def test_a_run_longer_than_a_piece_is_cut_alike(encoders, unit):
    assert differing(*encoders, [unit * (MAX_PIECE_CHARS // len(unit) + 3)]) == []


def with_space_in_front(description) -> None:
    description["normalizer"] = {"type": "Prepend", "prepend": " "}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.lists(st.sampled_from(["it's", "字", "é", "12", "word", " ", "\n", "  "]), max_size=60).map(" ".join))
@example(text="word " * 30)
def test_pieces_of_a_tokenizer_that_puts_a_space_in_front_are_its_text(tokenizer, tmp_path, monkeypatch, text):
    """As of Llama 2 and Mistral: every piece behind the first began with a space that the document does not have."""
    path = altered(tokenizer, tmp_path / "spaced.json", with_space_in_front)
    monkeypatch.setattr("datakit.tokens.tokenizer.MAX_PIECE_CHARS", 60)
    (cut,) = reference_encoder(path).encode([text])
    assert cut.tolist() == load_tokenizer(path).encode(text, add_special_tokens=False).ids


O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
REPOSITORY = Path(__file__).parents[2]
PROSE = "\n\n".join(path.read_text() for path in sorted(REPOSITORY.glob("docs/**/*.md")))
CODE = "".join(path.read_text() for path in sorted(REPOSITORY.glob("datakit/**/*.py")))


def byte_level(split: str) -> Tokenizer:
    trained = new_tokenizer()
    words = pre_tokenizers.Split(Regex(split), behavior="isolated")
    no_split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trained.pre_tokenizer = pre_tokenizers.Sequence([words, no_split])  # pyrefly: ignore
    return trained


def gpt2_like() -> Tokenizer:
    trained = new_tokenizer()
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyrefly: ignore
    return trained


def sentencepiece_like() -> Tokenizer:
    """Gemma's: a space is a mark in the text, and nothing else says where a word ends."""
    trained = Tokenizer(models.BPE(byte_fallback=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")  # pyrefly: ignore
    return trained


KINDS = {
    "llama3": lambda: byte_level(SPLIT_PATTERN),
    "gpt2": gpt2_like,
    "o200k": lambda: byte_level(O200K),
    "sentencepiece": sentencepiece_like,
}


IN_MAKE_TEST = "llama3"


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=[] if kind == IN_MAKE_TEST else pytest.mark.slow) for kind in KINDS],
)
def of_kind(request, tmp_path_factory) -> Path:
    """A tokenizer that knows this repository's words."""
    trained = KINDS[request.param]()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if request.param != "sentencepiece" else []
    trainer = trainers.BpeTrainer(vocab_size=3_000, initial_alphabet=alphabet, show_progress=False)
    paragraphs = [*PROSE[:300_000].split("\n\n"), *CODE[:300_000].split("\n\n")]
    if request.param == "sentencepiece":  # SentencePiece learns from lines, so no token of its kind goes across a line feed
        paragraphs = [line for paragraph in paragraphs for line in paragraph.split("\n")] + ["\n"]
    trained.train_from_iterator(paragraphs, trainer)
    if request.param == "sentencepiece":
        trained.normalizer = normalizers.Replace(" ", "\u2581")  # pyrefly: ignore
        trained.pre_tokenizer = None  # pyrefly: ignore
    path = tmp_path_factory.mktemp(request.param) / "tokenizer.json"
    trained.save(str(path))
    return path


def engines(path: Path) -> list[Encoder]:
    """Both, or the reference alone where the fast one refuses the tokenizer."""
    with contextlib.suppress(EngineError):
        return [reference_encoder(path), fast_encoder(path)]
    return [reference_encoder(path)]


def is_of_the_whole(path: Path, text: str) -> None:
    wanted = load_tokenizer(path).encode(text, add_special_tokens=False).ids
    for one in engines(path):
        (ids,) = one.encode([text])
        assert np.array_equal(ids, wanted), f"{one.engine}: {ids.size} ids, {len(wanted)} of the whole text"


@pytest.mark.parametrize("source", ["prose", "code", "one line"])
def test_a_long_text_has_the_ids_that_it_has_whole(of_kind, source):
    text = {"prose": PROSE, "code": CODE, "one line": " ".join(PROSE.split())}[source]
    repeated = (text * (MAX_PIECE_CHARS // len(text) + 1))[: MAX_PIECE_CHARS + 150_000]
    inside = repeated.rindex(" token", 0, MAX_PIECE_CHARS) + len(" to")
    long = "x" * (MAX_PIECE_CHARS - inside) + repeated
    assert long[MAX_PIECE_CHARS:].startswith("ken") and len(pieces(long)) == 2
    is_of_the_whole(of_kind, long)


def test_both_engines_are_compared(of_kind):
    assert len(engines(of_kind)) == 2 or of_kind.parent.name.startswith("sentencepiece")


SEPARATORS = st.sampled_from([" ", "\n", "\n\n", "\n    ", "  ", ", ", ";\n// ", "\t", "\r\n", " \n", ".", "/\n"])
WORDS = st.sampled_from(["the", "tokens", "it's", "字", "é", "e\u0301", "12345", "def", "=", "(self)", "\u0301", "'", "----"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(WORDS, SEPARATORS, WORDS, SEPARATORS), min_size=3, max_size=12))
def test_a_text_of_any_white_space_has_the_ids_that_it_has_whole(of_kind, monkeypatch, runs):
    monkeypatch.setattr("datakit.tokens.tokenizer.MAX_PIECE_CHARS", 40)
    is_of_the_whole(of_kind, "".join(f"{''.join(run)}a tokens" for run in runs))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["字", "tokens", "(a)\nb", "/\n/x", "12,", "\nthe\n"]), min_size=9, max_size=30))
def test_a_text_without_spaces_is_cut_behind_a_line_feed(of_kind, monkeypatch, parts):
    monkeypatch.setattr("datakit.tokens.tokenizer.MAX_PIECE_CHARS", 40)
    is_of_the_whole(of_kind, "".join(f"{part}a\nb" for part in parts))


def test_where_a_long_text_is_cut(monkeypatch):
    monkeypatch.setattr("datakit.tokens.tokenizer.MAX_PIECE_CHARS", 6)
    assert pieces("ab cd efg") == ["ab cd", " efg"]
    assert pieces("a\nbcdefgh") == ["a\n", "bcdefg", "h"]
    assert pieces("ab\nc\n\nde") == ["ab\n", "c\n\nde"], "one line feed alone before two"
    assert pieces("a\n\nbcdefg") == ["a\n\n", "bcdefg"]
    assert pieces("a;\n//bcd") == ["a;\n//b", "cd"]


def test_a_stretch_without_a_space_is_cut_anywhere(monkeypatch):
    monkeypatch.setattr("datakit.tokens.tokenizer.MAX_PIECE_CHARS", 4)
    assert pieces("abcdefghij kl", spaced=True) == ["abcd", "efgh", "ij", "kl"]
    assert pieces("ab  cd ef", spaced=True) == ["ab  ", "cd", "ef"], "of two spaces neither is lone"
    assert "".join(pieces("abcdefghij kl")) == "abcdefghij kl"


def test_the_fast_engine_is_chosen_where_it_is_exact_and_says_so(tokenizer, caplog):
    caplog.set_level(logging.INFO)
    verdict = choose_engine(tokenizer, "auto", random_texts(5, 30, seed=1))
    assert (verdict.engine, verdict.documents_compared, verdict.differing) == ("gigatoken", 5, 0)
    assert verdict.adversarial_compared > 50
    assert "tokenizing with gigatoken" in caplog.text


@pytest.mark.parametrize(
    ("change", "reason"),
    [(with_single_word, "gives other ids for"), (with_unknown_split, "refuses the tokenizer: Unknown pre_tokenizer Split")],
)
def test_an_engine_that_differs_or_refuses_is_left_loudly_and_strictly_an_error(tokenizer, tmp_path, caplog, change, reason):
    path = altered(tokenizer, tmp_path / "tokenizer.json", change)
    verdict = choose_engine(path, "auto", ["a sword in words and a word"])
    assert verdict.engine == "hf-lines" and reason in verdict.reason
    assert [record.levelname for record in caplog.records] == ["WARNING"] and reason in caplog.text
    with pytest.raises(EngineError, match=r"'gigatoken' was asked for and cannot be used"):
        choose_engine(path, "gigatoken", ["a sword in words and a word"])


def test_documents_alone_can_tell_the_engines_apart(tokenizer, tmp_path):
    path = altered(tokenizer, tmp_path / "tokenizer.json", with_single_word)
    texts = ["harmless", "passwords are words"]
    assert differing(reference_encoder(path), fast_encoder(path), texts) == texts[1:]


def test_the_reference_is_used_when_it_is_asked_for(tokenizer):
    verdict = choose_engine(tokenizer, "hf", ["text"])
    assert (verdict.engine, verdict.documents_compared, verdict.differing) == ("hf-lines", 1, 0)
    assert verdict.reason.startswith("asked for; lines that repeat are encoded once, ids equal to tokenizers' on 1 documents")


BLANKS = st.sampled_from(["\n", "\r\n", "\r", " ", "  ", "\t", "\x0b", "\x1c", "\x85", "\xa0", "\u2028", "\u3000"])


@given(st.lists(st.one_of(BLANKS, BLANKS, PARTS, st.sampled_from(["x", "'", "s", "7", "/", ";"])), max_size=40).map("".join))
@example("  if x:\n    y\n\n\t\n z\n \n")
def test_pieces_of_lines_have_the_ids_of_the_text(encoders, text):
    reference = encoders[0]
    assert "".join(lines(text)) == text
    by_lines = [reference.encode([line])[0] for line in lines(text)]
    assert np.concatenate([np.zeros(0, np.uint32), *by_lines]).tolist() == reference.encode([text])[0].tolist()


@given(st.lists(st.lists(st.sampled_from(["a\n", "b\n", " c\n", "\n", " \n", "d"]), max_size=9).map("".join), max_size=5))
@example(["a\nb\na\n", "", "a\n"])
def test_a_line_that_repeats_is_encoded_once_and_none_is_lost(texts):
    encoded_pieces: list[str] = []

    def encode(pieces):
        encoded_pieces.extend(pieces)
        return [np.array([ord(character) for character in piece], np.uint32) for piece in pieces]

    encoded = encode_repeated_once(texts, encode)
    assert ["".join(map(chr, ids)) for ids in encoded] == texts
    assert len(set(encoded_pieces)) == len(encoded_pieces)
    times = Counter(line for text in texts for line in lines(text))
    repeated = {line for line, count in times.items() if count > 1}
    assert repeated <= set(encoded_pieces) and not any(set(lines(piece)) & repeated for piece in set(encoded_pieces) - repeated)


def trained_with_splits(path: Path, text: str, change=lambda description: None) -> Path:
    """GPT-2's split: white space is one word up to the last blank of the next line."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyrefly: ignore
    trained.decoder = decoders.ByteLevel()  # pyrefly: ignore
    trainer = trainers.BpeTrainer(initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    trained.train_from_iterator([text] * 9, trainer)
    trained.save(str(path))
    return altered(path, path, change)


def test_a_tokenizer_with_tokens_across_line_feeds_encodes_whole_texts(tmp_path):
    path = trained_with_splits(tmp_path / "tokenizer.json", "if x:\n    y = 1\n        z = 2\n")
    verdict = choose_engine(path, "hf", ["no line feed"])
    assert (verdict.engine, verdict.documents_compared) == ("hf", 0)
    assert verdict.reason.startswith(
        "asked for; lines that repeat are encoded again: 3 tokens continue after a line feed, one is '\\n"
    )


def test_a_tokenizer_whose_lines_have_other_ids_encodes_whole_texts(tmp_path):
    """One that puts a space in front of every text puts it in front of every line."""
    path = trained_with_splits(tmp_path / "tokenizer.json", "x y\n", with_space_in_front)
    verdict = choose_engine(path, "hf", ["a\nb"])
    assert verdict.engine == "hf" and verdict.differing > 1
    assert (
        f"lines that repeat are encoded again: each by itself gives other ids for {verdict.differing} texts" in verdict.reason
    )
