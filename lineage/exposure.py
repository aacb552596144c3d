"""Exposure: the exact training steps that saw a document, by inverting the data order.

No peer has this: with a stateful shuffle the question needs a replay of the run. Here it costs one inverse permutation an
epoch for each sequence that the document touches.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from lineage.batches import BatchSchedule
from lineage.order import DataOrder

SCHEMA = {"component": pl.String, "id": pl.String, "step": pl.Int64, "sequence": pl.Int64, "tokens": pl.Int64}


def exposures(
    order: DataOrder, documents: Mapping[str, Sequence[str]], *, batches: BatchSchedule, num_steps: int
) -> pl.DataFrame:
    """One row for every read of a (document, sequence) in the first `num_steps` steps; `documents` maps component to ids.

    `sequence` is the component's sequence, `tokens` how many of the document's tokens lie in it. `batches` says which
    global sequences a step reads. A document that the cache does not hold has no rows.
    """
    rows = [
        row
        for component, ids in documents.items()
        for document_id in ids
        for row in _of_document(order, component, document_id, batches, num_steps)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("component", "id", "step", "sequence")


def _of_document(
    order: DataOrder, component: str, document_id: str, batches: BatchSchedule, num_steps: int
) -> list[tuple[str, str, int, int, int]]:
    which = order.names.index(component)
    span = order.caches[which].document_span(document_id)
    if span is None:
        return []
    start, stop = span
    found = []
    for sequence in range(start // order.seq_len, -(-stop // order.seq_len)):
        if sequence >= order.num_sequences(which):  # the tail that no sequence fills is never read
            continue
        low, high = max(start, sequence * order.seq_len), min(stop, (sequence + 1) * order.seq_len)
        if low < high:
            for index in order.inverse(component, sequence, below=batches.first(num_steps)):
                found.append((component, document_id, batches.step_of(index), sequence, high - low))
    return found
