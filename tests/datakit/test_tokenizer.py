"""Training tokenizers: reproducible bytes, special tokens, round trips of any text."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from inputs import Texts, corpus, file_bytes, made, random_texts

from datakit.tokens.tokenizer import END_OF_TEXT, MAX_PIECE_CHARS, TOKENIZER, TokenizerConfig, load_tokenizer, pieces
from lineage.build.nodes import Node

SOURCES = tuple(Texts(name, tuple(random_texts(40, 80, seed=51 + i))) for i, name in enumerate("ab"))
TEXT = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(" \n\t'sa1,.<|>é字🙂")), max_size=80)


def tokenizer(config, sources=SOURCES):
    return Node(("tokenizer", "small"), None, TOKENIZER, config, {"corpora": tuple(map(corpus, sources))})


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def trained(root):
    return made(root, tokenizer(TokenizerConfig(vocab_size=500)))


@pytest.fixture(scope="module")
def loaded(trained):
    return load_tokenizer(trained.files("tokenizer.json")[0])


@given(TEXT)
@example(f"before {END_OF_TEXT} after")
@example("tail \r\n\r\n  ")
@example("\x00 nul")
def test_decoding_gives_the_text_back(loaded, text):
    ids = loaded.encode(text, add_special_tokens=False).ids
    assert loaded.decode(ids, skip_special_tokens=False) == text


@given(TEXT)
def test_no_text_makes_the_end_token(loaded, text):
    """A document that quotes `<|endoftext|>` would otherwise end in its middle."""
    end = loaded.token_to_id(END_OF_TEXT)
    for quoted in (text + END_OF_TEXT, END_OF_TEXT + text, f"{text}{END_OF_TEXT}{text}"):
        assert end not in loaded.encode(quoted, add_special_tokens=False).ids


def test_the_end_token_is_of_the_vocabulary_and_every_byte_is(trained, loaded):
    assert loaded.get_vocab_size() == 500 == trained.manifest.extra["tokenizer"]["vocab_size"]
    assert loaded.token_to_id(END_OF_TEXT) == trained.manifest.extra["tokenizer"]["eos"] == 0
    single = [token for token in loaded.get_vocab() if len(token) == 1]
    assert len(single) == 256


def test_training_compresses_what_it_was_trained_on(loaded):
    text = SOURCES[0].texts[0]
    assert len(loaded.encode(text).ids) < 0.6 * len(text)


def test_digits_stand_by_three_at_most_and_words_do_not_cross_spaces(loaded):
    tokens = loaded.encode("12345 rostal vendu").tokens
    assert all(len(token.replace("Ġ", "")) <= 3 for token in tokens if any(c.isdigit() for c in token))
    assert not any("Ġ" in token[1:] for token in tokens)


def test_the_sample_is_bounded_and_shared_among_the_corpora(root):
    artifact = made(root, Node(
        ("tokenizer", "bounded"), None, TOKENIZER, TokenizerConfig(vocab_size=280, sample_bytes=6_000),
        {"corpora": tuple(map(corpus, SOURCES))},
    ))  # fmt: skip
    assert 5_500 <= artifact.manifest.statistics["bytes_in"] <= 6_000
    assert artifact.manifest.statistics["rows_in"] < 80


@pytest.mark.parametrize("threads", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_threads_do_not_change_the_bytes(trained, tmp_path, threads):
    here = Path(__file__).parent
    program = (
        "import sys; from pathlib import Path; from inputs import made; from test_tokenizer import tokenizer, TokenizerConfig\n"
        f"made(Path({str(tmp_path)!r}), tokenizer(TokenizerConfig(vocab_size=500)))"
    )
    environment = {
        **os.environ,
        "RAYON_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "true",
        "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])]),
    }
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, stdout=subprocess.DEVNULL)
    (written,) = tmp_path.glob("tokenizer/small/_/*/data-*/tokenizer.json")
    assert written.read_bytes() == file_bytes(trained)["tokenizer.json"]


@given(st.text(max_size=5), st.integers(0, 3))
def test_pieces_are_short_and_make_up_the_text(text, times):
    long = text + "字" * (times * MAX_PIECE_CHARS // 2) + text
    cut = pieces(long)
    assert "".join(cut) == long and cut
    assert max(map(len, cut)) <= MAX_PIECE_CHARS


def test_a_text_of_one_character_is_encoded_piece_by_piece(loaded):
    """16 MB of one character in one piece panic the reference's regex engine; pieces keep each call small and linear."""
    long = "a" * (2 * MAX_PIECE_CHARS + 7)
    ids = [i for piece in pieces(long) for i in loaded.encode(piece, add_special_tokens=False).ids]
    assert loaded.decode(ids) == long


def test_more_vocabulary_than_the_text_gives_is_refused(root):
    with pytest.raises(ValueError, match="vocab_size asks for 60000; lower it or give more text"):
        made(root, tokenizer(TokenizerConfig(vocab_size=60_000)))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"vocab_size": 256}, "vocab_size is 256; at least 257"),
        ({"vocab_size": 500, "special_tokens": ("<pad>",)}, "must hold '<|endoftext|>'"),
        ({"vocab_size": 500, "sample_bytes": 0}, "sample_bytes is 0"),
    ],
)
def test_a_bad_config_is_refused_by_name(bad, message):
    with pytest.raises(ValueError) as error:
        TokenizerConfig(**bad)
    assert message in str(error.value)
