"""One source of any size through every stage of the data engine: what `memory.py` and `scaling.py` build.

The text is this Python's own library and packages, cut into paragraphs and put together again, so that two gigabytes of
different documents come from what is installed. Of every hundred documents 8 are exact copies of others and 14 copies with a
few words edited (as in docs/references.md#dedup-corpus); the rest share paragraphs by chance. The bytes depend on the
size, the seed and the installed packages alone. Written as JSONL.zst, or as Parquet, in files of about 32 MB of text.
"""

import json
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.index import CONTAMINATION_INDEX
from datakit.contamination.marks import CONTAMINATION
from datakit.corpus.build import CORPUS, CorpusConfig
from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig
from datakit.dedup.minhash import MINHASH, MinHashConfig
from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.quality.verdicts import QUALITY, quality_config
from datakit.sources.raw import RAW
from datakit.sources.remote import folder_listing, listing_digest
from datakit.sources.source import FolderFiles, Records, Source, Unverified
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.tokenizer import TOKENIZER, TokenizerConfig
from evals.items.suites import SUITE
from lineage.build.nodes import Node
from recipes.sources import source_config
from recipes.suites import suite_config, suite_raw_source

POOL_BYTES = 48_000_000
PIECE_CHARS = 500
MEAN_PIECES = 8
FILE_BYTES = 32_000_000
KEPT_FOR_COPIES = 512
EXACT, EDITED = 0.08, 0.14
SUITE_NAME = "vendored"
type Container = Literal["jsonl", "parquet"]
SUFFIXES: Mapping[Container, str] = {"jsonl": ".jsonl.zst", "parquet": ".parquet"}


def paragraphs() -> list[str]:
    """Pieces of 500 to 1,500 characters of installed code and documentation, each once."""
    roots = sysconfig.get_paths()
    files = {str(path) for kind in ("stdlib", "purelib") for path in Path(roots[kind]).rglob("*.py")}
    pieces: dict[str, None] = {}
    total = 0
    for name in sorted(files, key=lambda name: name[::-1]):  # by their own names, so that no package comes as a block
        text, held = Path(name).read_bytes().decode("utf-8", "replace"), ""
        for block in text.split("\n\n"):
            held = f"{held}\n\n{block}" if held else block
            if len(held) >= PIECE_CHARS:
                pieces[held[: 3 * PIECE_CHARS]] = None
                total += len(held[: 3 * PIECE_CHARS])
                held = ""
        if total >= POOL_BYTES:
            break
    return list(pieces)


def texts(megabytes: float, seed: int = 0) -> Iterator[str]:
    """Documents up to the size: new ones, exact copies and edited copies of the latest few hundred."""
    generator, pool, recent, total = np.random.default_rng(seed), paragraphs(), [], 0
    while total < megabytes * 1e6:
        draw = generator.random()
        if recent and draw < EXACT + EDITED:
            text = recent[generator.integers(len(recent))]
            text = text if draw < EXACT else _edited(text, generator)
        else:
            chosen = generator.integers(0, len(pool), 1 + generator.poisson(MEAN_PIECES - 1))
            text = "\n\n".join(pool[i] for i in chosen)
            recent = [*recent[-KEPT_FOR_COPIES:], text]
        total += len(text.encode())
        yield text


def _edited(text: str, generator: np.random.Generator) -> str:
    words = text.split(" ")
    for place in generator.integers(0, len(words), 1 + len(words) // 100):
        words[place] = f"edit{generator.integers(1 << 30)}"
    return " ".join(words)


def write_source(folder: Path, megabytes: float, container: Container = "jsonl") -> int:
    """Write the raw files of a source; how many bytes of text. What is there already is kept."""
    note = folder / "text_bytes"
    if note.exists():
        return int(note.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    total, index, held, size = 0, 0, [], 0
    for text in texts(megabytes):
        held.append(text)
        size += len(text.encode())
        if size >= FILE_BYTES:
            _write_file(folder, index, held, container)
            total, index, held, size = total + size, index + 1, [], 0
    if held:
        _write_file(folder, index, held, container)
    note.write_text(str(total + size))
    return total + size


def _write_file(folder: Path, index: int, held: list[str], container: Container) -> None:
    names = [f"{index}-{i}" for i in range(len(held))]
    if container == "parquet":
        pq.write_table(
            pa.table({"id": names, "text": held}), folder / f"{index:05d}{SUFFIXES[container]}", row_group_size=1_000
        )
        return
    with pa.CompressedOutputStream(str(folder / f"{index:05d}{SUFFIXES[container]}"), "zstd") as stream:
        for name, text in zip(names, held, strict=True):
            stream.write(json.dumps({"id": name, "text": text}).encode() + b"\n")


def line(folder: Path, part_bytes: int, container: Container = "jsonl") -> dict[str, Node]:
    """The nodes of every stage by name, from the files of `write_source` to token shards, in the order of their making."""
    unpinned = FolderFiles(folder.as_uri(), (f"*{SUFFIXES[container]}",), Unverified("", "not read yet"))
    pinned = replace(unpinned, listing=listing_digest(folder_listing(unpinned, trainable=True, what="the benchmark's source")))
    source = Source(
        name="text",
        loader=pinned,
        format=Records(container),
        domain="web",
        licence="PSF-2.0",
        terms="as the packages say",
        mixture_weight=0.0,
    )
    raw = Node(("raw",), "text", RAW, source)
    config = NormalizeConfig("text", source.format, source.domain, target_part_bytes=part_bytes)
    normalized = Node(("normalized",), "text", NORMALIZE, config, {"raw": raw})
    of = {"normalized": normalized}
    items = Node(("items",), None, RAW, replace(source_config(suite_raw_source(SUITE_NAME)), mixture_weight=0.0))
    suites = (Node(("suite",), None, SUITE, suite_config(SUITE_NAME, SUITE_NAME), {"raw": items}),)
    index = Node(("index",), None, CONTAMINATION_INDEX, ContaminationConfig(), {"suites": suites})
    minhash = Node(("minhash",), "text", MINHASH, MinHashConfig(), of)
    quality = Node(("quality",), "text", QUALITY, quality_config(source.domain), of)
    marked = of | {"suites": suites, "index": index}
    contamination = Node(("contamination",), "text", CONTAMINATION, ContaminationConfig(), marked)
    pairs = {"normalized": (normalized,), "minhash": (minhash,)}
    duplicates = Node(("duplicates",), None, DUPLICATES, DuplicatesConfig(), pairs)
    joined = of | {"quality": quality, "contamination": contamination, "duplicates": duplicates}
    corpus = Node(("corpus",), "text", CORPUS, CorpusConfig(target_part_bytes=part_bytes), joined)
    tokenizer = Node(("tokenizer",), None, TOKENIZER, TokenizerConfig(8_192, sample_bytes=4_000_000), {"corpora": (corpus,)})
    tokens = Node(("tokens",), "text", TOKEN_CACHE, TokenCacheConfig("text"), {"corpus": corpus, "tokenizer": tokenizer})
    nodes = (raw, normalized, minhash, quality, items, *suites, index, contamination, duplicates, corpus, tokenizer, tokens)
    return {node.key[0]: node for node in nodes}


MEASURED = ("raw", "normalized", "minhash", "quality", "contamination", "duplicates", "corpus", "tokenizer", "tokens")
"""What is reported; the benchmark's items and their index do not grow with the source."""
