"""Declaring: one name names all records of a run, and a mistake in one declaration disables that one alone."""

import logging
from dataclasses import replace

import pytest

from marin_assets.declared_table import tabled
from marin_assets.definitions import build_defs
from recipes.lab import declarations, load
from recipes.pipeline import pipeline
from recipes.records.run import AtStep, Evaluation, Run
from recipes.smoke import smoke_ferry, smoke_spec
from recipes.studies.default import tiny
from recipes.study import Study
from recipes.suites import main_suite
from resources.lab import LabResource


def mine() -> Run:
    mix = pipeline("mine", ("python_topics",), (main_suite(),), vocab_size=512)
    return Run(replace(smoke_spec(mix.tokens.vocab_size), name="mine"), mix, Evaluation((main_suite(),)))


def too_short() -> Run:
    base = tiny()
    return replace(base, spec=replace(base.spec, name="too_short", num_steps=30))


def test_a_run_over_sources_of_its_own_shares_no_key_with_another() -> None:
    every = declarations()
    _, declared = tabled(replace(every, runs=(*every.runs, mine())))
    assert not declared.broken
    assert declared.run("mine") == mine()


def test_a_mistake_in_one_declared_run_disables_that_run_alone(caplog: pytest.LogCaptureFixture, tmp_path) -> None:
    def gone() -> Study:
        raise ImportError("no module named 'torch'")

    with caplog.at_level(logging.ERROR):
        declared = load({"own": lambda: Study("?", runs=(mine, too_short)), "gone": gone})
    assert [run.name for run in declared.runs] == ["mine"]
    assert [broken.name for broken in declared.broken] == ["too_short", "gone"]
    assert "too_short (recipes/studies/own.py) is disabled: ValueError" in caplog.text
    with pytest.raises(ValueError, match=r"too_short .* is disabled: .*warmup_steps"):
        declared.run("too_short")
    definitions = build_defs(LabResource(root=str(tmp_path)), ferry=smoke_ferry(), declared=declared)
    listed = {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}
    assert "DISABLED" in str(listed["broken/too_short"].description)
    assert "runs/mine/training" in listed and "ferry/report" in listed and "runs/too_short/training" not in listed


def test_a_name_that_two_declarations_take_disables_the_second() -> None:
    declared = load({"a": lambda: Study("?", runs=(mine,)), "b": lambda: Study("?", runs=(mine,))})
    assert len(declared.runs) == 1
    assert [str(broken) for broken in declared.broken] == [
        "mine (recipes/studies/b.py) is disabled: ValueError: a run named 'mine' is declared twice; rename one"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: replace(run, spec=smoke_spec(512)), "vocab_size is 512, tokens default-bpe8k have 8192"),
        (lambda run: replace(run, evaluation=Evaluation((replace(main_suite(), name="x"),))), "of which corpus default is not"),
        (lambda run: replace(run, start=AtStep(run, 50)), "start is step 50 of tiny, spec.start is None"),
        (lambda run: AtStep(run, 60), "start at step 60 of run tiny, which keeps steps 50, 100, 150"),
        (lambda run: replace(run.scope, sources=("nowhere",)), "source 'nowhere' is not in the catalogue"),
        (lambda run: replace(run.scope, sources=()), r"its sources are \(\); give at least one"),
        (lambda run: replace(run.decontamination, clean=("wiki",)), "clean names wiki, which are not known to be clean"),
        (lambda run: replace(run.corpus, scope=replace(run.scope, sources=("sotu",))), "which are not in scope default"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused_with_a_remedy(change, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        change(tiny())
