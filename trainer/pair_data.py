"""Batches of preference pairs: token rows of a mixture, and what the reference gives each pair.

A cache of pairs has one document a pair: its chosen side, then its rejected side, padded to equal lengths. So a sequence of the
data order is a pair, and whatever the order and its inverse say of documents they say of pairs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from lineage.artifact.store import Artifact
from lineage.config import to_jsonable
from lineage.order.history import REFERENCE
from lineage.order.mixture import caches_of
from lineage.order.order import DataOrder
from lineage.order.token_cache import TokenCache
from trainer.loader import Place, batch_of, whole
from trainer.preferences import Pairs
from trainer.spec.config import RunSpec
from trainer.spec.objectives import Dpo
from trainer.tokenizer_check import tokenizer_of

FACTS = "pair_scores"
FILE = "pairs.parquet"


@dataclass(frozen=True)
class Reference:
    """Log-probabilities of both sides of every pair of a mixture, in nats: float32 [pairs, 2] for each component."""

    scores: tuple[np.ndarray, ...]

    @staticmethod
    def open(artifact: Artifact, mixture: Artifact, start: Artifact, spec: RunSpec, order: DataOrder) -> "Reference":
        """Open the reference of a run.

        Raises: ValueError if another checkpoint, tokenizer, way to compute or set of pairs made it.
        """
        facts = artifact.manifest.extra.get(FACTS)
        if not isinstance(facts, dict):
            raise ValueError(f"run {spec.name}: its reference {artifact.name} holds no log-probabilities of pairs")
        caches = {name: cache.data_version for name, cache in zip(order.names, caches_of(mixture), strict=True)}
        for what, there, here, remedy in (
            ("checkpoint", facts["checkpoint"], start.data_version, f"the run starts from {start.name}"),
            ("tokenizer", facts["tokenizer"], tokenizer_of(mixture), f"the pairs of {mixture.name} were made with that one"),
            ("compute", facts["compute"], to_jsonable(spec.compute), "log-probabilities depend on how they are computed"),
            ("pairs", facts["caches"], caches, f"the run reads {mixture.name}"),
        ):
            if there != here:
                raise ValueError(
                    f"run {spec.name}: its reference {artifact.name} has {what} {there}, the run needs {here}: {remedy}; "
                    "make the reference again for this run"
                )
        table = pl.read_parquet(artifact.file(FILE))
        by_component = table.partition_by("component", as_dict=True)
        scores = [by_component[name,].select("chosen", "rejected").to_numpy().astype(np.float32) for name in order.names]
        return Reference(tuple(scores))

    def rows(self, order: DataOrder, first: int, count: int) -> np.ndarray:
        """The log-probabilities of the global sequences `[first, first + count)`: float32 [count, 2]."""
        components, sequences = order.locate(np.arange(first, first + count))
        return np.stack([self.scores[c][s] for c, s in zip(components.tolist(), sequences.tolist(), strict=True)])


def open_reference(
    inputs: Mapping[str, Any], mixture: Artifact, start: Artifact | None, spec: RunSpec, order: DataOrder
) -> Reference | None:
    """The reference of a run on pairs; None for a run on text.

    Raises: ValueError for data that the objective cannot train on, or a reference that is missing, superfluous or another's.
    """
    check_rows(order.caches, spec)
    given = inputs.get(REFERENCE)
    if isinstance(spec.objective, Dpo) != (given is not None):
        has = "has no input" if given is None else "has the input"
        raise ValueError(f"run {spec.name} {has} {REFERENCE!r} and the objective {spec.objective.kind!r}; only dpo needs one")
    if given is None:
        return None
    assert start is not None  # the spec requires it
    return Reference.open(given, mixture, start, spec, order)


def check_rows(caches: tuple[TokenCache, ...], spec: RunSpec) -> None:
    """Raises: ValueError where a run on text is given pairs, a run on pairs text, or pairs of another length."""
    wanted = spec.seq_len if isinstance(spec.objective, Dpo) else None
    for cache in caches:
        if cache.row_tokens != wanted:
            holds = "text" if cache.row_tokens is None else f"pairs of {cache.row_tokens} tokens"
            needs = "text" if wanted is None else f"pairs of {wanted} tokens (run.seq_len, two sides)"
            raise ValueError(
                f"run {spec.name}: {cache.artifact_name} holds {holds}, objective {spec.objective.kind!r} needs {needs}"
            )


def pairs_of(order: DataOrder, spec: RunSpec, reference: Reference, step: int, place: Place = whole, begin: int = 0) -> Pairs:
    """The pairs of a step, a pure function of the step."""
    batch = batch_of(order, spec, step, place, begin)
    first, size = begin + spec.batches.first(step), spec.batches.size(step)
    assert batch.weights is not None  # a cache of pairs has weights
    return Pairs(batch.tokens, batch.weights, place(size, lambda row, number: reference.rows(order, first + row, number)))
