"""A scope that adds sources to an earlier one: what was there is the same nodes, and a run over both has all its assets."""

from dataclasses import replace
from pathlib import Path

import pytest
from test_pages_of_blocks import blocks

from lineage.artifact.store import Store
from lineage.build.nodes import ancestors_first
from lineage.build.plan import build_all
from lineage.order.mixture import StepPhase
from marin_assets.declared_table import tabled
from recipes import data, tokenized
from recipes.lab import Declarations
from recipes.pipeline import cleaned_of_vendored_items
from recipes.records.data import Corpus, Scope
from recipes.records.narrowing import Narrowing
from recipes.records.run import Run
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.runs import audit, contamination_scores
from recipes.studies.default import default_mix, tiny

GIVEN = {"replace": replace, "Scope": Scope, "Mix": Mix, "default_mix": default_mix, "tiny": tiny, "Run": Run}


def wider() -> Run:
    """The run of docs/recipes/deduplicate.md."""
    names = dict(GIVEN)
    exec(blocks("deduplicate.md")[-1], names)
    return names["wider"]()


def test_the_run_of_the_page_reads_the_caches_that_are_there_and_adds_one() -> None:
    run, old = wider(), default_mix().tokens
    before = tokenized.mixture(default_mix(), run.batches).inputs["caches"]
    *caches, added = tokenized.mixture(run.data, run.batches).inputs["caches"]
    assert all(cache is its for cache, its in zip(caches, before, strict=True)) and added.partition == "perl_pod"
    assert added.inputs["tokenizer"] == tokenized.tokenizer(old)
    assert data.corpora(run.corpus)[:-1] == data.corpora(old.corpus)
    assert tokenized.card(run.tokens, "wiki") == tokenized.card(old, "wiki")


def test_the_search_for_duplicates_has_the_earlier_one_as_an_input_and_not_the_other_way() -> None:
    scope = wider().scope
    third = data.duplicates(Scope("third", ("chatterbot",), earlier=scope))
    second, first = data.duplicates(scope), data.duplicates(scope.earlier)
    assert third.inputs["earlier_duplicates"] == (first, second)
    assert third.inputs["normalized"] == (data.normalized("chatterbot"),)
    assert third.inputs["earlier_normalized"] == tuple(map(data.normalized, (*tiny().sources, "perl_pod")))
    assert first.inputs.keys() == {"normalized", "minhash"}
    assert first == data.duplicates(default_mix().tokens.corpus.scope)


def test_a_run_over_both_has_assets_that_make_every_ancestor() -> None:
    run = wider()
    table, declared = tabled(Declarations(runs=(run,)))
    assert not declared.broken
    assets = {asset.example.key: asset for asset in table}
    for node in ancestors_first([audit(run, run.spec.num_steps)]):
        assert assets[node.key].node(node.partition) == node, node.name
    assert assets[("token_cache", "default-2")].partitions() == ["perl_pod"] == assets[("card", "default-2")].partitions()
    assert "perl_pod" not in assets[("card", "default")].partitions()
    alone = replace(run.corpus, earlier=None)
    assert data.corpora(alone) == data.corpora(run.corpus)[-1:], "the new sources without the old ones"
    marks = {node.partition for node in contamination_scores(run, run.spec.num_steps).inputs["contamination"]}
    assert marks == set(run.sources)


def test_a_grown_corpus_holds_out_what_the_earlier_one_held_out() -> None:
    run = wider()
    assert not run.corpus.split_difference(tiny().corpus) and not tiny().corpus.split_difference(run.corpus)
    other = replace(run.corpus, earlier=None, scope=replace(tiny().scope, name="other"))
    assert "scope is default-2 here and other there" in run.corpus.split_difference(other)


def test_a_narrowed_chain_leaves_out_the_links_that_have_no_source_left() -> None:
    first = wider().tokens
    scope = Scope("third", ("chatterbot",), earlier=first.corpus.scope)
    third = first.grown("third", replace(first.corpus, name="third", scope=scope, earlier=first.corpus))
    by = Narrowing("some", lambda source: None if source in ("wiki", "chatterbot") else "not wanted")
    some = third.narrowed(by)
    assert some.sources == ("wiki", "chatterbot") and [each.name for each in some.corpus.scope.chain] == [
        "default-some",
        "third-some",
    ]
    assert some.earlier == default_mix().tokens.narrowed(by)


def test_what_does_not_fit_the_earlier_record_is_refused_by_name() -> None:
    tokens = wider().tokens
    corpus, scope = tokens.corpus, tokens.corpus.scope
    with pytest.raises(ValueError, match="wiki is in the earlier scope default; name new sources only"):
        replace(scope, sources=("perl_pod", "wiki"))
    with pytest.raises(ValueError, match="minhash is '20x5', the earlier scope default has '14x8'"):
        replace(scope, minhash="20x5")
    for change in (
        {"scope": Scope("alone", ("perl_pod",))},
        {"decontamination": replace(corpus.decontamination, name="other")},
        {"filters": replace(corpus.filters, split_salt="other")},
        {"filters": replace(corpus.filters, heldout_frac=0.1)},
    ):
        with pytest.raises(ValueError, match=r"differs from what its earlier corpus default has"):
            replace(corpus, **change)
    with pytest.raises(ValueError, match="tokenizer differs from what its earlier tokens default-bpe8k have"):
        replace(tokens, tokenizer=TrainedTokenizer("bpe8k", 8192))


def test_tokens_of_another_tokenizer_make_all_caches_again() -> None:
    corpus = wider().corpus
    again = Tokens("again", corpus, TrainedTokenizer("again", 300))
    assert again.own_sources == corpus.sources
    assert tokenized.token_cache(again, "wiki").inputs["corpus"] == data.corpus(corpus.earlier, "wiki")


@pytest.mark.slow
def test_a_source_is_added_to_a_corpus_that_stays(tmp_path: Path) -> None:
    """Built for real: nothing that was there is made again, and the mixture has both."""
    cleaned = cleaned_of_vendored_items()
    first = Corpus("first", Scope("first", ("vendored_prose",)), cleaned)
    old = Tokens("first", first, TrainedTokenizer("first", 400))
    corpus = Corpus("second", Scope("second", ("stdlib_html",), earlier=first.scope), cleaned, earlier=first)
    mix = Mix("both", old.grown("second", corpus), (StepPhase(0, (("vendored_prose", 0.5), ("stdlib_html", 0.5))),))
    store = Store(str(tmp_path))
    before = build_all(store, [tokenized.token_cache(old, "vendored_prose")])
    mixture, after = build_all(store, [tokenized.mixture(mix, tiny().batches), tokenized.token_cache(old, "vendored_prose")])
    assert [after] == before and len(store.parents(mixture)) == 2
