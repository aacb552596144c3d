"""Extending a tokenizer by special tokens: old ids stay, new ids follow, and no text makes a new token."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import example, given
from inputs import made
from test_tokenizer import SOURCES, TEXT, tokenizer
from tokenizers import Tokenizer

from datakit.tokens.extended_tokenizer import EXTENDED_TOKENIZER, ExtendedTokenizerConfig
from datakit.tokens.tokenizer import END_OF_TEXT, TokenizerConfig, load_tokenizer
from lineage.artifact.store import Artifact
from lineage.build.nodes import Node

ADDED = ("<|user|>", "<|end|>")


def extended(tokens: tuple[str, ...] = ADDED) -> Node:
    base = tokenizer(TokenizerConfig(vocab_size=400), SOURCES)
    return Node(("tokenizer", "more"), None, EXTENDED_TOKENIZER, ExtendedTokenizerConfig(tokens), {"tokenizer": base})


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return made(tmp_path_factory.mktemp("lab"), extended())


@pytest.fixture(scope="module")
def both(artifact: Artifact) -> tuple[Tokenizer, Tokenizer]:
    return tuple(load_tokenizer(each.file("tokenizer.json")) for each in (artifact.input("tokenizer"), artifact))


@given(TEXT)
@example(f"{ADDED[0]} says {ADDED[1]}{END_OF_TEXT}")
def test_every_text_has_the_ids_that_it_had(both: tuple[Tokenizer, Tokenizer], text: str) -> None:
    old, new = both
    for quoted in (text, text + ADDED[0], f"{text}{ADDED[1]}{text}"):
        assert new.encode(quoted, add_special_tokens=False).ids == old.encode(quoted, add_special_tokens=False).ids


def test_new_ids_follow_the_old_and_the_facts_name_the_base(artifact: Artifact, both: tuple[Tokenizer, Tokenizer]) -> None:
    old, new = both
    vocabulary: Mapping[str, int] = old.get_vocab()
    assert new.get_vocab() == {**vocabulary, ADDED[0]: 400, ADDED[1]: 401}
    base = artifact.input("tokenizer")
    assert artifact.manifest.extra["tokenizer"] == {"vocab_size": 402, "eos": 0, "extends": base.data_version}
    assert new.decode([400, 401], skip_special_tokens=True) == ""


def test_a_token_that_is_there_or_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has the token '<\|endoftext\|>' already"):
        made(tmp_path, extended((END_OF_TEXT,)))
    with pytest.raises(ValueError, match="none twice"):
        ExtendedTokenizerConfig(("<|a|>", "<|a|>"))
    with pytest.raises(ValueError, match="at least one"):
        ExtendedTokenizerConfig(())
