"""The stage `datakit.token_cache`: token shards of a split, framed as the config says, with a mask if one is declared.

The policy is explicit: which token opens a document (by default none) and which ends it. It is checked as shards are
written: every document begins and ends so, and no special token is inside a text. Shards are equal runs of a part's
documents, of about 4 MiB of text and in id order, and larger ones from 16 GiB on (`shard_bytes`). So they are the same
for any number of workers, and each survives a kill.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from datakit.corpus.parts import HELDOUT, SPLITS
from datakit.documents.parts import as_frame, iterate_texts, part_bounds, row_ranges, text_size, write_parquet
from datakit.documents.parts_of_tasks import footer, parts_of_split, parts_of_tasks
from datakit.documents.schemas import CORPUS_DROPPED_SCHEMA
from datakit.tokens.engines import (
    ENGINE_CHOICES,
    EngineChoice,
    EngineName,
    EngineVerdict,
    MapCalls,
    choose_engine,
    encoder,
    load_engines,
)
from datakit.tokens.formats import (
    PLAIN,
    Chat,
    Dropped,
    Encoded,
    PlainText,
    Prebuilt,
    Preferences,
    TokenFormat,
    TokenPolicy,
    check_chat,
    columns,
    encode_documents,
    weights_dtype,
)
from datakit.tokens.pairs import encode_pairs
from datakit.tokens.tokenizer import END_OF_TEXT, TOKENIZER_FILE, load_tokenizer
from lineage.artifact.store import Artifact
from lineage.order.token_shards import ShardInfo, token_dtype, tokens_extra, write_flat_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer

SHARD_BYTES = 4 << 20
MANY_SHARDS = 4_096
SAMPLED_DOCUMENTS = 64
SAMPLE_CHARS = 8_192
"""Characters of each sampled document: the reference needs .2 s for all of them."""

DROPPED = "dropped"


@dataclass(frozen=True)
class TokenCacheConfig:
    """The component's name in mixtures, how documents become tokens, and how they are framed."""

    component: str
    format: TokenFormat = field(default=PLAIN, metadata={"added_later": True})
    bos: str | None = field(default=None, metadata={"added_later": True})
    """Token before every document."""
    eos: str | None = field(default=END_OF_TEXT, metadata={"added_later": True})
    """Token after every document; None writes none."""
    split: Literal["train", "heldout"] = field(default="train", metadata={"added_later": True})
    """Held-out tokens are for evaluations that read the mask (`evals.tasks.trajectories`); no mixture uses them."""
    engine: EngineChoice = field(default="auto", metadata={"identity": False})

    def __post_init__(self) -> None:
        if self.engine not in ENGINE_CHOICES:
            raise ValueError(f"token_cache.engine is {self.engine!r}; allowed: {', '.join(ENGINE_CHOICES)}")
        if self.split not in SPLITS:
            raise ValueError(f"token_cache.split is {self.split!r}; allowed: {', '.join(SPLITS)}")
        framed = self.bos is not None or self.eos is not None
        if isinstance(self.format, Preferences) and framed:
            raise ValueError(
                f"token_cache.bos is {self.bos!r}, token_cache.eos {self.eos!r}; pairs are rows that the template "
                "frames, so both must be None"
            )
        for name, token in (("bos", self.bos), ("eos", self.eos)):
            if token == "":
                raise ValueError(f"token_cache.{name} is ''; name a token of the tokenizer, or None for none")


def tokenize_corpus(out: Writer, config: TokenCacheConfig, corpus: Artifact, tokenizer: Artifact) -> None:
    """Write `tokens/<shard>.{tokens,ends,ids}`, `.weights` if the format has a mask, and `dropped/` if it drops.

    Raises: ValueError if the tokenizer lacks a token that the config names, or if no document is left. A held-out split
    without documents gives an empty cache.
    """
    path, parts = tokenizer.files(TOKENIZER_FILE)[0], parts_of_tasks(out, corpus, config.split)
    policy = TokenPolicy.of(path, tokenizer.name, config.bos, config.eos)
    if isinstance(config.format, Chat | Preferences):
        check_chat(load_tokenizer(path), config.format, tokenizer.name)
    footers = (footer(corpus, entry) for entry in parts_of_split(corpus, config.split))
    plan = list(shard_plan(zip(parts, footers, strict=True)))
    out.warm(len(plan), load_engines, path, config.engine)
    workers = None if len(plan) > 1 else 1  # A start takes longer than the comparison.
    out.bring(parts[0])
    verdict = _engine(config, path, parts[0], partial(out.map_calls, workers=workers))
    common = (path, policy, config.format, None if verdict is None else verdict.engine)
    tasks = {f"shard-{i:05d}": (f"shard-{i:05d}", *rows, *common) for i, rows in enumerate(plan)}
    done = out.map_shards(tokenize_shard, tasks, in_runs=True, lazy=True)
    shards = [ShardInfo(name, int(str(s["tokens"])), int(str(s["documents"]))) for name, s in done.items()]
    weights = weights_dtype(config.format)
    out.facts["tokens"] = tokens_extra(
        config.component,
        token_dtype(policy.vocab_size),
        policy.vocab_size,
        tokenizer.data_version,
        bos=policy.bos,
        eos=policy.eos,
        shards=shards,
        weights=weights,
        row_tokens=2 * config.format.side_tokens if isinstance(config.format, Preferences) else None,
    )
    out.extra["engine"] = {"engine": "none"} if verdict is None else asdict(verdict)
    out.record(**_statistics(done, weights is not None))
    nothing_held_out = config.split == HELDOUT and not out.statistics["rows_in"]  # A small source may have none.
    if not out.facts["tokens"]["num_documents"] and not nothing_held_out:
        raise ValueError(f"{out.spec.name}: no document has tokens; dropped: {out.statistics.get('drops')}")


TOKEN_CACHE = Stage(
    "datakit.token_cache",
    "5",
    tokenize_corpus,
    description="Token shards of the train split, bound to the exact tokenizer, with document ends and ids.",
    checks=("file_set", "tokens_match_documents"),
)
"""4: special text stays text in JSON that a template writes, in names of arguments, and if it is one character; DNA has
an alphabet; texts of more than 1 Mi characters are cut where no token crosses. 3: chat templates may say how JSON is
written and get messages as a list; 2 refused what they rendered so.
"""


def _statistics(done: Mapping[str, Mapping[str, Any]], has_weights: bool) -> dict[str, Any]:
    drops: Counter[str] = Counter()
    for statistics in done.values():
        drops.update(statistics.get("drops", {}))
    rows = sum(int(s["documents"]) for s in done.values())
    tokens = sum(int(s["tokens"]) for s in done.values())
    facts: dict[str, Any] = {
        "rows_in": rows + drops.total(),
        "rows_out": rows,
        "bytes_in": sum(int(s["bytes"]) for s in done.values()),
        "tokens_out": tokens,
    }
    if drops:
        facts["drops"] = dict(sorted(drops.items()))
    if has_weights:
        facts["loss_weight"] = round(sum(float(s["weight"]) for s in done.values()), 3)
    return facts


def _engine(config: TokenCacheConfig, tokenizer: Path, part: Path, map_calls: MapCalls) -> EngineVerdict | None:
    """Choose the engine for this corpus; None if the format encodes nothing."""
    if isinstance(config.format, Prebuilt):
        return None
    return choose_engine(tokenizer, config.engine, [text[:SAMPLE_CHARS] for text in sampled_texts(part)], map_calls)


def sampled_texts(part: Path) -> list[str]:
    """Return the first documents of a part. Ids are hashes of contents, so any run of them is a random sample."""
    return list(islice(chain.from_iterable(iterate_texts(part)), SAMPLED_DOCUMENTS))


def shard_plan(parts: Iterable[tuple[Path, pq.FileMetaData]]) -> Iterator[tuple[Path, int, int]]:
    """Return (part, first row, end row) of every shard: a function of the parts' footers; no text is read."""
    sizes = [(part, *text_size(metadata)) for part, metadata in parts]
    target = shard_bytes(sum(size for _, _, size in sizes))
    for part, rows, size in sizes:
        for start, stop in part_bounds(rows, size, target):
            if start < stop:
                yield part, start, stop


def shard_bytes(text_bytes: int) -> int:
    """Return the text of one shard: more than `SHARD_BYTES` if that would make more than `MANY_SHARDS` of them.

    A shard is at most a part. Shards of 4 MiB would be 60 million files of 25.6 T tokens, most of what a bucket charges for.

    >>> shard_bytes(1 << 30) >> 20, shard_bytes(1 << 38) >> 20
    (4, 64)
    """
    return max(SHARD_BYTES, -(-text_bytes // MANY_SHARDS))


def tokenize_shard(
    folder: Path,
    name: str,
    part: Path,
    start: int,
    stop: int,
    tokenizer: Path,
    policy: TokenPolicy,
    format: TokenFormat,
    engine: EngineName | None,
) -> dict[str, Any]:
    """Encode one run of documents."""
    documents = _rows(part, ("id", *columns(format)), start, stop)
    how = None if engine is None else encoder(tokenizer, engine)
    if isinstance(format, Preferences) and how is not None:
        encoded = encode_pairs(format, documents["metadata"].to_list(), how, policy, tokenizer)
    else:
        encoded = encode_documents(format, documents, how, policy, tokenizer)
    named = list(zip(documents["id"], encoded, strict=True))
    kept = [(document_id, one) for document_id, one in named if isinstance(one, Encoded)]
    gone = [(document_id, one.reason) for document_id, one in named if isinstance(one, Dropped)]
    ids, tokens, ends = [document_id for document_id, _ in kept], *_flat([one.tokens for _, one in kept], np.uint32)
    weights = None
    if (kind := weights_dtype(format)) is not None:
        weights, _ = _flat([one.weights for _, one in kept if one.weights is not None], np.dtype(kind))
    check_policy(name, ids, tokens, ends, policy, within_text=isinstance(format, PlainText))
    info = write_flat_shard(folder, name, ids, tokens, ends, token_dtype(policy.vocab_size), weights)
    statistics: dict[str, Any] = {
        "tokens": info.num_tokens,
        "documents": info.num_documents,
        "bytes": int(documents["text"].str.len_bytes().cast(pl.Int64).sum()),
    }
    if weights is not None:
        statistics["weight"] = float(weights.sum(dtype=np.float64))
    if gone:
        dropped = pl.DataFrame(gone, schema=["id", "reason"], orient="row")
        write_parquet(folder / DROPPED / f"{name}.parquet", dropped.to_arrow().cast(CORPUS_DROPPED_SCHEMA))
        statistics["drops"] = dict(sorted(Counter(reason for _, reason in gone).items()))
    return statistics


def _rows(part: Path, names: tuple[str, ...], start: int, stop: int) -> pl.DataFrame:
    """Return rows `[start, stop)` of a part. Shards are smaller than row groups, so the last group is kept for the next
    shard, which goes to the same worker.
    """
    with pq.ParquetFile(part) as file:
        ranges = list(row_ranges(file, start, stop))
    modified_ns = part.stat().st_mtime_ns
    return pl.concat([_row_group(part, modified_ns, group, names)[low:high] for group, low, high in ranges])


@lru_cache(maxsize=1)
def _row_group(part: Path, modified_ns: int, group: int, names: tuple[str, ...]) -> pl.DataFrame:
    """Read one row group of a part. The modification time is in the cache key: a later file of the same name is
    another.
    """
    with pq.ParquetFile(part) as file:
        return as_frame(file.read_row_group(group, columns=list(names), use_threads=False))


def _flat(arrays: list[np.ndarray], dtype: np.dtype | type) -> tuple[np.ndarray, np.ndarray]:
    """Return all arrays as one, and where each ends."""
    ends = np.cumsum([array.size for array in arrays], dtype=np.int64)
    return np.concatenate([np.zeros(0, dtype), *arrays]), ends


def check_policy(
    name: str, ids: list[str], tokens: np.ndarray, ends: np.ndarray, policy: TokenPolicy, *, within_text: bool
) -> None:
    """Check that every document begins and ends as the policy says; with `within_text` no special token is anywhere
    else.

    Raises: ValueError naming the first document that does not: an encoder that breaks the policy must not write a
    cache.
    """
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)[: ends.size]
    framed = np.zeros(tokens.size, bool)
    for token, places in ((policy.bos, starts), (policy.eos, ends - 1)):
        if token is not None:
            there = ends > starts
            wrong = np.flatnonzero(~there) if not there.all() else np.flatnonzero(tokens[places] != token)
            if wrong.size:
                raise ValueError(f"shard {name}: document {ids[wrong[0]]} is not framed by token {token}")
            framed[places] = True
    inside = np.flatnonzero(np.isin(tokens, policy.specials) & ~framed) if within_text else np.zeros(0, np.int64)
    if inside.size:
        document_id = ids[int(np.searchsorted(ends, inside[0], side="right"))]
        raise ValueError(f"shard {name}: special token {tokens[inside[0]]} is inside the text of document {document_id}")
