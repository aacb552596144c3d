"""The stage `datakit.token_cache`: the train split as token shards, every document ended by the end-of-text token.

The policy is explicit: no token at a document's beginning, one at its end. Shards are runs of documents of about 4 MiB of
text, in id order, so they are the same for any number of workers and survive a kill one by one.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from datakit.corpus import TRAIN
from datakit.documents import as_frame, document_paths, iterate_part, text_bytes
from datakit.tokenizer import END_OF_TEXT, TOKENIZER_FILE, load_tokenizer, pieces
from lineage.stage import Stage
from lineage.store import Artifact, Writer
from lineage.token_cache import ShardInfo, token_dtype, tokens_extra, write_token_shard

SHARD_BYTES = 4 << 20
ENCODE_BATCH = 64


@dataclass(frozen=True)
class TokenCacheConfig:
    """The component's name in mixtures."""

    component: str


def tokenize_corpus(out: Writer, config: TokenCacheConfig, corpus: Artifact, tokenizer: Artifact) -> None:
    """Write `tokens/<shard>.{tokens,ends,ids}` and say in `extra["tokens"]` what they hold."""
    path = tokenizer.files(TOKENIZER_FILE)[0]
    loaded = load_tokenizer(path)
    vocab_size, eos = loaded.get_vocab_size(), loaded.token_to_id(END_OF_TEXT)
    if eos is None:
        raise ValueError(f"{tokenizer.name} has no token {END_OF_TEXT!r} to end documents with; train one that has")
    dtype = token_dtype(vocab_size)
    tasks = {
        f"shard-{i:05d}": (f"shard-{i:05d}", part, start, stop, path, eos, dtype)
        for i, (part, start, stop) in enumerate(shard_plan(document_paths(corpus, TRAIN)))
    }
    done = out.map_shards(tokenize_shard, tasks)
    shards = [ShardInfo(name, int(str(s["tokens"])), int(str(s["documents"]))) for name, s in done.items()]
    out.extra["tokens"] = tokens_extra(
        config.component, dtype, vocab_size, tokenizer.data_version, bos=None, eos=eos, shards=shards
    )
    rows = sum(shard.num_documents for shard in shards)
    out.record(
        rows_in=rows,
        rows_out=rows,
        bytes_in=sum(int(str(s["bytes"])) for s in done.values()),
        tokens_out=sum(shard.num_tokens for shard in shards),
    )


TOKEN_CACHE = Stage("datakit.token_cache", "1", tokenize_corpus)


def shard_plan(parts: list[Path]) -> Iterator[tuple[Path, int, int]]:
    """(part, first row, end row) of every shard, a function of the documents alone."""
    for part in parts:
        sizes = np.concatenate([np.zeros(0, np.int64), *map(text_bytes, iterate_part(part, ["text"]))])
        start, size = 0, 0
        for row, document_bytes in enumerate(sizes):
            size += int(document_bytes)
            if size >= SHARD_BYTES:
                yield part, start, row + 1
                start, size = row + 1, 0
        if start < len(sizes):
            yield part, start, len(sizes)


def tokenize_shard(
    folder: Path, name: str, part: Path, start: int, stop: int, tokenizer: Path, eos: int, dtype: str
) -> dict[str, int]:
    """Encode one run of documents."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # processes are the parallelism here
    documents = pl.concat(map(as_frame, iterate_part(part, ["id", "text"], start, stop)))
    info = write_token_shard(folder, name, encoded(documents, tokenizer, eos), dtype)
    return {
        "tokens": info.num_tokens,
        "documents": info.num_documents,
        "bytes": int(documents["text"].str.len_bytes().sum()),
    }


def encoded(documents: pl.DataFrame, tokenizer: Path, eos: int) -> Iterator[tuple[str, np.ndarray]]:
    """(id, tokens with the end token) of every document."""
    loaded = load_tokenizer(tokenizer)
    for batch in documents.iter_slices(ENCODE_BATCH):
        cut = [pieces(text) for text in batch["text"]]
        flat = iter(loaded.encode_batch_fast([piece for group in cut for piece in group], add_special_tokens=False))
        for document_id, group in zip(batch["id"], cut, strict=True):
            ids = [np.asarray(next(flat).ids, dtype=np.int64) for _ in group]
            yield document_id, np.concatenate([*ids, np.array([eos], np.int64)])
