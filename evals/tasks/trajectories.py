"""How likely a model finds what it is to say in held-out trajectories: conversations, and whatever else has a mask.

The tokens and the mask are those of a token cache over the held-out split, made by the very code and template that made the
training cache: what counts here is what the training loss looked at. A trajectory's nats are `sum(weight x nll)`, in windows of
the context without overlap as in `evals.tasks.perplexity`; per token and per byte they are divided by the same weights' sums.
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
    """The first `most` documents of all caches in the order of their ids (hashes, so any), those in which something counts.

    Raises: ValueError for a cache that another tokenizer made.
    """
    found: dict[str, Trajectory] = {}
    for artifact in caches:
        bound = artifact.manifest.extra["tokens"]["tokenizer"]
        if bound != tokenizer.data_version:
            raise ValueError(f"{artifact.name} was made with the tokenizer {bound}, not with {tokenizer.name} as it is now")
        cache = TokenCache.open(artifact)
        for document_id, start, stop in cache.documents_between(0, cache.num_tokens):
            weights = cache.read_weights(start, stop)
            if weights.any():
                found[document_id] = Trajectory(document_id, cache.read(start, stop).astype(np.int64), weights)
    return [found[document_id] for document_id in sorted(found)[:most]]


def evaluate_trajectories(
    scorer: TokenScorer,
    tokenizer: Tokenizer,
    start_token: int,
    task: TaskSpec,
    trajectories: Sequence[Trajectory],
    checkpoint: str,
    seed: int,
) -> tuple[list[Score], list[EvalRecord]]:
    """Nats a counted token and bits a counted byte; beside them nats a token of everything, the mask aside.

    Bytes need a byte-level tokenizer; special tokens (an end of turn) have none. Raises: ValueError for no trajectory.
    """
    if not trajectories:
        raise ValueError(f"task {task.name}: the caches hold no trajectory in which a token counts")
    nats = token_nats(scorer, [each.tokens for each in trajectories], start_token)
    pairs = list(zip(trajectories, nats, strict=True))
    counted = np.array([float((each.weights * found).sum()) for each, found in pairs])
    weight = np.array([float(each.weights.sum()) for each in trajectories])
    lengths = byte_lengths(tokenizer)
    sizes = None if lengths is None else np.array([float((t.weights * lengths[t.tokens]).sum()) for t in trajectories])
    everything = np.array([found.sum() for found in nats]), np.array([float(each.tokens.size) for each in trajectories])
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
