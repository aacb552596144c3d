"""Measure a policy when its index is made: recall by task and form, and false marks on clean text. The result is kept
with the index.

Every scan plants a few items into its own source (`planted_items.py`) to prove that this scan works. Here each task is
measured separately, on more of its items, together with what is marked in real text that is known to hold no item.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from datakit.contamination.leak_forms import LEAK_FORMS
from datakit.contamination.planted_items import FILLER_CHARACTERS, Canary, choose_canaries, items_found, planted, share
from datakit.contamination.protocol import Finder, PolicyIndex, text_batches
from datakit.documents.parts import iterate_documents
from lineage.artifact.store import Artifact

log = logging.getLogger(__name__)

ITEMS_PER_TASK = 100
"""Planted items of each task: the first in hash order of their keys, a sample that no seed and no order of tasks
changes.
"""
NUM_FILLERS = 200
LISTED_IDS = 20


def measure_recall(
    items: pl.DataFrame, channels: pl.DataFrame, index: PolicyIndex, clean: Sequence[Artifact]
) -> dict[str, Any]:
    """Return `recall` and `clean_text`.

    `recall` gives for each task the number of `items` chosen, and for each of `LEAK_FORMS` how many items it applied to
    (`planted`) and the share `found`. A form that applies to no item is left out. A task without a matchable question
    has 0 items and no form.

    `clean_text` gives for each source the number of `documents`, how many are `marked`, and the `ids` of the first
    marked ones, for people to read. Without clean sources it is empty, which is logged, and items are planted into
    nothing.
    """
    if not clean:
        log.warning("no clean source is given: how often this policy marks clean text is not measured, items stand alone")
    find = index.marked_pairs
    fillers = list(_fillers(clean)) or [""]
    recall = {}
    for (task,), rows in items.with_row_index("row").group_by("task", maintain_order=True):
        of_task = channels.with_columns(is_wanted=pl.col("item").is_in(rows["row"].cast(pl.Int64).implode()))["is_wanted"]
        canaries = choose_canaries(items, channels, index, ITEMS_PER_TASK, of_task)
        recall[str(task)] = {"items": len(canaries), "forms": _recall(canaries, fillers, find, channels["item"].to_list())}
    return {"recall": recall, "clean_text": {source.spec.partition or source.name: _marked(source, find) for source in clean}}


def _recall(
    canaries: Sequence[Canary], fillers: Sequence[str], find: Finder, item_of_channel: Sequence[int]
) -> dict[str, dict[str, float]]:
    recall = {}
    for form in LEAK_FORMS:
        leaks = [(canary.item, leak) for canary in canaries if (leak := canary.leaked(form)) is not None]
        if not leaks:
            continue
        texts = [planted(leak, fillers[at % len(fillers)]) for at, (_, leak) in enumerate(leaks)]
        marked = [held for _, batch in text_batches(texts) for held in items_found(batch, find, item_of_channel)]
        marked_share = share(item in held for (item, _), held in zip(leaks, marked, strict=True))
        recall[form] = {"planted": len(leaks), "found": marked_share}
    return recall


def _fillers(clean: Sequence[Artifact]) -> Iterator[str]:
    """Return openings of the first documents (ids are hashes), equally many from each source."""
    for source in clean:
        left = -(-NUM_FILLERS // len(clean))
        for documents in iterate_documents(source, columns=["text"]):
            texts = documents["text"].head(left).to_list()
            yield from (text[:FILLER_CHARACTERS] for text in texts)
            left -= len(texts)
            if not left:
                break


def _marked(source: Artifact, find: Finder) -> Mapping[str, Any]:
    num_documents, ids = 0, list[str]()
    for documents in iterate_documents(source, columns=["id", "text"]):
        for first, texts in text_batches(documents["text"].to_list()):
            marked = {document for document, _ in find(texts)}
            ids += [documents["id"][first + at] for at in sorted(marked)]
        num_documents += len(documents)
    return {
        "documents": num_documents,
        "marked": len(ids),
        "share": round(len(ids) / max(num_documents, 1), 6),
        "ids": ids[:LISTED_IDS],
    }
