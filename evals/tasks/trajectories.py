"""Likelihood of the masked tokens of held-out trajectories, such as the assistant's turns of conversations.

Tokens and masks come from a token cache of the held-out split, made by the code and template of the training cache. So the
tokens that count here are those that count in the training loss. A trajectory's nats are `sum(weight x nll)` over windows of
the context without overlap, as in `evals.tasks.perplexity`; scores divide them by the same weighted sums of tokens or bytes.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from evals.items.stage import TaskSpec
from evals.scoring.intervals import ratio_bootstrap
from evals.scoring.records import EvalRecord, Score, log_probs_of
from evals.tasks.perplexity import token_nats
from evals.tasks.scorer import TokenScorer
from evals.tasks.tagged import byte_lengths
from lineage.artifact.store import Artifact
from lineage.order.token_cache import TokenCache
from lineage.storage.digests import text_digest

POLICY = "trajectories/1"


@dataclass(frozen=True)
class Trajectory:
    """Token ids [tokens] of a document and the weight of each as a target [tokens]."""

    id: str
    tokens: np.ndarray
    weights: np.ndarray


def read_trajectories(caches: Sequence[Artifact], tokenizer: Artifact, most: int) -> list[Trajectory]:
    """Read the first `most` documents of all caches in the order of their ids (hashes), without those that have no mask.

    Raises: ValueError for a cache of another tokenizer.
    """
    trajectories: dict[str, Trajectory] = {}
    for artifact in caches:
        bound = artifact.manifest.extra["tokens"]["tokenizer"]
        if bound != tokenizer.data_version:
            raise ValueError(f"{artifact.name} was made with the tokenizer {bound}, not with {tokenizer.name} as it is now")
        cache = TokenCache.open(artifact)
        for document_id, start, stop in cache.documents_between(0, cache.num_tokens):
            weights = cache.read_weights(start, stop)
            if weights.any():
                trajectories[document_id] = Trajectory(document_id, cache.read(start, stop).astype(np.int64), weights)
    return [trajectories[document_id] for document_id in sorted(trajectories)[:most]]


def evaluate_trajectories(
    scorer: TokenScorer,
    tokenizer: Tokenizer,
    start_token: int,
    task: TaskSpec,
    trajectories: Sequence[Trajectory],
    checkpoint: str,
    seed: int,
) -> tuple[list[Score], list[EvalRecord]]:
    """Return the nats a counted token and bits a counted byte; also nats a token over all tokens, without the mask.

    Bytes need a byte-level tokenizer; special tokens (an end of turn) have 0 bytes. Raises: ValueError without trajectories.
    """
    if not trajectories:
        raise ValueError(f"task {task.name}: the caches hold no trajectory in which a token counts")
    nats = token_nats(scorer, [each.tokens for each in trajectories], start_token)
    pairs = list(zip(trajectories, nats, strict=True))
    counted = np.array([float((each.weights * nll).sum()) for each, nll in pairs])
    weight = np.array([float(each.weights.sum()) for each in trajectories])
    lengths = byte_lengths(tokenizer)
    sizes = None if lengths is None else np.array([float((t.weights * lengths[t.tokens]).sum()) for t in trajectories])
    everything = np.array([nll.sum() for nll in nats]), np.array([float(each.tokens.size) for each in trajectories])
    number = len(trajectories)
    scores = [
        Score(task.name, "weighted_loss_nats_per_token", *ratio_bootstrap(counted, weight, seed), number),
        Score(task.name, "loss_nats_per_token", *ratio_bootstrap(*everything, seed), number),
    ]
    bits = counted / math.log(2)
    if sizes is not None and sizes.all():
        scores.insert(0, Score(task.name, "weighted_bits_per_byte", *ratio_bootstrap(bits, sizes, seed), number))
    records = [
        EvalRecord(
            task.name,
            each.id,
            POLICY + ("" if task.weights == "raw" else f"+{task.weights}"),
            checkpoint,
            text_digest(f"{each.tokens.tolist()} {each.weights.tolist()}"),
            json.dumps({"weight": float(weight[i]), "tokens": int(each.tokens.size)}),
            "graded",
            None,
            None if sizes is None or not sizes[i] else float(bits[i] / sizes[i]),
            log_probs=log_probs_of([counted[i]]),
        )
        for i, each in enumerate(trajectories)
    ]
    return scores, records
