"""Held-out bits per byte by tag (domain, and source below it), and the unigram entropy that any model must beat.

Protocol: the documents of all corpora of a domain in id order (a random order, ids are hashes), each cut to
`max_bytes_per_document`, up to `max_bytes_per_domain`; windows of the context length without overlap, each opened by the
last token of the one before (the first by the end-of-text token), so every token is scored exactly once. Bits per byte is
the sum of all bits over the sum of all bytes: a mean of means would weight short documents like long ones
(docs/references.md#levanter-bpb).
"""

import heapq
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from tokenizers import Tokenizer

from evals.items.stage import LONGEST_CHARACTER_BYTES, TaskSpec
from evals.scoring.intervals import ratio_bootstrap
from evals.scoring.records import EvalRecord, Score, log_probs_of
from evals.tasks.scorer import TokenScorer
from evals.tasks.tagged import Measured, batch_weighted, tag_scores
from lineage.artifact.store import Artifact
from lineage.storage.digests import text_digest

log = logging.getLogger("evals")

POLICY = "windows-no-overlap/1"


@dataclass(frozen=True)
class HeldoutDocument:
    """One held-out text and its source."""

    id: str
    domain: str
    text: str
    source: str

    @property
    def tag(self) -> str:
        """Its leaf: a source below its domain."""
        return f"{self.domain}/{self.source}"


def heldout_documents(corpora: Sequence[Artifact], task: TaskSpec) -> list[HeldoutDocument]:
    """Choose the documents that the task scores, by domain and id; the choice does not depend on the corpora's order.

    An id that two corpora hold counts once. The last bytes of a budget are left over when they might not hold a character.
    """
    by_domain: dict[str, list[Artifact]] = {}
    for corpus in corpora:
        by_domain.setdefault(str(corpus.manifest.extra["corpus"]["domain"]), []).append(corpus)
    return [document for domain in sorted(by_domain) for document in _documents_of(domain, by_domain[domain], task)]


def _documents_of(domain: str, corpora: Sequence[Artifact], task: TaskSpec) -> list[HeldoutDocument]:
    documents: dict[str, HeldoutDocument] = {}
    budget = task.max_bytes_per_domain
    for document_id, text, source in heapq.merge(*(_heldout_rows(corpus) for corpus in corpora)):
        if budget < LONGEST_CHARACTER_BYTES:
            break
        cut = text.encode()[: min(task.max_bytes_per_document, budget)].decode(errors="ignore")
        if cut and document_id not in documents:
            budget -= len(cut.encode())
            documents[document_id] = HeldoutDocument(document_id, domain, cut, source)
    if not documents:
        log.warning("%s: domain %s has no held-out document and is left out of the scores", task.name, domain)
    return list(documents.values())


def _heldout_rows(corpus: Artifact) -> Iterator[tuple[str, str, str]]:
    """Yield (id, text, source) of the held-out split in id order, reading one part at a time."""
    for part in corpus.files(".parquet", under="heldout/"):
        yield from pl.read_parquet(part, columns=["id", "text", "source"]).iter_rows()


def evaluate_perplexity(
    scorer: TokenScorer,
    tokenizer: Tokenizer,
    start_token: int,
    task: TaskSpec,
    corpora: Sequence[Artifact],
    checkpoint: str,
    seed: int,
) -> tuple[list[Score], list[EvalRecord]]:
    """Return scores by tag: micro, macro over leaves, and with Levanter's weights; also nats a token and unigram entropy."""
    documents = heldout_documents(corpora, task)
    if not documents:
        raise ValueError(f"task {task.name}: the corpora hold no held-out document")
    tokens = [
        np.asarray(e.ids, dtype=np.int64)
        for e in tokenizer.encode_batch_fast([d.text for d in documents], add_special_tokens=False)
    ]
    by_token = token_nats(scorer, tokens, start_token)
    nats = np.array([each.sum() for each in by_token])
    measured = [
        Measured(document.tag, float(total) / math.log(2), len(document.text.encode()))
        for document, total in zip(documents, nats, strict=True)
    ]
    records = [
        EvalRecord(
            task=task.name,
            item_id=document.id,
            policy=POLICY + ("" if task.weights == "raw" else f"+{task.weights}"),
            checkpoint=checkpoint,
            prompt_digest=text_digest(document.text),
            outputs="{}",
            log_probs=log_probs_of([total]),
            verdict="graded",
            correct=None,
            bpb=each.bits / each.num_bytes,
        )
        for document, total, each in zip(documents, nats, measured, strict=True)
    ]
    scores = [
        *tag_scores(task.name, measured, seed),
        *batch_weighted(task.name, tokenizer, tokens, by_token, scorer.max_seq_len - 1),
        *_by_token(task.name, tokens, nats, seed),
    ]
    return scores, records


def document_nats(scorer: TokenScorer, tokens: Sequence[np.ndarray], start_token: int) -> np.ndarray:
    """Return the nats of every document [documents]; each token is scored once, in windows without overlap."""
    return np.array([nats.sum() for nats in token_nats(scorer, tokens, start_token)])


def token_nats(scorer: TokenScorer, tokens: Sequence[np.ndarray], start_token: int) -> list[np.ndarray]:
    """Return the nats of every token of every document (float64), in windows without overlap.

    Raises: ValueError where they are not finite: a sum with such a one says nothing.
    """
    stride = scorer.max_seq_len - 1
    windows, owners = [], []
    for index, sequence in enumerate(tokens):
        opened = np.concatenate([[start_token], sequence]).astype(np.int32)
        for start in range(0, sequence.size, stride):
            windows.append(opened[start : start + stride + 1])
            owners.append(index)
    pieces: list[list[np.ndarray]] = [[] for _ in tokens]
    for owner, nll in zip(owners, scorer.token_nll(windows), strict=True):
        pieces[owner].append(nll.astype(np.float64))
    nats = [np.concatenate([np.zeros(0), *window_nats]) for window_nats in pieces]
    if broken := sum(not np.isfinite(window_nats).all() for window_nats in nats):
        raise ValueError(
            f"{broken} of {len(nats)} documents have log-probabilities that are not finite numbers; the model is broken"
        )
    return nats


def unigram_entropy_nats(tokens: Sequence[np.ndarray]) -> float:
    """Return the entropy of the tokens' empirical distribution, which is the best loss of any unigram model on them."""
    counts = np.unique(np.concatenate(tokens), return_counts=True)[1].astype(np.float64)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _by_token(name: str, tokens: Sequence[np.ndarray], nats: np.ndarray, seed: int) -> list[Score]:
    counts = np.array([t.size for t in tokens], dtype=np.float64)
    entropy = unigram_entropy_nats(tokens)
    return [
        Score(name, "loss_nats_per_token", *ratio_bootstrap(nats, counts, seed), len(tokens)),
        Score(name, "unigram_entropy_nats_per_token", entropy, entropy, entropy, int(counts.sum())),
    ]
