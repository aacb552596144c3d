"""Domains: a model learns them from sources or labels, says what it confuses, and a corpus keeps those that it names."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from inputs import Texts, corpus, documents, made, random_texts

from datakit.corpus.filters import CorpusConfig, reasons
from datakit.invariants import check_attributes
from datakit.quality.labels import LABELS_FILE, LABELS_SCHEMA
from datakit.tags.domain_model import (
    DOMAIN_MODEL,
    DomainModel,
    DomainModelConfig,
    LabelsOfDomain,
    SourceOfDomain,
    facts_of,
    softmax,
)
from datakit.tags.domains import DOMAINS, DomainsConfig
from datakit.text.text_features import FeatureConfig, hashed
from lineage.build.nodes import Node
from lineage.config import from_jsonable, to_jsonable
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer
from marin_assets.quality_views import domain_model as domain_model_view
from marin_assets.quality_views import tags
from recipes.data import domain_model
from recipes.domains import text_domains
from recipes.records.narrowing import Narrowing
from recipes.studies.default import default_corpus

WORDS = {
    "farm": ("cow", "wheat", "barn", "plough", "milk"),
    "sea": ("ship", "wave", "sail", "harbour", "anchor"),
    "sky": ("cloud", "wing", "star", "wind", "moon"),
}


def written(domain: str, count: int, seed: int) -> tuple[str, ...]:
    """Texts of invented words, with some of the domain."""
    generator = np.random.default_rng(seed)
    return tuple(f"{text} {' '.join(generator.choice(WORDS[domain], 8))}" for text in random_texts(count, 10, seed))


SOURCES = {name: Texts(name, written(name, 60, seed)) for seed, name in enumerate(WORDS)}
CONFIG = DomainModelConfig("small", tuple(SourceOfDomain(name, name) for name in WORDS), FeatureConfig(bits=12))
MIXED = Texts("mixed", (*written("farm", 9, 7), *written("sea", 5, 8), "?!"), part_bytes=900)


def model(config: DomainModelConfig = CONFIG) -> Node:
    inputs = {"normalized": tuple(documents(SOURCES[each.source]) for each in config.sources)}
    return Node(("domain_model", "small"), None, DOMAIN_MODEL, config, inputs)


def domains(source: Texts = MIXED, how: DomainsConfig | None = None) -> Node:
    inputs = {"normalized": documents(source), "model": model()}
    return Node(("domains", "small"), source.source, DOMAINS, how or DomainsConfig(), inputs)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("domains")


def test_a_model_says_how_well_it_does_and_by_which_words(store: Path) -> None:
    facts = made(store, model()).manifest.extra["domain_model"]
    tested_on = {domain: sum(row.values()) for domain, row in facts["confusion"].items()}
    assert sum(tested_on.values()) == facts["documents"]["test"] > 15 and facts["accuracy"] == 1.0
    assert facts["confusion"] == {domain: {domain: count} for domain, count in tested_on.items()}
    assert all(set(words[:5]) & set(WORDS[domain]) for domain, words in facts["top"].items())
    assert facts["examples"][0] == {"source": "farm", "domain": "farm", "documents": 60}


def test_the_ui_shows_a_model_and_its_tags(store: Path) -> None:
    shown = domain_model_view(made(store, model()))
    assert shown["accuracy"].value == 1.0 and len(shown["confusion"].records) == 3
    assert [row.data["documents"] for row in tags(made(store, domains()))["domain"].records] == [9, 5, 1]


def test_confusions_and_accuracy_are_counted() -> None:
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7]])
    facts = facts_of(probabilities, np.array([0, 0, 1, 1]), ("a", "b"))
    assert facts["confusion"] == {"a": {"a": 1, "b": 1}, "b": {"b": 2}}
    assert (facts["accuracy"], facts["mean_recall"]) == (0.75, 0.75)


def test_every_document_is_tagged_and_counted(store: Path) -> None:
    artifact = made(store, domains())
    check_attributes(artifact, artifact.input("normalized"))
    rows = {row[0]: row[1:] for path in artifact.files(".parquet") for row in pl.read_parquet(path).rows()}
    for text in MIXED.texts:
        wanted = "undecided" if text == "?!" else "farm" if set(text.split()) & set(WORDS["farm"]) else "sea"
        assert rows[text_digest(text)][0] == wanted
    found = artifact.manifest.extra["tags"]
    assert found["domain"] == {"farm": 9, "sea": 5, "undecided": 1} and found["model"]["name"] == "small"
    assert len(artifact.files(".parquet")) > 1
    sure = made(store, domains(how=DomainsConfig(1.0)))
    assert sure.manifest.extra["tags"]["domain"] == {"undecided": 15}


def test_a_tag_is_that_of_its_text_alone(store: Path) -> None:
    """The probability of a text of one window is the softmax of its words' weights."""
    trained, text = DomainModel.of(made(store, model())), MIXED.texts[0]
    weights = np.load(trained.weights).astype(np.float64)
    assert trained.domains == ("farm", "sea", "sky") and weights.shape == (4096, 3)
    expected = softmax(hashed([text], 12) @ weights)
    assert trained.probabilities([*MIXED.texts[1:], text])[-1] == pytest.approx(expected[0], rel=1e-12)


@dataclass(frozen=True)
class Said:
    name: str


def _label(out: Writer, config: Said, normalized) -> None:
    names = {text_digest(text): name for name, source in SOURCES.items() for text in source.texts}
    ids = pl.concat([pl.read_parquet(path, columns=["id"]) for path in normalized.files(".parquet")])["id"].to_list()
    rows = [(identity, names[identity], None, "", "") for identity in ids[:-1]] + [(ids[-1], None, None, "", "no answer")]
    pl.DataFrame(rows, schema=LABELS_SCHEMA, orient="row").write_parquet(out.folder / LABELS_FILE)
    out.extra["labels"] = {"name": config.name, "model": "stub", "version": "", "prompt": "0"}


def test_domains_are_learned_from_labels(store: Path) -> None:
    every = Texts("all", tuple(text for source in SOURCES.values() for text in source.texts))
    said = Node(("labels", "kinds"), "all", Stage("tests.said", "1", _label), Said("kinds"), {"normalized": documents(every)})
    config = replace(CONFIG, examples=(LabelsOfDomain("all", "kinds"),))
    assert from_jsonable(DomainModelConfig, to_jsonable(config)) == config
    artifact = made(store, Node(("domain_model", "said"), None, DOMAIN_MODEL, config, {"labels": (said,)}))
    facts = artifact.manifest.extra["domain_model"]
    assert facts["accuracy"] > 0.95 and facts["judges"][0]["model"] == "stub"
    assert sum(row["documents"] for row in facts["examples"]) == 179  # one has no label


def test_a_corpus_keeps_the_domains_that_it_names(store: Path) -> None:
    how = CorpusConfig(drop_low_quality=False, domains=("farm",))
    node = corpus(MIXED, how=how)
    built = made(store, replace(node, inputs={**node.inputs, "domains": domains()}))
    assert built.manifest.statistics["drops"] == {"domain:sea": 5, "domain:undecided": 1}
    with pytest.raises(ValueError, match=r"its filters read \['domains'\], its optional inputs are \[\]"):
        made(store, node)
    plain = replace(how, drop_duplicates=False, drop_contaminated=False)
    frame = pl.DataFrame({"domain": ["farm", "sea", ""]})
    found = frame.select(reason=pl.coalesce(*reasons(plain, None, None)))["reason"].to_list()
    assert found == [None, "domain:sea", None]  # "" was not judged


def test_a_corpus_of_domains_needs_a_model_and_narrows_it() -> None:
    with pytest.raises(ValueError, match="its filters read domains and it has no domain model"):
        replace(default_corpus(), domain_model=None, filters=CorpusConfig(domains=("politics",)))
    with pytest.raises(ValueError, match=r"filters.domains names politcs, which text_domains does not know; allowed: code, "):
        replace(default_corpus(), filters=CorpusConfig(domains=("politcs", "undecided")))
    narrowed = default_corpus().narrowed(Narrowing("prose", lambda source: "code" if source == "stdlib_code" else None))
    assert narrowed.domain_model is not None and narrowed.domain_model.name == "text_domains-prose"
    assert "stdlib_code" not in {each.source for each in narrowed.domain_model.examples}
    assert len(domain_model(text_domains()).inputs["normalized"]) == len(text_domains().examples)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: replace(CONFIG, examples=CONFIG.examples[:1]), "two domains or more"),
        (lambda: replace(CONFIG, test_frac=0.0), "test_frac is 0.0"),
        (lambda: SourceOfDomain("farm", ""), "give a word"),
        (lambda: DomainsConfig(2), "min_probability is 2"),
    ],
)
def test_models_that_cannot_be_are_refused(make, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_a_domain_without_a_test_document_is_named(store: Path) -> None:
    few = replace(CONFIG, examples=(*CONFIG.examples[:2], SourceOfDomain("sky", "sky", max_documents=1)))
    with pytest.raises(ValueError, match=r"no (train|test) document is of \['sky'\]"):
        made(store, model(few))
