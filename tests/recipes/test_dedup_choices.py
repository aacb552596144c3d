"""Deduplication choices of a scope reach its nodes and the graph; unknown choices are refused at declaration."""

from dataclasses import replace

import pytest

from datakit.dedup.duplicates import DuplicatesConfig
from datakit.dedup.minhash import preset
from lineage.build.nodes import ancestors_first
from marin_assets.declared_table import tabled
from recipes import data
from recipes.canary import canary_tokens
from recipes.lab import Declarations
from recipes.records.run import Run
from recipes.runs import audit
from recipes.studies.default import tiny

SCOPE = canary_tokens().corpus.scope


def test_a_scope_chooses_the_preset_and_what_counts_as_a_duplicate() -> None:
    scope = replace(SCOPE, minhash="20x5", duplicates=DuplicatesConfig(min_jaccard=0.9))
    assert data.minhash(scope, scope.sources[0]).config == preset("20x5")
    assert data.duplicates(scope).config == DuplicatesConfig(min_jaccard=0.9)
    assert data.minhash(SCOPE, scope.sources[0]).config == preset("14x8")


def test_a_preset_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="minhash preset is '9x9'; allowed: 14x8, 20x5, 26x11"):
        replace(SCOPE, minhash="9x9")


def finer(*, names_duplicates: bool) -> Run:
    """`tiny` with the preset 20x5, under names of its own, or with the scope's name kept."""
    base = tiny()
    scope = replace(base.scope, minhash="20x5", name="finer" if names_duplicates else base.scope.name)
    corpus = replace(base.corpus, name="finer", scope=scope)
    tokens = replace(base.tokens, name="finer", corpus=corpus, tokenizer=replace(base.tokens.tokenizer, name="finer"))
    return replace(base, spec=replace(base.spec, name="finer"), data=replace(base.data, name="finer", tokens=tokens))


def test_a_run_over_20x5_signatures_has_assets_that_make_every_ancestor() -> None:
    run = finer(names_duplicates=True)
    table, declared = tabled(Declarations(runs=(tiny(), run)))
    assert not declared.broken
    assets = {asset.example.key: asset for asset in table}
    assert ("datakit", "minhash-20x5") in assets
    for node in ancestors_first([audit(run, run.spec.num_steps)]):
        assert assets[node.key].node(node.partition) == node, node.name


def test_a_run_whose_ancestor_is_another_artifact_of_that_key_is_disabled_and_both_are_named() -> None:
    run = finer(names_duplicates=False)
    table, declared = tabled(Declarations(runs=(tiny(), run)))
    assert [each.name for each in declared.runs] == ["tiny"]
    [broken] = declared.broken
    assert broken.name == "finer"
    assert "duplicates/default: only one of them is made from datakit/minhash-20x5[" in broken.error
    assert ("corpus", "finer") not in {asset.example.key for asset in table}, "nothing of it is left in the graph"
