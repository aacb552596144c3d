"""datatrove's half of benchmarks/pipeline.py; runs in a separate environment, where nothing of ours is.

    PEER/bin/python benchmarks/pipeline_peer.py DOCUMENTS ITEMS.parquet TOKENIZER.json OUT.json

Its blocks as shipped and with their defaults, one after the other in this process, each stage reading what the one before
wrote. Two things are made easier for it: filters judge and drop nothing (most of the corpus is code, which prose rules would
empty), and tokenized documents are not shuffled. Its C4 list of bad words, a download, is ours.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
from datatrove.data import Document
from datatrove.pipeline.decont import NGramsDecontFilter
from datatrove.pipeline.decont.n_grams import NGramsDecontConfig, NGramsDecontIndexer
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.exact_dedup import ExactDedupConfig, ExactDedupFilter, ExactDedupSignature, ExactFindDedups
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.filters import (
    C4BadWordsFilter,
    C4ParagraphFilter,
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    c4_filters,
)
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.pipeline.writers import ParquetWriter
from datatrove.utils.hashing import create_hash_func
from datatrove.utils.word_tokenizers import load_word_tokenizer

FILTERS = (
    GopherQualityFilter,
    GopherRepetitionFilter,
    C4QualityFilter,
    C4ParagraphFilter,
    C4BadWordsFilter,
    FineWebQualityFilter,
)
BAD_WORDS = Path(__file__).resolve().parent.parent / "data" / "word_lists" / "ldnoobw_en.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("documents", "items", "tokenizer", "out"):
        parser.add_argument(name)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        answer = run(options.documents, options.items, options.tokenizer, Path(folder))
    Path(options.out).write_text(json.dumps(answer))


def run(documents: str, items: str, tokenizer: str, scratch: Path) -> dict:
    load_word_tokenizer("en").word_tokenize("spaCy loads its language at the first text")
    seconds, kept = {}, {}

    def timed(name: str, stage: Callable[[], int | None]) -> None:
        started = time.process_time()
        count = stage()
        seconds[name] = time.process_time() - started
        if count is not None:
            kept[name] = count

    unique, distinct, clean = (str(scratch / name) for name in ("unique", "distinct", "clean"))
    timed("read, ids, exact duplicates", lambda: drop_exact(documents, unique, scratch))
    timed("fuzzy duplicates", lambda: drop_fuzzy(unique, distinct, scratch))
    timed("quality rules", lambda: judge(distinct))
    timed("decontamination index (once a suite)", lambda: index_items(items, scratch / "index"))
    decontaminate = NGramsDecontFilter(str(scratch / "index"))
    timed("decontamination, corpus written", lambda: written(decontaminate.run(read(distinct), 0, 1), clean))
    tokens = DocumentTokenizer(
        str(scratch / "tokens"), tokenizer, eos_token="<|endoftext|>", shuffle_documents=False, save_final_metadata=True
    )
    timed("tokens", lambda: tokens.run(read(clean), 0, 1))
    packages = ("datatrove", "spacy", "tokenizers", "pyarrow")
    return {
        "seconds": seconds,
        "documents": kept,
        "tokens": sum(path.stat().st_size for path in (scratch / "tokens").glob("*.ds")) // 2,
        "peak_mib": peak_mib(),
        "versions": {name: version(name) for name in packages},
    }


def peak_mib() -> float:
    """`ru_maxrss` would be what the process that started this one held: it outlives exec."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def read(folder: str) -> Iterable[Document]:
    return ParquetReader(folder).run(None, 0, 1)


def written(documents: Iterable[Document], folder: str) -> int:
    return sum(1 for _ in ParquetWriter(folder).run(documents, 0, 1))


def drop_exact(documents: str, out: str, scratch: Path) -> int:
    config = ExactDedupConfig(content_getter=lambda document: document.text)
    signatures, duplicates = str(scratch / "exact-signatures"), str(scratch / "exact")
    ExactDedupSignature(signatures, config, finder_workers=1).run(read(documents), 0, 1)
    ExactFindDedups(signatures, duplicates, config).run(None, 0, 1)
    return written(ExactDedupFilter(duplicates, config).run(read(documents), 0, 1), out)


def drop_fuzzy(documents: str, out: str, scratch: Path) -> int:
    config = MinhashConfig()
    signatures, buckets, removed = (str(scratch / f"minhash-{name}") for name in ("signatures", "buckets", "removed"))
    MinhashDedupSignature(signatures, config).run(read(documents), 0, 1)
    for bucket in range(config.num_buckets):
        MinhashDedupBuckets(signatures, buckets, config=config).run(None, bucket, config.num_buckets)
    MinhashDedupCluster(buckets, removed, config).run(None, 0, 1)
    return written(MinhashDedupFilter(removed).run(read(documents), 0, 1), out)


def judge(documents: str) -> None:
    """Every filter's verdict on every document. C4's cuts lines out of a document, so each has one of its own."""
    c4_filters.cached_asset_path_or_download = lambda *names, **where: BAD_WORDS
    filters = [kind() for kind in FILTERS]
    for document in read(documents):
        for rule in filters:
            rule.filter(Document(text=document.text, id=document.id))


def index_items(items: str, folder: Path) -> None:
    """What `NGramsDecontIndexer` writes of documents that it is given; its `run` asks for lighteval even then."""
    config = NGramsDecontConfig()
    indexer = SimpleNamespace(
        config=config, tokenizer=load_word_tokenizer("en"), hash_func=create_hash_func(config.hash_config)
    )
    folder.mkdir()
    hashes: dict[str, set[int]] = {}
    for item in pq.read_table(items, columns=["task", "question", "answer", "solution"]).to_pylist():
        query = f"Question: {item['question']}\nAnswer:"
        grams = NGramsDecontIndexer.compute_hashes(indexer, item["solution"] or item["answer"], query)  # ty: ignore
        hashes.setdefault(item["task"], set()).update(grams)
    for task, grams in hashes.items():
        np.array(list(grams), dtype=config.hash_config.np_descr).tofile(folder / f"{task}.index.hashes")


if __name__ == "__main__":
    main()
