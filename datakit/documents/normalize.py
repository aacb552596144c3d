"""The stage `datakit.normalize`: every record becomes a document with a content id, or a counted drop with its reason.

Runs of whitespace longer than 128 characters are capped (128 is the longest run that one Llama token absorbs;
multi-megabyte runs made Marin's tokenizers run out of memory, marin#4588). There are three kinds of shards, and each
survives a kill: raw files, cut by `datakit.documents.file_pieces`, are parsed into sorted runs; too many runs are merged
into fewer; every part of the output is merged from all runs. The first record of every id is kept, so the result depends
on neither workers nor shards, and memory does not grow with the source.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datakit.documents.collapsed_runs import RUNS, SAMPLES, collapse, runs_with
from datakit.documents.drop_samples import SAMPLE_CHARS, DropSamples, joined
from datakit.documents.file_pieces import Piece, groups_of_pieces, raw_files
from datakit.documents.parts import DOCUMENTS, TARGET_PART_BYTES, as_frame, part_name, text_bytes, write_parquet, writing_part
from datakit.documents.schemas import DOCUMENT_SCHEMA
from datakit.documents.sorted_runs import Cut, IdRange, RunWriter, merged
from datakit.documents.whitespace import WhitespaceCap
from datakit.readers.conversations import CONVERSATION_FIELD, with_strings
from datakit.readers.read import read_file
from datakit.readers.steps import after, prepared
from datakit.sources.record import LONE_SURROGATE, Record, Unreadable, blank_fault, utf8
from datakit.sources.redaction import Redaction
from datakit.sources.remote import FILES
from datakit.sources.source import Domain, Format, Records, SourceStep
from lineage.artifact.store import Artifact
from lineage.shards.run import DIGESTED
from lineage.stage import Stage
from lineage.storage.digests import utf8_digest
from lineage.writing.writer import Writer

CUT = Cut()
METADATA = json.JSONEncoder(ensure_ascii=False)
"""One for all: `json.dumps` makes another for each document."""


@dataclass(frozen=True)
class NormalizeConfig:
    """How a source's files are read and its texts cleaned."""

    source: str
    format: Format | Records
    domain: Domain
    max_whitespace_run_chars: int = 128
    target_part_bytes: int = TARGET_PART_BYTES
    """Text of one part before repeated documents are removed."""

    steps: tuple[SourceStep, ...] = field(default=(), metadata={"added_later": True})
    """Steps that filter and change records between their reader and their ids, in this order."""

    def __post_init__(self) -> None:
        if self.format == "none":
            raise ValueError(f"source {self.source} has format 'none': its files are no documents and cannot be normalized")
        if self.max_whitespace_run_chars < 1:
            raise ValueError(f"max_whitespace_run_chars is {self.max_whitespace_run_chars}; it must be at least 1")
        if self.target_part_bytes < 1:
            raise ValueError(f"target_part_bytes is {self.target_part_bytes}; it must be at least 1")


def normalize(out: Writer, config: NormalizeConfig, raw: Artifact, cut: Cut = CUT) -> None:
    """Write `documents/part-*.parquet` and `dropped.parquet`.

    Raises: ValueError if no document survives; before any file is read, what `datakit.readers.steps.prepared` raises.
    """
    prepared(config.steps)
    files = raw_files(out, raw)
    if not files:
        raise ValueError(f"source {config.source}: {raw.name} holds no file below {FILES}/; materialize it again")
    groups = enumerate(groups_of_pieces(out, files, config.format, cut))
    largest_first = sorted(groups, key=lambda numbered: -numbered[1][0])
    tasks = {f"parse-{i:05d}": (i, group, config, cut) for i, (_, group) in largest_first}
    parsed = out.map_shards(parse_shard, tasks, omittable=True, lazy=True, in_runs=out.fetches_inputs)
    count = max(1, -(-_total(parsed, "text_bytes") // config.target_part_bytes))
    long_texts = sorted({id for shard in parsed.values() for id in shard.get("long_texts", ())})
    shares = [IdRange.share(i, count) for i in range(count)]
    written = [out.folder / RUNS / run for shard in parsed.values() for run in shard["runs"]]
    runs, collapsed = collapse(out, written, cut, shares)
    tasks = {
        f"merge-{i:05d}": (part_name(i, count), runs_with(runs, ids), ids, cut, any(id in ids for id in long_texts))
        for i, ids in enumerate(shares)
    }
    parts = out.map_shards(merge_part, tasks, lazy=True, in_runs=out.fetches_inputs)
    drops = _drops([*parsed.values(), *collapsed, *parts.values()])
    documents = _total(parts, "documents")
    rows_in = documents + sum(drops.values())
    if rows_in != _total(parsed, "records"):
        raise RuntimeError(f"{out.spec.name}: {_total(parsed, 'records')} records came, {documents} documents left and {drops}")
    if not documents:
        raise ValueError(f"source {config.source}: no document survives of {rows_in} records; dropped: {drops}")
    out.bring(out.folder / SAMPLES)
    write_parquet(out.folder / "dropped.parquet", joined(sorted((out.folder / SAMPLES).glob("*.parquet"))))
    out.facts["documents"] = {"domain": config.domain}
    out.record(
        rows_in=rows_in,
        rows_out=documents,
        drops=drops,
        bytes_in=sum(file.bytes for file in files),
        bytes_out=_total(parts, "text_bytes"),
        whitespace_runs_capped=_total(parsed, "whitespace_runs_capped"),
        **_redacted(config.steps, parsed),
    )


NORMALIZE = Stage(
    "datakit.normalize",
    "7",
    normalize,
    description="Documents with `id = xxh3_128(text)`, sorted and unique; drops are counted by reason with samples.",
    checks=("rows_conserved", "file_set", "documents_valid"),
)
"""Without a version of its own since 2026-11-27: a part that holds a text of 16 MiB has no statistics of text, and this
text is a row group by itself. All other parts keep their bytes. 7: texts in what a conversation calls or thinks keep their
line feeds; invisible texts are dropped. 5: byte order marks are not text, pages are read as browsers read them, conversations
hold what they call and think. 4: every record of a WARC is counted.
"""


def parse_shard(folder: Path, index: int, pieces: Sequence[Piece], config: NormalizeConfig, cut: Cut) -> dict[str, object]:
    """Parse some raw files into sorted runs and drops; return counts. Records are numbered from `index << 40` on."""
    dropped, capped, order = DropSamples(), 0, index << 40
    redacted = Counter[str]()
    first, steps = order, prepared(config.steps, redacted)
    runs = RunWriter(folder / RUNS, f"parsed-{index:05d}", cut, dropped.add_repeated)
    whitespace = WhitespaceCap(config.max_whitespace_run_chars)
    for record in after(steps, (record for piece in pieces for record in read_file(config.format, *piece))):
        cleaned, num_capped, reason = clean(record, whitespace)
        capped += num_capped
        source_id = _encodable(record.source_id)
        if cleaned is None:
            dropped.add(source_id, reason, _encodable((record.text or "")[:SAMPLE_CHARS]), order)
        else:
            assert isinstance(record, Record)  # `clean` returns no text for Unreadable.
            metadata = METADATA.encode({"source_id": source_id, **_kept_fields(record, whitespace)})
            runs.add((cleaned.id, cleaned.text, config.source, metadata, order))
        order += 1
    runs.flush()
    dropped.write(folder / SAMPLES / f"parsed-{index:05d}.parquet")
    return {
        "records": order - first,
        "text_bytes": runs.text_bytes,
        "runs": runs.runs,
        "drops": dict(dropped.counts),
        "whitespace_runs_capped": capped,
        "redacted": dict(redacted),
        **({"long_texts": runs.long_texts} if runs.long_texts else {}),
    }


def merge_part(
    folder: Path, name: str, runs: Sequence[Path], ids: IdRange, cut: Cut, long_texts: bool = False
) -> dict[str, object]:
    """Write one part of the output: the documents of a range of ids, from all runs.

    `long_texts`: whether one of them is long (`writing_part`).
    """
    dropped, size = DropSamples(), 0
    with writing_part(folder / DOCUMENTS / name, long_texts=long_texts) as part:
        for kept, repeated in merged(runs, ids, cut.held_blocks):
            part.write(kept.select(DOCUMENT_SCHEMA.names))
            size += int(text_bytes(kept).sum())
            dropped.add_repeated(as_frame(repeated))
    dropped.write(folder / SAMPLES / name)
    digested = {f"{DOCUMENTS}/{name}": part.digested}
    return {"documents": part.rows, "text_bytes": size, "drops": dict(dropped.counts), DIGESTED: digested}


@dataclass(frozen=True)
class Cleaned:
    """A text worth keeping, in UTF-8, with its id."""

    id: str
    text: bytes


def clean(record: Record | Unreadable, whitespace: WhitespaceCap) -> tuple[Cleaned | None, int, str]:
    """Return (text, capped runs, "") of a record worth keeping, or (None, 0, reason).

    A text is encoded once, because encoding text beyond ASCII takes three times as long as hashing it.
    """
    if isinstance(record, Unreadable):
        return None, 0, record.reason
    fault = blank_fault(record.text)
    if record.text is None or fault:
        return None, 0, fault
    text, runs = whitespace.apply(record.text)
    encoded = utf8(text)
    if encoded is None:
        return None, 0, LONE_SURROGATE
    return Cleaned(utf8_digest(encoded), encoded), runs, ""


def _kept_fields(record: Record, whitespace: WhitespaceCap) -> dict[str, str]:
    """Return what a document keeps besides its text. Messages of a conversation are capped like its text, because
    tokens are made of them.
    """
    kept = {name: _encodable(value) for name, value in record.fields.items()}
    if CONVERSATION_FIELD in kept:
        kept[CONVERSATION_FIELD] = with_strings(kept[CONVERSATION_FIELD], lambda string: whitespace.apply(string)[0])
    return kept


def _encodable(name: str) -> str:
    """Write lone surrogates of a name or sample as `\udc80`: a bad file name or title must not stop its source."""
    return name.encode("utf-8", "backslashreplace").decode()


def _total(shards: Mapping[str, Mapping[str, Any]], name: str) -> int:
    return sum(int(shard[name]) for shard in shards.values())


def _drops(shards: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return dropped rows by reason over all shards."""
    totals = sum((Counter(shard["drops"]) for shard in shards), Counter[str]())
    return dict(sorted(totals.items()))


def _redacted(steps: Sequence[SourceStep], shards: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the statistic of the placeholders by kind, zeros included, in all records that were read; nothing without a
    redaction.
    """
    totals = sum((Counter(shard["redacted"]) for shard in shards.values()), Counter[str]())
    kinds = sorted({kind for step in steps if isinstance(step, Redaction) for kind in step.kinds})
    return {"redacted": {kind: totals[kind] for kind in kinds}} if kinds else {}
