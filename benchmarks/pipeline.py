"""The whole data pipeline against datatrove's: read, ids, exact and fuzzy duplicates, quality rules, decontamination, tokens.

    PYTHONPATH=. .venv/bin/python benchmarks/real_corpus.py FOLDER --mb 160
    PYTHONPATH=. .venv/bin/python benchmarks/pipeline.py FOLDER --mb 160 --rounds 1 --datatrove-python PEER/bin/python

PEER is a separate environment with `datatrove[processing,io]==0.10.1 spacy` (spaCy's blank English, nothing is downloaded at
run time). Ours are the lab's stages as they are, through a `Store` and in one process, every artifact written, checked for its
manifest and synced; datatrove's are its blocks as shipped (`pipeline_peer.py` says where they are spared work). Both run one
thread, in fresh processes, in turn, over the same documents; CPU seconds. Quality is the published rule sets on both sides.
Tokens are made twice on our side, with Hugging Face's engine (which is given a line that repeats in a shard once: same ids,
`datakit/tokens/line_cache.py`) and with the fast one, and each total has one of them. What is
done once a suite (the index of benchmark items) stands beside the totals. The data engine's loops are compiled before (once a
machine); loading them counts. The bars are for both over the whole corpus, a quarter of an hour a round. `--mb 20 --full` takes
five minutes: datatrove's speed over a subset then stands for its speed over all, which it is not quite (2026-11-23: .18 MB/s on
20 MB, .21 on 60, .20 on 160).
Bars: 14x datatrove with Hugging Face's engine, 55x with the fast one.
"""

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
from tokenizers import pre_tokenizers, trainers

from benchmarks.given_files import GIVEN_FILES
from benchmarks.process_use import cpu_seconds, peak_mib
from datakit.compile_ahead import compile_ahead
from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.index import CONTAMINATION_INDEX
from datakit.contamination.marks import CONTAMINATION
from datakit.corpus.build import CORPUS
from datakit.corpus.filters import CorpusConfig
from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig
from datakit.dedup.minhash import MINHASH, MinHashConfig
from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.quality.rules import QUALITY_RULES, quality_rules_config
from datakit.sources.source import Records
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.tokenizer import END_OF_TEXT, TOKENIZER_FILE, new_tokenizer
from evals.items.item import ITEMS_FILE
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build, build_all
from lineage.shards.execution import Execution
from lineage.shards.workers import KEPT_MEMORY
from recipes.data import suite
from recipes.suites import main_suite
from resources.lab import Lab

PEER = Path(__file__).with_name("pipeline_peer.py")
NOTES = Path(__file__).with_name("notes")
VOCABULARY, TRAINED_ON = 32_768, 12_000_000
INDEX, HF, FAST = "decontamination index (once a suite)", "tokens, Hugging Face's engine", "tokens, the fast engine"
STAGES = {
    "read, ids, exact duplicates": ("normalized",),
    "fuzzy duplicates": ("minhash", "duplicates"),
    "quality rules": ("quality_rules",),
    "decontamination, corpus written": ("contamination", "corpus"),
    INDEX: ("index",),
    HF: ("tokens_hf",),
    FAST: ("tokens_gigatoken",),
}
"""Row of the table -> our nodes."""
_THREADS = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS")
ONE_THREAD = dict.fromkeys(_THREADS, "1") | {"TOKENIZERS_PARALLELISM": "false"} | KEPT_MEMORY
"""One thread, and malloc of the C library with one setting, on all sides."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="a folder that real_corpus.py wrote")
    parser.add_argument("--mb", type=float, default=20.0, help="text that both sides read")
    parser.add_argument("--full", action="store_true", help="ours over the whole corpus too")
    parser.add_argument("--items", type=int, help="benchmark items that both sides index; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--datatrove-python", type=Path, required=True)
    parser.add_argument("--root", default=".marin", help="store with the default suite, which is made where it is missing")
    parser.add_argument("--note", action="store_true", help="write the tables below benchmarks/notes")
    parser.add_argument("--child", type=Path, help="be our side of a round: run over the corpus and write JSON here")
    options = parser.parse_args()
    if options.child:
        options.child.write_text(json.dumps(ours(options.corpus)))
        return
    lines = compare(options)
    if options.note:
        path = NOTES / f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}-pipeline.md"
        path.write_text("\n".join(["# The whole pipeline against datatrove's", "", *lines, ""]))
        print(path)


def compare(options: argparse.Namespace) -> list[str]:
    """Run every round, print what comes out, and return it."""
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    with tempfile.TemporaryDirectory(dir=options.corpus) as folder:
        subset = prepared(options, Path(folder))
        size = sum_bytes(subset)
        load = os.getloadavg()[0]
        say(f"{size / 1e6:.1f} MB of text, {options.rounds} rounds in turn, CPU seconds, one thread each; load {load:.1f}")
        rounds = []
        for number in range(options.rounds):
            mine, theirs = our_round(subset, options), their_round(subset, options.datatrove_python)
            rounds.append((mine, theirs))
            with_hf, fast = (total(theirs, HF) / total(mine, engine) for engine in (HF, FAST))
            say(f"- round {number + 1}: {with_hf:.1f}x with Hugging Face's engine, {fast:.1f}x with the fast one")
        for line in table(rounds, size):
            say(line)
        if options.full:
            whole = Path(folder) / "whole"
            linked(options.corpus / "documents", whole / "documents")
            shutil.copytree(subset / "given", whole / "given")
            for line in full_table(our_round(whole, options), sum_bytes(whole), rounds, size):
                say(line)
    return lines


def prepared(options: argparse.Namespace, folder: Path) -> Path:
    """The subset, the benchmark items and a tokenizer that both sides are given."""
    compile_ahead()
    subset = folder / "subset"
    (subset / "documents").mkdir(parents=True)
    (subset / "given").mkdir()
    parts = sorted((options.corpus / "documents").glob("*.parquet"))
    every = pl.concat([pl.read_parquet(path, columns=["id", "text"]) for path in parts]).sort("id")
    chosen = every.filter(pl.col("text").str.len_bytes().cum_sum() <= options.mb * 1e6)
    chosen.write_parquet(subset / "documents" / "part-00000.parquet", compression="zstd", row_group_size=2_048)
    store, node = Lab.at(options.root, execution=Execution(1)).store, suite(main_suite())
    made = build_all(store, [node])[0]
    items = pl.read_parquet(made.folder() / ITEMS_FILE)
    items.head(options.items or items.height).write_parquet(subset / "given" / ITEMS_FILE)
    cached = options.corpus / f"tokenizer-{VOCABULARY}.json"
    if not cached.exists():
        train_tokenizer(every["text"].to_list(), cached)
    shutil.copy(cached, subset / "given" / TOKENIZER_FILE)
    return subset


def train_tokenizer(texts: list[str], path: Path) -> None:
    tokenizer = new_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    sizes = pl.Series([len(text) for text in texts]).cum_sum()
    tokenizer.train_from_iterator(texts[: int((sizes < TRAINED_ON).sum())], trainer)
    tokenizer.save(str(path))


def linked(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for path in source.glob("*.parquet"):
        (target / path.name).hardlink_to(path)


def sum_bytes(corpus: Path) -> int:
    texts = pl.scan_parquet(sorted((corpus / "documents").glob("*.parquet")))
    return int(texts.select(pl.col("text").str.len_bytes().cast(pl.Int64).sum()).collect().item())


# --- our side --------------------------------------------------------------------------------------------------------------


def ours(corpus: Path) -> dict[str, Any]:
    """CPU seconds of every node over a store of its own."""
    seconds, documents, tokens = {}, {}, 0
    with tempfile.TemporaryDirectory(dir=corpus) as root:
        store = Store(root)
        for node in our_nodes(corpus):
            started = cpu_seconds()
            made = build(store, node).artifact
            seconds[node.key[0]] = cpu_seconds() - started
            if "rows_out" in made.manifest.statistics:
                documents[node.key[0]] = made.manifest.statistics["rows_out"]
            tokens = made.manifest.statistics.get("tokens_out", tokens)
    packages = ("polars", "pyarrow", "numpy", "tokenizers", "gigatoken", "rensa")
    return {
        "seconds": {row: sum(seconds[name] for name in names) for row, names in STAGES.items()},
        "nodes": seconds,
        "documents": documents,
        "tokens": tokens,
        "peak_mib": peak_mib(),
        "versions": {name: version(name) for name in packages},
    }


def our_nodes(corpus: Path) -> list[Node]:
    """The lab's stages over one source, in order; three nodes only bring what is given to an artifact."""
    raw = Node(("raw",), None, GIVEN_FILES, {"from": str(corpus / "documents"), "below": "files"})
    given = {"from": str(corpus / "given"), "below": ""}
    items = Node(("items",), None, GIVEN_FILES, given)
    tokenizer = Node(("tokenizer",), None, GIVEN_FILES, given)
    config = NormalizeConfig(source="benchmark", format=Records("parquet"), domain="prose")
    normalized = Node(("normalized",), None, NORMALIZE, config, {"raw": raw})
    one = {"normalized": normalized}
    minhash = Node(("minhash",), None, MINHASH, MinHashConfig(), one)
    duplicates = Node(
        ("duplicates",), None, DUPLICATES, DuplicatesConfig(), {"normalized": (normalized,), "minhash": (minhash,)}
    )
    rules = Node(("quality_rules",), None, QUALITY_RULES, quality_rules_config("prose"), one)
    policy = ContaminationConfig()
    index = Node(("index",), None, CONTAMINATION_INDEX, policy, {"suites": (items,)})
    marks = Node(("contamination",), None, CONTAMINATION, policy, one | {"suites": (items,), "index": index})
    inputs = one | {"contamination": marks, "duplicates": duplicates}
    corpus_node = Node(("corpus",), None, CORPUS, CorpusConfig(drop_low_quality=False, heldout_frac=0.0), inputs)
    caches = [
        Node((f"tokens_{engine}",), None, TOKEN_CACHE, config, {"corpus": corpus_node, "tokenizer": tokenizer})
        for engine in ("hf", "gigatoken")
        for config in [TokenCacheConfig("benchmark", engine=engine)]
    ]
    return [raw, items, tokenizer, normalized, minhash, duplicates, rules, index, marks, corpus_node, *caches]


# --- rounds and tables -----------------------------------------------------------------------------------------------------


def our_round(corpus: Path, options: argparse.Namespace) -> dict[str, Any]:
    out = corpus / "ours.json"
    command = [sys.executable, __file__, str(corpus), "--child", str(out), "--datatrove-python", str(options.datatrove_python)]
    return child(command, out, {**os.environ, **ONE_THREAD})


def their_round(corpus: Path, python: Path) -> dict[str, Any]:
    out, given = corpus / "theirs.json", corpus / "given"
    command = [
        str(python),
        str(PEER),
        str(corpus / "documents"),
        str(given / ITEMS_FILE),
        str(given / TOKENIZER_FILE),
        str(out),
    ]
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(corpus), "HF_HUB_OFFLINE": "1", **ONE_THREAD}
    result = child(command, out, environment)
    tokens = result["seconds"].pop("tokens")
    return result | {"seconds": result["seconds"] | {HF: tokens, FAST: tokens}}


def child(command: list[str], out: Path, environment: dict[str, str]) -> dict[str, Any]:
    """The JSON that a process wrote. Raises: RuntimeError with the end of what it said."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:2])} ended with {done.returncode}: {done.stderr[-3_000:]}")
    return json.loads(out.read_text())


def total(result: dict[str, Any], engine: str) -> float:
    """CPU seconds of the pipeline with one engine, without what is done once a suite."""
    return sum(seconds for row, seconds in result["seconds"].items() if row not in ({INDEX, HF, FAST} - {engine}))


def table(rounds: list[tuple[dict[str, Any], dict[str, Any]]], size: int) -> list[str]:
    """Medians over the rounds, and the spread of each ratio."""
    lines = [
        "",
        "| stage | ours, s | MB/s | datatrove, s | MB/s | ratio | lowest to highest |",
        "|---|---|---|---|---|---|---|",
    ]

    def line(name: str, mine: list[float], theirs: list[float]) -> str:
        ratios = [b / a for a, b in zip(mine, theirs, strict=True)]
        a, b = statistics.median(mine), statistics.median(theirs)
        speeds = size / 1e6 / a, size / 1e6 / b
        middle = statistics.median(ratios)
        return (
            f"| {name} | {a:.2f} | {speeds[0]:.1f} | {b:.2f} | {speeds[1]:.3f} | {middle:.1f} | "
            f"{min(ratios):.1f} to {max(ratios):.1f} |"
        )

    for row in STAGES:
        lines.append(line(row, [a["seconds"][row] for a, _ in rounds], [b["seconds"][row] for _, b in rounds]))
    for engine, bar in ((HF, 14), (FAST, 55)):
        name = f"**all, {engine.removeprefix('tokens, ')}** (bar {bar})"
        lines.append(line(name, [total(a, engine) for a, _ in rounds], [total(b, engine) for _, b in rounds]))
    mine, theirs = rounds[-1]
    versions = ", ".join(f"{name} {number}" for side in (mine, theirs) for name, number in side["versions"].items())
    peaks = [max(both[side]["peak_mib"] for both in rounds) for side in (0, 1)]
    return [
        *lines,
        "",
        f"Peak memory: ours {peaks[0]:.0f} MiB, datatrove {peaks[1]:.0f} MiB.",
        f"Documents after each stage: ours {mine['documents']}; datatrove {theirs['documents']}.",
        f"Tokens: ours {mine['tokens']:,}, datatrove {theirs['tokens']:,} (it keeps other documents).",
        f"Versions (ours, then theirs): {versions}; Python {sys.version.split()[0]}.",
    ]


def full_table(mine: dict[str, Any], size: int, rounds: list[tuple[dict[str, Any], dict[str, Any]]], subset: int) -> list[str]:
    """Ours over the whole corpus, by the MB, against datatrove's speed on the subset."""
    lines = [
        "",
        f"Ours over the whole corpus, {size / 1e6:.1f} MB, once, against datatrove's speed on the subset:",
        "",
        "| stage | ours, s | MB/s | datatrove, MB/s | ratio |",
        "|---|---|---|---|---|",
    ]
    rows = [
        (row, mine["seconds"][row], statistics.median(b["seconds"][row] for _, b in rounds)) for row in STAGES if row != INDEX
    ]
    rows += [
        (
            f"**all, {engine.removeprefix('tokens, ')}**",
            total(mine, engine),
            statistics.median(total(b, engine) for _, b in rounds),
        )
        for engine in (HF, FAST)
    ]
    for name, a, b in rows:
        ours_speed, theirs_speed = size / a / 1e6, subset / b / 1e6
        lines.append(f"| {name} | {a:.2f} | {ours_speed:.1f} | {theirs_speed:.3f} | {ours_speed / theirs_speed:.1f} |")
    nodes = ", ".join(f"{name} {seconds / size * 1e9:.1f}" for name, seconds in mine["nodes"].items() if seconds > 0.05)
    return [*lines, "", f"Peak memory {mine['peak_mib']:.0f} MiB. By artifact, CPU ms a MB: {nodes}."]


if __name__ == "__main__":
    main()
