"""Exposure: the exact training steps that read a document, by inverting the data order.

No peer offers this: with a stateful shuffle the question needs a replay of the run. Here it costs one inverse
permutation an epoch for all the sequences that hold the documents (`benchmarks/exposure.py`: a million documents of the
32B recipe).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from lineage.order.batches import BatchSchedule
from lineage.order.order import DataOrder

SCHEMA = {
    "component": pl.String,
    "id": pl.String,
    "step": pl.Int64,
    "row": pl.Int64,
    "sequence": pl.Int64,
    "tokens": pl.Int64,
}


def exposures(
    order: DataOrder, documents: Mapping[str, Sequence[str]], *, batches: BatchSchedule, num_steps: int
) -> pl.DataFrame:
    """Return one row for every read of a (document, sequence) in the first `num_steps` steps; `documents` maps
    component to ids.

    `row` is the sequence's place in the batch of the step, `sequence` its number in the component, `tokens` how many of
    the document's tokens are in it. `batches` says which global sequences a step reads. A document that the cache does
    not hold has no rows.
    """
    frames = [pl.DataFrame(schema=SCHEMA)]
    for component, ids in documents.items():
        cache = order.caches[order.names.index(component)]
        held = [(document, span) for document in ids if (span := cache.document_span(document)) is not None]
        spans = np.array([span for _, span in held], np.int64).reshape(-1, 2)
        exposed = span_exposures(order, component, spans, batches=batches, num_steps=num_steps)
        names = pl.Series("id", [document for document, _ in held], dtype=pl.String)
        named = exposed.with_columns(id=names.gather(exposed["document"]), component=pl.lit(component))
        frames.append(named.select(SCHEMA.keys()))
    return pl.concat(frames).sort("component", "id", "step", "row")


def span_exposures(
    order: DataOrder, component: str, spans: np.ndarray, *, batches: BatchSchedule, num_steps: int
) -> pl.DataFrame:
    """Return (document, step, row, sequence, tokens) of documents given as token spans [documents, 2] of a component's
    cache.
    """
    document, sequence, tokens = order.sequences[order.names.index(component)].holding(spans)
    read, indices = order.reads(component, sequence, below=batches.first(num_steps))
    is_own = indices >= batches.first(0)  # Earlier sequences were read by the runs before this one.
    read, indices = read[is_own], indices[is_own]
    steps, rows = batches.locate(indices)
    columns = {"document": document[read], "step": steps, "row": rows, "sequence": sequence[read], "tokens": tokens[read]}
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64))
