"""Held-out bits per byte by domain, and the unigram entropy that any model must beat.

Protocol: documents in id order, each cut to `max_bytes_per_document`, up to `max_bytes_per_domain` a source; windows of the
context length without overlap, each opened by the last token of the one before (the first by the end-of-text token), so
every token is scored exactly once. Bits per byte is the sum of all bits over the sum of all bytes: a mean of means would
weight short documents like long ones (research/training_levanter_haliax_grug.md, section 1.15).
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from tokenizers import Tokenizer

from evals.intervals import ratio_bootstrap
from evals.records import EvalRecord, Score
from evals.scorer import TokenScorer
from evals.stage import TaskSpec
from lineage.digests import text_digest
from lineage.store import Artifact

POLICY = "windows-no-overlap/1"


@dataclass(frozen=True)
class HeldoutDocument:
    """One held-out text and where it is from."""

    id: str
    domain: str
    text: str


def heldout_documents(corpora: Sequence[Artifact], task: TaskSpec) -> list[HeldoutDocument]:
    """The documents that the task scores, a function of the corpora alone."""
    found = []
    for corpus in corpora:
        domain = corpus.manifest.extra["corpus"]["domain"]
        budget = task.max_bytes_per_domain
        for part in corpus.files(".parquet", under="heldout/"):
            for document_id, text in pl.read_parquet(part, columns=["id", "text"]).iter_rows():
                if budget <= 0:
                    break
                cut = text.encode()[: min(task.max_bytes_per_document, budget)].decode(errors="ignore")
                budget -= len(cut.encode())
                found.append(HeldoutDocument(document_id, domain, cut))
    return found


def evaluate_perplexity(
    scorer: TokenScorer,
    tokenizer: Tokenizer,
    start_token: int,
    task: TaskSpec,
    corpora: Sequence[Artifact],
    checkpoint: str,
    seed: int,
) -> tuple[list[Score], list[EvalRecord]]:
    """Scores by domain, their macro mean, nats a token, and the unigram entropy of the same tokens."""
    documents = heldout_documents(corpora, task)
    if not documents:
        raise ValueError(f"task {task.name}: the corpora hold no held-out document")
    tokens = [
        np.asarray(e.ids, dtype=np.int64)
        for e in tokenizer.encode_batch_fast([d.text for d in documents], add_special_tokens=False)
    ]
    nats = document_nats(scorer, tokens, start_token)
    sizes = np.array([len(d.text.encode()) for d in documents], dtype=np.float64)
    bits = nats / math.log(2)
    records = [
        EvalRecord(
            task=task.name,
            item_id=document.id,
            policy=POLICY,
            checkpoint=checkpoint,
            prompt_digest=text_digest(document.text),
            outputs=json.dumps({"nats": round(float(total), 4)}),
            verdict="graded",
            correct=None,
            bpb=float(bit / size),
        )
        for document, total, bit, size in zip(documents, nats, bits, sizes, strict=True)
    ]
    return _scores(task.name, documents, tokens, nats, bits, sizes, seed), records


def document_nats(scorer: TokenScorer, tokens: Sequence[np.ndarray], start_token: int) -> np.ndarray:
    """Nats of every document [documents], its tokens scored once each in windows without overlap."""
    stride = scorer.max_seq_len - 1
    windows, owners = [], []
    for index, sequence in enumerate(tokens):
        opened = np.concatenate([[start_token], sequence]).astype(np.int32)
        for start in range(0, sequence.size, stride):
            windows.append(opened[start : start + stride + 1])
            owners.append(index)
    totals = np.zeros(len(tokens), np.float64)
    for owner, nll in zip(owners, scorer.token_nll(windows), strict=True):
        totals[owner] += nll.sum(dtype=np.float64)
    return totals


def unigram_entropy_nats(tokens: Sequence[np.ndarray]) -> float:
    """Entropy of the tokens' own empirical distribution: no unigram model, however trained, does better on them."""
    counts = np.unique(np.concatenate(tokens), return_counts=True)[1].astype(np.float64)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _scores(
    name: str,
    documents: Sequence[HeldoutDocument],
    tokens: Sequence[np.ndarray],
    nats: np.ndarray,
    bits: np.ndarray,
    sizes: np.ndarray,
    seed: int,
) -> list[Score]:
    domains = sorted({d.domain for d in documents})
    scores = []
    for domain in domains:
        rows = np.array([i for i, d in enumerate(documents) if d.domain == domain])
        scores.append(Score(f"{name}/{domain}", "bits_per_byte", *ratio_bootstrap(bits[rows], sizes[rows], seed), rows.size))
    value, low, high = (float(np.mean([getattr(s, field) for s in scores])) for field in ("value", "low", "high"))
    counts = np.array([t.size for t in tokens], dtype=np.float64)
    entropy = unigram_entropy_nats(tokens)
    scores.append(Score(name, "macro_bits_per_byte", value, low, high, len(domains)))
    scores.append(Score(name, "loss_nats_per_token", *ratio_bootstrap(nats, counts, seed), len(documents)))
    scores.append(Score(name, "unigram_entropy_nats_per_token", entropy, entropy, entropy, int(counts.sum())))
    return scores
