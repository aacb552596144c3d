"""A run whose tokenizer extends that of its start: the page's code, its nodes and its assets."""

import re
from dataclasses import replace
from pathlib import Path

from marin_assets.data import token_assets
from recipes.records.narrowing import Narrowing
from recipes.records.run import Run
from recipes.runs import checkpoint, hf_model
from recipes.studies.default import tiny
from recipes.tokenized import token_cache, tokenizer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes" / "train_on_chat.md"


def of_the_page() -> Run:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    run = names["tiny_chat"]
    assert isinstance(run, Run)
    return run


def test_the_run_of_the_page_extends_the_tokenizer_of_its_start() -> None:
    run, base = of_the_page(), tiny()
    words = tokenizer(run.tokens)
    assert words.inputs == {"tokenizer": tokenizer(base.tokens)}
    assert run.spec.model.vocab_size == base.spec.model.vocab_size + 3
    assert token_cache(run.tokens, run.sources[0]).inputs["tokenizer"] == words
    last = run.spec.num_steps
    assert checkpoint(run, last).inputs["start"] == checkpoint(base, base.spec.num_steps)
    assert hf_model(run, last).inputs["tokenizer"] == words


def test_its_assets_hold_both_tokenizers() -> None:
    keys = {template.example.key for template in token_assets(of_the_page().tokens)}
    assert {tokenizer(of_the_page().tokens).key, tokenizer(tiny().tokens).key} <= keys


def test_a_narrowed_run_has_a_narrowed_base() -> None:
    run = of_the_page()
    by = Narrowing("small", lambda name: None)
    tokens = run.tokens.narrowed(by)
    base = tokens.base_tokenizer
    assert tokens.tokenizer.name == by.name("tiny-chat") and base.name == by.name(tiny().tokens.base_tokenizer.name)
    assert replace(tokens, tokenizer=base).vocab_size + 3 == tokens.vocab_size
