"""Invariants of the data engine's artifacts: functions that return a list of violations, empty if there are none.

They read the files and do not rely on the manifest, so they also find damage that happened after the commit. The shell
runs them as blocking checks.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from datakit.contamination.template_rescan import CLEARED_FILE
from datakit.corpus.parts import HELDOUT, TRAIN
from datakit.dedup.paragraph_cuts import spans_cut
from datakit.documents.parts import DOCUMENTS, as_frame, iterate_part
from datakit.documents.schemas import DOCUMENT_SCHEMA, columns
from lineage.artifact.store import Artifact
from lineage.order.token_cache import TokenCache
from lineage.storage.digests import text_digest

PART = re.compile(r"part-(\d{5})-of-(\d{5})\.parquet")
SAMPLED_IDS = 200


def check_rows_conserved(artifact: Artifact) -> list[str]:
    """Check that rows in = rows out + drops by reason, where the stage counts both."""
    statistics = artifact.manifest.statistics
    if "rows_in" not in statistics or "rows_out" not in statistics:
        return []
    drops = sum(dict(statistics.get("drops") or {}).values())
    rows_in, rows_out = int(str(statistics["rows_in"])), int(str(statistics["rows_out"]))
    return [] if rows_in == rows_out + drops else [f"{rows_in} rows in, {rows_out} out and {drops} dropped"]


def check_file_set(artifact: Artifact) -> list[str]:
    """Check that storage lists the manifest's files with their sizes, and that parts are numbered without a gap."""
    listed = {entry.path: entry.bytes for entry in artifact.manifest.files}
    present = artifact.store.storage.sizes(f"{artifact.spec.address}/{artifact.manifest.data_folder}")
    violations = [f"file {path} is missing" for path in sorted(listed.keys() - present.keys())]
    violations += [f"file {path} is not in the manifest" for path in sorted(present.keys() - listed.keys())]
    violations += [
        f"file {path} has {present[path]} bytes, the manifest says {listed[path]}"
        for path in sorted(listed.keys() & present.keys())
        if listed[path] != present[path]
    ]
    groups: dict[str, list[str]] = {}
    for path in listed:
        head, _, name = path.rpartition("/")
        if PART.fullmatch(name):
            groups.setdefault(head, []).append(name)
    for head, names in sorted(groups.items()):
        wanted = [f"part-{i:05d}-of-{len(names):05d}.parquet" for i in range(len(names))]
        if sorted(names) != wanted:
            violations.append(f"{head} has the parts {sorted(names)[:3]}..., complete would be {wanted[:3]}...")
    return violations


def check_documents(artifact: Artifact, split: str = DOCUMENTS) -> list[str]:
    """Check the exact schema, that ids are sorted and unique over all parts, and that sampled ids are the digest of
    their text.
    """
    violations: list[str] = []
    last = ""
    paths = artifact.files(".parquet", under=f"{split}/")
    if missing := _missing(paths):
        return missing
    for path in paths:
        schema = pq.read_schema(path).remove_metadata()
        if not schema.equals(DOCUMENT_SCHEMA):
            violations.append(
                f"{split}/{path.name} has the columns {columns(schema)}; documents have {columns(DOCUMENT_SCHEMA)}"
            )
            continue
        ids = pl.read_parquet(path, columns=["id"])["id"]
        if ids.null_count():
            violations.append(f"{split}/{path.name}: {ids.null_count()} ids are null")
            continue
        if ids.len() and not ((ids[0] > last) and bool((ids.slice(1) > ids.slice(0, ids.len() - 1)).all())):
            violations.append(f"{split}/{path.name}: ids are not sorted and unique")
        last = ids[-1] if ids.len() else last
        step = max(1, ids.len() // SAMPLED_IDS)
        wrong = [i for i, text in _sample(path, step) if text_digest(text) != i]
        if wrong:
            violations.append(f"{split}/{path.name}: {len(wrong)} sampled ids are not the digest of their text ({wrong[0]})")
    written = sum(entry.rows or 0 for entry in artifact.manifest.files if entry.path.startswith(f"{split}/"))
    counted = artifact.manifest.statistics.get("rows_out" if split == DOCUMENTS else f"rows_{split}")
    on_disk = sum(pq.read_metadata(path).num_rows for path in paths)
    if not written == counted == on_disk:
        violations.append(f"{split} holds {on_disk} rows, its manifest {written}, its statistics {counted}")
    return violations


def _sample(path: Path, step: int) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of every `step`-th document. A text that lost paragraphs is left out: its id is of the whole text."""
    first = 0
    for table in iterate_part(path, ["id", "text", "metadata"]):
        rows = as_frame(table).gather_every(step, -first % step).iter_rows()
        yield from ((document, text) for document, text, metadata in rows if not spans_cut(metadata))
        first += table.num_rows


def check_attributes(artifact: Artifact, normalized: Artifact) -> list[str]:
    """Check that an attribute table has the documents' ids, in the same order, in files of the same names."""
    violations = []
    documents = {p.name: p for p in normalized.files(".parquet", under=f"{DOCUMENTS}/")}
    parts = {p.name: p for p in artifact.files(".parquet") if PART.fullmatch(p.name)}
    if documents.keys() != parts.keys():
        return [f"{artifact.name} has the files {sorted(parts)}, the documents {sorted(documents)}"]
    if missing := _missing([*parts.values(), *documents.values()]):
        return missing
    for name, path in sorted(parts.items()):
        ids = pl.read_parquet(path, columns=["id"])["id"]
        if not ids.equals(pl.read_parquet(documents[name], columns=["id"])["id"]):
            violations.append(f"{name}: its ids are not those of the documents, in their order")
    return violations


def check_corpus(artifact: Artifact) -> list[str]:
    """Check that both splits hold valid documents and that no id is in both."""
    violations = check_documents(artifact, TRAIN) + check_documents(artifact, HELDOUT)
    if _missing(artifact.files(".parquet")):
        return violations
    ids = [
        pl.concat([pl.read_parquet(p, columns=["id"]) for p in artifact.files(".parquet", under=f"{split}/")])
        for split in (TRAIN, HELDOUT)
    ]
    both = ids[0].join(ids[1], on="id", how="inner").height
    return violations + ([f"{both} documents are in train and in held-out"] if both else [])


def check_token_cache(artifact: Artifact, corpus: Artifact) -> list[str]:
    """Check a token cache: one row for each document of its split that was not dropped, in order, ended as its config
    says, with the recorded counts.
    """
    split = str(artifact.spec.config.get("split", TRAIN))
    paths = corpus.files(".parquet", under=f"{split}/")
    if missing := _missing([*artifact.files(), *paths]):
        return missing
    try:
        cache = TokenCache.open(artifact)
    except ValueError as error:  # This check asks whether its files and its manifest agree.
        return [str(error)]
    violations = []
    documents = pl.concat([pl.read_parquet(p, columns=["id"]) for p in paths])
    dropped = {i for p in artifact.files(".parquet", under="dropped/") for i in pl.read_parquet(p, columns=["id"])["id"]}
    wanted = [document_id for document_id in documents["id"].to_list() if document_id not in dropped]
    if cache.document_ids() != wanted:
        less = f" less {len(dropped)} dropped" if dropped else ""
        violations.append(
            f"{cache.num_documents} token rows for {documents.height} {split} documents{less}, or in another order"
        )
    sampled = np.arange(0, cache.num_documents, max(1, cache.num_documents // SAMPLED_IDS))
    ends = [int(cache.read(end - 1, end)[0]) for end in cache.ends.take(sampled).tolist()]
    if cache.eos is not None and any(token != cache.eos for token in ends):
        violations.append(f"a document does not end with token {cache.eos}")
    if artifact.manifest.statistics.get("tokens_out") != cache.num_tokens:
        violations.append(f"{cache.num_tokens} tokens, the statistics say {artifact.manifest.statistics.get('tokens_out')}")
    return violations


def _missing(paths: list[Path]) -> list[str]:
    return [f"file {path.parent.name}/{path.name} is missing" for path in paths if not path.is_file()]


def check_cleared_items(marks: Artifact) -> list[str]:
    """Check that no item lost a match because its words belong to a template of the source.

    A leak that is repeated with the same edit looks like a template, so somebody reads the list and waives the check.
    """
    cleared = pl.read_parquet(marks.folder() / CLEARED_FILE)
    if cleared.is_empty():
        return []
    first = ", ".join(f"{row['task']}/{row['item_id']} in {row['documents']}" for row in cleared.head(3).iter_rows(named=True))
    return [
        f"{len(cleared)} items count for nothing in documents that share a common phrase with them ({first}): read "
        f"{CLEARED_FILE}; if the phrases are no leaks, waive this check with the reason"
    ]
