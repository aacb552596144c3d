"""Deduplication beside its peers: CPU seconds, memory, and what each removes, against brute-force truth.

    PYTHONPATH=. .venv/bin/python benchmarks/real_corpus.py CORPUS --mb 160
    PYTHONPATH=. .venv/bin/python benchmarks/dedup.py CORPUS --datatrove-python DT/bin/python --dupekit-python DK/bin/python

Peers live in environments of their own (`pip install datatrove[io,processing]==0.10.1 spacy "xxhash<4"`; `pip install
marin-dupekit==0.1.1 pyarrow`) and are left out, saying so, where none is given. Every run is a separate process; rounds take
turns, so that a slow minute of the machine meets everybody. All tools read the same documents: exact copies are taken out
before, because exact and fuzzy deduplication are measured apart. datatrove runs on a subset (`--datatrove-mb`), and ours on
the same one beside it. On 20 MB a third of our time is the start of Python and the loading of compiled loops, which a corpus
has once: 34 times there, 58 on 67 MB (idle, 2026-11-27).

Truth: all pairs of exact word-5-gram Jaccard >= .8 among documents that share one of 42 bands of 3 rows (a pair of .8 is missed
with probability 1e-13). Recall: pairs of which not both stay; the second figure counts the pairs of exact copies too, as the
corpus has them. Precision: removed documents that repeat, by that truth, one that stays; the others are false. Marin's
definition is held to the same truth: what it removes beyond it repeats nothing by words.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
from dedup_ours import documents_node
from rich.console import Console
from rich.table import Table

from datakit.dedup.minhash import PRESETS, MinHashConfig, sign_texts
from datakit.documents.parts import DOCUMENTS, document_paths, write_sorted_parts
from datakit.text.shingles import jaccard, shingle_sets
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import spec_of
from lineage.shards.workers import KEPT_MEMORY
from lineage.storage.digests import text_digest
from lineage.writing.write import writing

HERE = Path(__file__).parent
SURE = MinHashConfig(42, 3)
MIN_JACCARD = 0.8
PART_BYTES = 64 << 20
OURS = "ours "
COLUMNS = ("CPU s", "spread", "MB/s", "x ours", "signing s", "x", "MiB", "removed", "false", "recall", "all", "precision")


@dataclass
class Runs:
    """What the rounds of one tool gave."""

    signatures: list[float] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)


def unique_documents(corpus: Path, megabytes: float | None) -> pl.DataFrame:
    """Documents of a corpus, exact copies taken out; whole families (a base and its copies) up to a size."""
    table = pl.read_parquet(corpus / "documents" / "*.parquet").join(pl.read_parquet(corpus / "truth.parquet"), on="id")
    if megabytes is not None:
        families = table.group_by("base").agg(size=pl.col("text").str.len_bytes().sum())
        families = families.sort(pl.col("base").map_elements(text_digest, pl.String))
        table = table.join(families.filter(pl.col("size").cum_sum() <= megabytes * 1e6), on="base", how="semi")
    ids = pl.Series("id", [text_digest(text) for text in table["text"]])
    documents = pl.DataFrame([ids, table["text"]]).group_by("id").agg(pl.first("text"), copies=pl.len()).sort("id")
    return documents.with_columns(source=pl.lit("benchmark"), metadata=pl.lit('{"source_id": ""}'))


def prepare(root: Path, documents: pl.DataFrame) -> Artifact:
    """The documents as an artifact that every run reads."""

    store = Store(str(root))
    with writing(store, spec_of(store, documents_node("documents"))) as out:
        write_sorted_parts(out.folder, DOCUMENTS, documents, PART_BYTES)
        out.record(rows_in=documents.height, rows_out=documents.height)
    return out.artifact


def true_pairs(documents: pl.DataFrame) -> set[tuple[str, str]]:
    """Every pair of exact word-5-gram Jaccard >= .8, by number of the document."""
    texts, ids = documents["text"].to_list(), documents["id"].to_list()
    bands, sizes = sign_texts(texts, SURE)
    sets = [shingle_sets([text], SURE.ngram_words)[0] for text in texts]
    flat, owner = bands[sizes > 0].ravel(), np.repeat(np.flatnonzero(sizes > 0), SURE.bands)
    order = np.argsort(flat, kind="stable")
    groups = np.split(owner[order], np.flatnonzero(np.diff(flat[order])) + 1)
    seen: set[tuple[int, int]] = set()
    pairs = set()
    for group in groups:
        members = sorted(group.tolist())
        for i, a in enumerate(members):
            for b in members[i + 1 :]:
                smaller, larger = sorted((sizes[a], sizes[b]))
                if (a, b) in seen or smaller < MIN_JACCARD * larger:
                    continue
                seen.add((a, b))
                if jaccard(sets[a], sets[b]) >= MIN_JACCARD:
                    pairs.add((ids[a], ids[b]))
    return pairs


def run(command: list[str], store: Path, ids: set[str], runs: Runs) -> None:
    """One run of one tool in a separate process, ours on a fresh copy of the store."""
    with tempfile.TemporaryDirectory() as scratch:
        place = shutil.copytree(store, Path(scratch) / "store")
        filled = [part.format(store=place, documents=_documents(place)) for part in command]
        printed = subprocess.run(filled, check=True, capture_output=True, text=True, cwd=HERE.parent, env=_environment())
    result = json.loads(printed.stdout.splitlines()[-1])
    runs.signatures.append(result["seconds"].get("signatures", float("nan")))
    runs.totals.append(sum(result["seconds"].values()))
    runs.peaks.append(result["peak_mib"])
    runs.removed = ids - set(result["kept"]) if "kept" in result else set(result["removed"])


def _documents(root: Path) -> Path:
    return document_paths(next(Store(str(root)).artifacts("benchmark", "documents")))[0].parent


def _environment() -> dict[str, str]:
    """One thread everywhere, so that CPU seconds are those of one core; malloc of the C library with one setting everywhere."""
    names = ("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_NUM_THREADS")
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(Path.home()),
        "PYTHONPATH": str(HERE.parent),
        **KEPT_MEMORY,
        **dict.fromkeys(names, "1"),
    }


def compare(console: Console, title: str, documents: pl.DataFrame, tools: dict[str, list[str]], rounds: int) -> None:
    """Run the tools in turns and print speed and outcome."""
    size = int(documents["text"].str.len_bytes().sum()) / 1e6
    pairs = true_pairs(documents)
    console.print(f"{title}: {documents.height:,} documents, {size:.1f} MB of text, {len(pairs):,} true pairs", style="bold")
    runs_of_tool = {name: Runs() for name in tools}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        prepare(store, documents)
        ids = set(documents["id"])
        for _ in range(rounds):
            for name, command in tools.items():
                run(command, store, ids, runs_of_tool[name])
        reading = _reading(store, rounds, ids)
    copies = dict(documents.select("id", "copies").iter_rows())
    same = sum(n * (n - 1) // 2 for n in copies.values())

    def weighed(some: set[tuple[str, str]]) -> int:
        """Pairs with every exact copy of either document."""
        return sum(copies[a] * copies[b] for a, b in some)

    base = min(statistics.median(r.totals) for name, r in runs_of_tool.items() if name.startswith(f"{OURS}14x8"))
    signed = min(statistics.median(r.signatures) for name, r in runs_of_tool.items() if name.startswith(f"{OURS}14x8"))
    table = Table("tool", *COLUMNS)
    for name, runs in runs_of_tool.items():
        total, own = statistics.median(runs.totals), statistics.median(runs.signatures)
        stays = ids - runs.removed
        hit = {pair for pair in pairs if runs.removed & set(pair)}
        recall, with_copies = len(hit) / max(1, len(pairs)), (weighed(hit) + same) / max(1, weighed(pairs) + same)
        repeats = {x for a, b in pairs for x, y in ((a, b), (b, a)) if y in stays}
        false = len(runs.removed - repeats)
        spread = f"{min(runs.totals):.2f}-{max(runs.totals):.2f}"
        numbers = [f"{total:.2f}", spread, f"{size / total:.1f}", f"{total / base:.1f}", f"{own:.2f}", f"{own / signed:.1f}"]
        outcome = [
            f"{len(runs.removed):,}",
            f"{false:,}",
            f"{recall:.4f}",
            f"{with_copies:.4f}",
            f"{1 - false / max(1, len(runs.removed)):.4f}",
        ]
        table.add_row(name, *numbers, f"{max(runs.peaks):.0f}", *outcome)
    console.print(table)
    console.print(reading)


def _reading(store: Path, rounds: int, ids: set[str]) -> str:
    shares = []
    for _ in range(rounds):
        command = [sys.executable, str(HERE / "dedup_ours.py"), str(store), "exact"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE.parent, env=_environment())
        seconds = json.loads(printed.stdout.splitlines()[-1])["seconds"]
        shares.append((seconds["exact"] / seconds["read"], seconds))
    shares.sort(key=lambda pair: pair[0])
    share, seconds = shares[len(shares) // 2]
    detail = f"{seconds['exact']:.3f} s of {seconds['read']:.3f} s; {shares[0][0]:.1%} to {shares[-1][0]:.1%}"
    return f"exact deduplication of {len(ids):,} documents takes {share:.1%} of reading their Parquet ({detail})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure deduplication beside its peers.")
    parser.add_argument("corpus", type=Path, help="a folder that real_corpus.py wrote")
    parser.add_argument("--datatrove-python", type=Path)
    parser.add_argument("--dupekit-python", type=Path)
    parser.add_argument("--datatrove-mb", type=float, default=80.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    console = Console(width=160)
    ours = [sys.executable, str(HERE / "dedup_ours.py"), "{store}"]
    tools = {f"{OURS}{name}": [*ours, name] for name in PRESETS} | {"Marin's definition, ours": [*ours, "marin"]}
    if arguments.dupekit_python:
        peer = [str(arguments.dupekit_python), str(HERE / "dedup_dupekit.py"), "{documents}"]
        tools |= {"marin-dupekit 0.1.1 14x8": [*peer, "14", "8"], "marin-dupekit 0.1.1 26x11": [*peer, "26", "11"]}
    else:
        console.print("marin-dupekit is left out: no --dupekit-python")
    compare(console, "whole corpus", unique_documents(arguments.corpus, None), tools, arguments.rounds)
    if arguments.datatrove_python:
        peer = [str(arguments.datatrove_python), str(HERE / "dedup_datatrove.py"), "{documents}", "14", "8"]
        beside = {f"{OURS}14x8": tools[f"{OURS}14x8"], "datatrove 0.10.1 14x8": peer}
        subset = unique_documents(arguments.corpus, arguments.datatrove_mb)
        compare(console, "subset for datatrove", subset, beside, arguments.rounds)
    else:
        console.print("datatrove is left out: no --datatrove-python")


if __name__ == "__main__":
    main()
