"""Perplexity: windows, entropy worked out by hand, token budgets, duplicate documents."""

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unigram import START, UnigramScorer, byte_tokenizer

from evals.items.stage import TaskSpec
from evals.tasks.perplexity import document_nats, evaluate_perplexity, heldout_documents, unigram_entropy_nats
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer

NATS = np.linspace(0.5, 3.0, 257)
TASK = TaskSpec("heldout", "perplexity", max_bytes_per_domain=400, max_bytes_per_document=150)


@dataclass(frozen=True)
class Texts:
    name: str
    domain: str
    texts: tuple[str, ...]


def write_corpus(out: Writer, config: Texts) -> None:
    """A corpus's held-out split, in two parts, as `datakit.corpus` leaves it."""
    rows = sorted({text_digest(text): text for text in config.texts}.items())
    (out.folder / "heldout").mkdir()
    for part, chosen in enumerate((rows[: len(rows) // 2], rows[len(rows) // 2 :])):
        frame = pl.DataFrame(chosen, schema={"id": pl.String, "text": pl.String}, orient="row")
        frame.with_columns(source=pl.lit(config.name)).write_parquet(
            out.folder / "heldout" / f"part-{part:05d}-of-00002.parquet"
        )
    out.extra["corpus"] = {"domain": config.domain}


CORPUS = Stage("tests.corpus", "1", write_corpus)


def corpus(root, name: str, domain: str, *texts: str) -> Artifact:
    return build(Store(str(root)), Node(("corpus", name), None, CORPUS, Texts(name, domain, texts))).artifact


def test_every_token_is_scored_once_in_windows_that_open_with_what_came_before():
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 256, size) for size in (1, 7, 8, 63, 64, 126, 127, 200)]
    scorer = UnigramScorer(NATS, max_seq_len=8)
    totals = document_nats(scorer, documents, START)
    assert totals == pytest.approx([NATS[d].sum() for d in documents], rel=1e-6)
    windows = iter(scorer.seen)
    for document in documents:  # put the windows together again: first the start token, then each window's last token
        opened = START
        rebuilt: list[int] = []
        while len(rebuilt) < len(document):
            window = next(windows)
            assert window[0] == opened
            rebuilt += window[1:].tolist()
            opened = window[-1]
        assert rebuilt == document.tolist()


def test_bits_per_byte_are_the_entropy_that_the_model_gives_worked_out_by_hand(tmp_path):
    texts = ("aaaa bbbb", "c" * 100, "déjà vu", "e" * 40)
    corpora = (corpus(tmp_path, "x", "prose", *texts[:3]), corpus(tmp_path, "y", "code", texts[3]))
    scores, records = evaluate_perplexity(UnigramScorer(NATS), byte_tokenizer(), START, TASK, corpora, "version", seed=0)
    by_name = {(s.task, s.metric): s for s in scores}

    def bits(text: str) -> float:
        return sum(NATS[byte] for byte in text.encode()) / math.log(2)

    sizes = [len(text.encode()) for text in texts]
    prose = sum(map(bits, texts[:3])) / sum(sizes[:3])
    code = bits(texts[3]) / sizes[3]
    for tag, value in (("prose", prose), ("prose/x", prose), ("code", code), ("code/y", code)):
        assert by_name[f"heldout/{tag}", "bits_per_byte"].value == pytest.approx(value, rel=1e-6)
    assert by_name["heldout", "micro_bits_per_byte"].value == pytest.approx(sum(map(bits, texts)) / sum(sizes), rel=1e-6)
    assert by_name["heldout", "macro_bits_per_byte"].value == pytest.approx((prose + code) / 2, rel=1e-6)
    nats = sum(map(bits, texts)) * math.log(2)
    assert by_name["heldout", "loss_nats_per_token"].value == pytest.approx(nats / sum(sizes), rel=1e-6)  # a token is a byte
    assert by_name["heldout/prose", "bits_per_byte"].n == 3
    assert {r.item_id: r.bpb for r in records} == pytest.approx(
        {text_digest(t): bits(t) / len(t.encode()) for t in texts}, rel=1e-6
    )
    assert all(r.verdict == "graded" and r.checkpoint == "version" and len(r.log_probs) == 1 for r in records)


def test_no_unigram_model_scores_below_the_entropy_of_the_tokens(tmp_path):
    corpora = (corpus(tmp_path, "x", "prose", "the cat sat on the mat, " * 3, "a dog barked at the cat " * 2),)
    tokenizer = byte_tokenizer()
    text = "".join(d.text for d in heldout_documents(corpora, TASK)).encode()
    counts = np.bincount(np.frombuffer(text, np.uint8), minlength=257)
    best = np.where(counts > 0, -np.log(np.maximum(counts, 1) / counts.sum()), 50.0)

    def entropy_and_loss(nats: np.ndarray) -> tuple[float, float]:
        scores, _ = evaluate_perplexity(UnigramScorer(nats), tokenizer, START, TASK, corpora, "v", seed=0)
        values = {s.metric: s.value for s in scores}
        return values["unigram_entropy_nats_per_token"], values["loss_nats_per_token"]

    entropy, loss = entropy_and_loss(best)
    assert loss == pytest.approx(entropy, rel=1e-5)  # the best unigram reaches the bound
    uniform = np.full(257, math.log(256))
    assert entropy_and_loss(uniform)[1] > entropy


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=20), min_size=1, max_size=5))
def test_unigram_entropy_is_that_of_the_pooled_counts(documents):
    pooled = [token for document in documents for token in document]
    shares = [pooled.count(token) / len(pooled) for token in set(pooled)]
    expected = -sum(share * math.log(share) for share in shares)
    assert unigram_entropy_nats([np.array(d) for d in documents]) == pytest.approx(expected, abs=1e-12)


def test_a_domain_takes_its_corpora_in_id_order_up_to_its_budget(tmp_path):
    texts = [f"document {i} " * 8 for i in range(20)]  # about 100 bytes each: the budget of 400 holds four
    x, y = corpus(tmp_path, "x", "prose", *texts[:10]), corpus(tmp_path, "y", "prose", *texts[10:])
    z = corpus(tmp_path, "z", "code", "print()")
    documents = heldout_documents((x, y, z), TASK)
    assert documents == heldout_documents((z, y, x), TASK)
    prose = [d for d in documents if d.domain == "prose"]
    everything = sorted((text_digest(t), t) for t in texts)
    assert [d.id for d in prose] == [i for i, _ in everything[: len(prose)]]
    assert sum(len(d.text.encode()) for d in prose) == 400
    assert [d.text for d in documents if d.domain == "code"] == ["print()"]


@given(
    st.lists(st.text(st.sampled_from("aé€𝄞"), min_size=1, max_size=60), min_size=1, max_size=8),
    st.integers(4, 100),
    st.integers(4, 200),
)
def test_cuts_fall_between_characters_and_leave_no_empty_document(tmp_path_factory, texts, per_document, budget):
    task = TaskSpec("t", "perplexity", max_bytes_per_document=per_document, max_bytes_per_domain=budget)
    cut = heldout_documents((corpus(tmp_path_factory.mktemp("s"), "x", "prose", *texts),), task)
    by_id = {text_digest(text): text for text in texts}
    assert cut
    for document in cut:
        assert document.text and by_id[document.id].startswith(document.text)
        assert len(document.text.encode()) <= per_document
    assert sum(len(d.text.encode()) for d in cut) <= budget


def test_a_document_that_two_corpora_hold_counts_once(tmp_path):
    corpora = (corpus(tmp_path, "x", "prose", "same", "one"), corpus(tmp_path, "y", "prose", "same", "two"))
    assert sorted(d.text for d in heldout_documents(corpora, TASK)) == ["one", "same", "two"]


def test_a_domain_without_heldout_text_is_announced_and_none_at_all_is_an_error(tmp_path, caplog):
    empty = corpus(tmp_path, "x", "prose")
    full = corpus(tmp_path, "y", "code", "print()")
    scores, _ = evaluate_perplexity(UnigramScorer(NATS), byte_tokenizer(), START, TASK, (empty, full), "v", seed=0)
    assert "domain prose has no held-out document" in caplog.text
    assert {s.task for s in scores} == {"heldout", "heldout/code", "heldout/code/y"}
    with pytest.raises(ValueError, match="heldout: the corpora hold no held-out document"):
        evaluate_perplexity(UnigramScorer(NATS), byte_tokenizer(), START, TASK, (empty,), "v", seed=0)
