"""A removal list: no new corpus holds the documents or their copies, no new cache does, and no step reads them."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from inputs import Texts, documents, duplicates, made, marks, quality, random_texts

from datakit.corpus.build import CORPUS, CorpusConfig
from datakit.corpus.removals import REMOVALS, Removal, RemovalsConfig
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.tokenizer import TOKENIZER, TokenizerConfig
from evals.audit.takedown import Selection, find_holders
from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.graph.edges import lineage_tables
from lineage.order.batches import BatchPhase, BatchSchedule
from lineage.order.exposure import exposures
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.order import DataOrder
from lineage.storage.digests import text_digest
from recipes.data import corpora
from recipes.studies.default import default_corpus

TEXTS = random_texts(30, 60, seed=5)
COPY = TEXTS[3] + "\nOne more line of the copy."
"""A near-duplicate of a document of `one`; its corpus keeps one of the two."""
ONE, TWO = Texts("one", tuple(TEXTS[:15])), Texts("two", (*TEXTS[15:], COPY))
STAYING = text_digest(TEXTS[4])
LISTED = RemovalsConfig((Removal((text_digest(TEXTS[3]), text_digest(TEXTS[20])), "request 12"),))
GONE = {text_digest(text) for text in (TEXTS[3], TEXTS[20], COPY)}
BATCHES, STEPS, SEQ_LEN = BatchSchedule((BatchPhase(0, 2),)), 40, 64
REMOVAL_NODE = Node(("removals", "small"), None, REMOVALS, LISTED, {})


def corpus(of: Texts, listed: bool) -> Node:
    config = CorpusConfig(heldout_frac=0.0, remove_listed=listed)
    inputs = {
        "normalized": documents(of),
        "contamination": marks(of),
        "duplicates": duplicates((ONE, TWO)),
        "quality": quality(of),
    }
    return Node(("corpus", "small"), of.source, CORPUS, config, inputs | ({"removals": REMOVAL_NODE} if listed else {}))


def mixture(listed: bool) -> Node:
    of_source = {of.source: corpus(of, listed) for of in (ONE, TWO)}
    tokenizer = Node(("tokenizer", "small"), None, TOKENIZER, TokenizerConfig(300), {"corpora": tuple(of_source.values())})
    caches = tuple(
        Node(("cache", "small"), name, TOKEN_CACHE, TokenCacheConfig(name), {"corpus": node, "tokenizer": tokenizer})
        for name, node in of_source.items()
    )
    config = MixtureConfig("m", (Phase(0.0, {"one": 0.5, "two": 0.5}),), seed=3, block_size=6)
    return Node(("mixture",), None, MIXTURE, config, {"caches": caches})


def read(frozen: Artifact) -> set[str]:
    """The listed documents, their copy and one that stays, as far as any step reads them."""
    ids = {name: [*GONE, STAYING] for name in ("one", "two")}
    exposed = exposures(DataOrder.open(frozen, SEQ_LEN), ids, batches=BATCHES, num_steps=STEPS)
    return set(exposed["id"])


def test_a_takedown_is_carried_through_to_new_caches_and_proven_by_exposure(tmp_path: Path) -> None:
    before, after = made(tmp_path, mixture(listed=False)), made(tmp_path, mixture(listed=True))
    assert len(read(before) & GONE) == 2, "one of the two copies, and the other document"
    assert read(after) == {STAYING}
    holders = find_holders(after.store, lineage_tables(after.store), Selection(documents=tuple(GONE))).holders
    old, new = ({a.spec.address for a in frozen.store.walk_up(frozen)} for frozen in (before, after))
    held = {holder.artifact.spec.address for holder in holders if holder.role in ("corpus", "cache", "mixture")}
    assert held and held <= old - new


def test_the_reason_is_named_for_the_documents_and_their_copies_in_every_source(tmp_path: Path) -> None:
    for of in (ONE, TWO):
        made_corpus = made(tmp_path, corpus(of, listed=True))
        dropped = pl.read_parquet(made_corpus.files("dropped.parquet")[0]).filter(pl.col("reason") == "removed")
        own = {text_digest(text) for text in of.texts}
        assert set(dropped["id"]) == GONE & own
        assert made_corpus.manifest.statistics["drops"]["removed"] == len(GONE & own)


def test_a_list_that_nobody_reads_and_a_missing_list_are_refused(tmp_path: Path) -> None:
    node = corpus(ONE, listed=True)
    assert isinstance(node.config, CorpusConfig)
    with pytest.raises(ValueError, match="its optional inputs are"):
        made(tmp_path, replace(node, config=replace(node.config, remove_listed=False)))
    with pytest.raises(ValueError, match="its optional inputs are"):
        made(tmp_path, replace(node, inputs={name: each for name, each in node.inputs.items() if name != "removals"}))


@pytest.mark.parametrize(
    ("documents", "why", "message"),
    [((), "request 12", "documents is"), (("XY",), "request 12", "not 32 hex digits"), (("0" * 32,), " ", "why is ' '")],
)
def test_a_removal_names_documents_by_id_and_a_reason(documents: tuple[str, ...], why: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Removal(documents, why)


def test_a_declared_corpus_hands_its_list_to_every_source() -> None:
    plain = default_corpus()
    listed = replace(plain, filters=replace(plain.filters, remove_listed=True), removals=LISTED)
    lists = {parent.name for node in corpora(listed) for parent in node.parents() if parent.stage is REMOVALS}
    assert lists == {"removals/default"}
    with pytest.raises(ValueError, match="set both or neither"):
        replace(plain, removals=LISTED)
