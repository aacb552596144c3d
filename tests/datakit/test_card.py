"""A source's card: it states what the source's artifacts state, shows a sample of every drop, and is reproducible."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import polars as pl
import pytest
from inputs import MARKS, Marked, file_bytes, made, random_texts
from test_scorer import scorer

from datakit.cards.card import CARD, CardConfig
from datakit.cards.page import Heading, Note, Table, markdown, page
from datakit.corpus.build import CORPUS, CorpusConfig
from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig
from datakit.dedup.minhash import MINHASH, MinHashConfig
from datakit.dedup.paragraphs import PARAGRAPHS, ParagraphsConfig
from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.documents.parts import TARGET_PART_BYTES, write_parquet
from datakit.quality.rules import QUALITY_RULES, quality_rules_config
from datakit.quality.score_cutoff import SCORE_CUTOFF, ScoreCutoffConfig
from datakit.quality.scores import SCORES, ScoresConfig
from datakit.quality.verdicts import QUALITY, quality_config
from datakit.sources.raw import RAW
from datakit.sources.remote import folder_listing, listing_digest
from datakit.sources.source import FolderFiles, Records, Source, Unverified
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.formats import Prebuilt
from datakit.tokens.tokenizer import TOKENIZER, TokenizerConfig
from lineage.build.nodes import Node
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer

LEAK, COPY = random_texts(2, 60, seed=31)
FILTERS = CorpusConfig()
TEXTS = (*random_texts(30, 60, seed=30), LEAK, COPY, COPY.replace(".", "!"), "poor | `lead` <b>", "", LEAK)


def mark_and_match(out: Writer, config: Marked, normalized) -> None:
    MARKS.run(out, config, normalized)
    row = {"suite": "s", "task": "quiz", "item_id": "7", "tier": "near", "score": 0.9, "id": text_digest(config.texts[0])}
    write_parquet(out.folder / "matches.parquet", pl.DataFrame([row]).to_arrow())


MATCHED = Stage("tests.matches", "1", mark_and_match)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    return card_node(folder, [{"id": str(i), "text": text} for i, text in enumerate(TEXTS)])


def marks_of(normalized):
    return Node(("marks",), "leads", MATCHED, Marked((LEAK,)), {"normalized": normalized})


def card_node(folder, records, *, keep=(), filters=FILTERS, part_bytes=TARGET_PART_BYTES, marks=marks_of):
    """The card of a folder of records, and every stage above it; `marks` gives the contamination of its documents."""
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    loader = FolderFiles(str(folder), ("*.jsonl",), "")
    listing = listing_digest(folder_listing(loader, trainable=True, what="test"))
    loader, format = FolderFiles(str(folder), ("*.jsonl",), listing), Records("jsonl", keep=keep)
    source = Source(
        name="leads",
        loader=loader,
        format=format,
        domain="encyclopedia",
        licence=Unverified("MIT", "its readme says so"),
        terms="cite us",
        mixture_weight=1.0,
    )
    raw = Node(("datakit", "raw"), "leads", RAW, source)
    config = NormalizeConfig("leads", source.format, source.domain, target_part_bytes=part_bytes)
    normalized = Node(("datakit", "normalized"), "leads", NORMALIZE, config, {"raw": raw})
    of = {"normalized": normalized}
    minhash = Node(("datakit", "minhash"), "leads", MINHASH, MinHashConfig(), of)
    every = {"normalized": (normalized,), "minhash": (minhash,)}
    duplicates = Node(("duplicates", "s"), None, DUPLICATES, DuplicatesConfig(), every)
    scores = Node(("scores",), "leads", SCORES, ScoresConfig(), of | {"scorer": scorer()})
    optional = {
        "quality": Node(("datakit", "quality"), "leads", QUALITY, quality_config("encyclopedia"), of),
        "rules": Node(("datakit", "rules"), "leads", QUALITY_RULES, quality_rules_config("encyclopedia"), of),
        "scores": scores,
        "cutoff": Node(("cutoff",), None, SCORE_CUTOFF, ScoreCutoffConfig(0.9, "source"), {"scores": (scores,)}),
        "paragraphs": Node(
            ("paragraphs", "s"), None, PARAGRAPHS, ParagraphsConfig(), {"normalized": (normalized,), "duplicates": duplicates}
        ),
    }
    parts = of | {"contamination": marks(normalized), "duplicates": duplicates}
    read = {name: node for name, node in optional.items() if name in filters.reads}
    shown = {name: optional[name] for name in ("quality", "rules", "scores")}
    inputs = parts | shown | {"raw": raw, "corpus": Node(("corpus", "s"), "leads", CORPUS, filters, parts | read)}
    return Node(("datakit", "card"), "leads", CARD, CardConfig(0.5, "hub.example/leads"), inputs)


def with_tokens(card):
    """The same with a cache of the ids that its records bring."""
    corpus = card.inputs["corpus"]
    tokenizer = Node(("tokenizer", "s"), None, TOKENIZER, TokenizerConfig(vocab_size=300), {"corpora": (corpus,)})
    how = TokenCacheConfig(component="leads", format=Prebuilt())
    cache = Node(("token_cache", "s"), "leads", TOKEN_CACHE, how, {"corpus": corpus, "tokenizer": tokenizer})
    return replace(card, inputs=card.inputs | {"tokens": cache})


@pytest.fixture(scope="module")
def card(node, tmp_path_factory):
    return made(tmp_path_factory.mktemp("card"), node)


def test_it_accounts_for_every_record(card):
    fates = card.manifest.extra["card"]["fates"]
    assert sum(fates.values()) == len(TEXTS)
    wanted = {"normalize: empty", "normalize: exact_duplicate", "corpus: duplicate", "corpus: contaminated"}
    assert wanted | {"corpus: low_quality:num_words_low"} == fates.keys() - {"train", "held out"}


def test_what_the_token_cache_drops_and_the_corpus_cuts_is_on_it(tmp_path):
    """Two of the texts share a paragraph, and some bring no token ids where the cache wants them from the records."""
    shared, *others = random_texts(21, 60, seed=33)
    texts = [LEAK, *others[2:], *(f"{shared}\n\n{other}" for other in others[:2])]
    ids = [{} if i < 10 else {"input_ids": [5, 6, 0]} for i in range(len(texts))]
    records = [{"id": str(i), "text": text} | given for i, (text, given) in enumerate(zip(texts, ids, strict=True))]
    cutting = CorpusConfig(cut_paragraphs=True)
    node = with_tokens(card_node(tmp_path, records, keep=("input_ids",), filters=cutting))
    made_card = made(tmp_path / "store", node)
    fates = made_card.manifest.extra["card"]["fates"]
    assert sum(fates.values()) == len(texts)
    assert fates["tokens: no_token_ids"] > 0
    assert fates["train"] == made_card.input("tokens").manifest.statistics["rows_out"]
    text = (made_card.folder() / "card.md").read_text()
    assert "Cut out of documents that stay: 1 paragraph that stands in an earlier one too (0.0 MB)." in text
    later = max(map(text_digest, texts[-2:]))
    assert f"| {later[:12]} | ` {' '.join(shared.split())[:100]}" in text
    assert f"tokens: no_token_ids | {fates['tokens: no_token_ids']} | " in text


def test_it_names_the_facts_and_shows_a_sample_of_every_drop(card):
    text = (card.folder() / "card.md").read_text()
    for phrase in ("| licence | unverified: MIT |", "| terms | cite us |", "0.5 billion, rough", "hub.example/leads"):
        assert phrase in text
    assert "corpus: contaminated | 1 | " in text and " ".join(LEAK.split())[:100] in text
    assert "`` poor \\| `lead` <b> ``" in text  # a document's words are not Markdown
    assert "largest cluster has 2 documents" in text and "| s/quiz | 7 | near | 0.90 |" in text


def test_its_page_is_whole_html_with_the_words_of_documents_as_words(card):
    seen: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            seen.append(tag)

    page_text = (card.folder() / "card.html").read_text()
    Reader().feed(page_text)
    assert "b" not in seen and "&lt;b&gt;" in page_text
    assert seen.count("img") == len(card.files(".png")) == 3 and 'src="data:image/png' in page_text


def test_a_line_without_a_scorer_has_cards_too(node, tmp_path):
    inputs = {name: given for name, given in node.inputs.items() if name != "scores"}
    bare = made(tmp_path, replace(node, inputs=inputs))
    assert "No scorer is declared" in (bare.folder() / "card.md").read_text()
    assert {path.name for path in bare.files(".png")} == {"lengths.png", "fates.png"}


def test_it_is_the_same_anywhere(card, node, tmp_path):
    assert file_bytes(card) == file_bytes(made(tmp_path, node))


def test_blocks_are_markdown_and_html(tmp_path):
    blocks = [Heading("A & B"), Note("so"), Table(("n", "t"), (("1,000", "x`y"),), frozenset({"t"}))]
    assert markdown(blocks) == "## A & B\n\nso\n\n| n | t |\n| --- | --- |\n| 1,000 | `` x`y `` |\n"
    assert '<td class="number">1,000</td><td class="text">x`y</td>' in page("t", blocks, tmp_path)


def test_a_card_shows_at_least_one_sample():
    with pytest.raises(ValueError, match="samples is 0"):
        CardConfig(None, "", samples=0)
