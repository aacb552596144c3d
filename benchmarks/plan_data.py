"""Measure the rates of `./marin plan-data`: the lab's stages over generated text of several sizes, and a larger one as a check.

    PYTHONPATH=. .venv/bin/python -m benchmarks.plan_data --sizes 250 500 1000 2000 --check 5000 --rounds 2

Each run is a fresh process with one thread, over text of its own (`generated_text.py`): normalize, sign, duplicates, repeated
paragraphs, quality rules, benchmark items, corpus, tokens. CPU seconds of each stage, rows and bytes of each shuffle, files of
each artifact. The cost of a stage is fitted to the sizes (`datakit/costs/rates.py`), and the check's size is predicted from
them; exit status 1 if the prediction of all stages together misses by more than 20 %. The sizes above are 12.5 GB through all
stages, 40 minutes of one core, 12 of them for the texts. The index of benchmark items is built once and not
counted.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.generated_text import SPEECHES, Model, learnt, write
from benchmarks.given_files import GIVEN_FILES
from benchmarks.pipeline import ONE_THREAD, train_tokenizer
from benchmarks.process_use import cpu_seconds, peak_mib
from datakit.compile_ahead import compile_ahead
from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.index import CONTAMINATION_INDEX
from datakit.contamination.marks import CONTAMINATION
from datakit.corpus.build import CORPUS
from datakit.corpus.filters import CorpusConfig
from datakit.costs.joins import Scope
from datakit.costs.plan import CHECKED_WITHIN, Measured, StageRun, check_of
from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig
from datakit.dedup.minhash import MINHASH, MinHashConfig
from datakit.dedup.paragraphs import PARAGRAPHS, ParagraphsConfig
from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.documents.parts import document_paths
from datakit.quality.rules import QUALITY_RULES, quality_rules_config
from datakit.sources.source import Records
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.tokenizer import TOKENIZER_FILE
from evals.items.item import ITEMS_FILE
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build, build_all
from lineage.shards.execution import Execution
from lineage.shards.run import SCRATCH_FOLDER
from lineage.tables.local import LocalEngine
from recipes.data import suite
from recipes.suites import main_suite
from resources.lab import Lab

TOKENIZER_BYTES = 6_000_000
MEGABYTE = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[250, 500, 1_000, 2_000], help="megabytes of text")
    parser.add_argument("--check", type=float, default=5_000, help="megabytes of the text that is predicted")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where text and stores lie; the system's temporary folder by default")
    parser.add_argument("--root", default=".marin", help="store with the default suite, which is made where it is missing")
    parser.add_argument("--out", type=Path, default=Path("data/rates/data_engine.json"))
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run_stages(options.child)))
        return
    measured = measure(options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(asdict(measured), indent=1) + "\n")
    checks = check_of(measured)
    print("\n| stage | predicted, CPU s | 95 % of the mean | measured | off by |\n|---|---|---|---|---|")
    for name, (predicted, spent) in checks.items():
        off = predicted.value / spent - 1
        print(f"| {name} | {predicted.value:.1f} | {predicted.low:.1f} to {predicted.high:.1f} | {spent:.1f} | {off:+.0%} |")
    predicted, spent = checks["all"]
    sys.exit(abs(predicted.value / spent - 1) > CHECKED_WITHIN)


def measure(options: argparse.Namespace) -> Measured:
    """Run every size in turn, `rounds` times, and the check once."""
    compile_ahead()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder, model = Path(scratch), learnt(SPEECHES)
        prepare(folder, model, options.root)
        runs = []
        for seed, size in [(seed, size) for seed in range(options.rounds) for size in options.sizes] + [(99, options.check)]:
            write(folder / "documents", model, int(size * MEGABYTE), seed)
            load = os.getloadavg()[0]
            runs.append(in_a_process(folder) | {"load": load})
            shutil.rmtree(folder / "documents")
            print(f"{size:g} MB, seed {seed}: {runs[-1]['cpu_seconds']:.1f} CPU s, load {load:.1f}", flush=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    made = [StageRun(**(run | {"scope": Scope(**run["scope"])})) for run in runs]
    sizes = " ".join(f"{size:g}" for size in options.sizes)
    return Measured(
        command=f"python -m benchmarks.plan_data --sizes {sizes} --check {options.check:g} --rounds {options.rounds}",
        commit=commit,
        day=time.strftime("%Y-%m-%d", time.gmtime()),
        machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        runs=tuple(made[:-1]),
        check=made[-1],
    )


def prepare(folder: Path, model: Model, root: str) -> None:
    """Write what each run is given: a tokenizer, benchmark items, and a store that has their index."""
    (folder / "given").mkdir()
    write(folder / "documents", model, TOKENIZER_BYTES, 7)
    texts = pl.read_parquet(folder / "documents" / "*.parquet")["text"].to_list()
    shutil.rmtree(folder / "documents")
    train_tokenizer(texts, folder / "given" / TOKENIZER_FILE)
    store, node = Lab.at(root, execution=Execution(1)).store, suite(main_suite())
    items = build_all(store, [node])[0]
    shutil.copy(items.folder() / ITEMS_FILE, folder / "given" / ITEMS_FILE)
    for node in given_nodes(folder):
        build(Store(str(folder / "base")), node)


def in_a_process(folder: Path) -> dict[str, Any]:
    """Run the stages in a fresh process. Raises: RuntimeError with the end of what it said."""
    command = [sys.executable, "-m", "benchmarks.plan_data", "--child", str(folder)]
    done = subprocess.run(command, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the stages ended with {done.returncode}: {done.stderr[-3_000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def run_stages(folder: Path) -> dict[str, Any]:
    """Build every stage over the documents of a folder, in a store of its own; return what a `StageRun` holds, but the load."""
    engine = LocalEngine(SCRATCH_FOLDER, 1)
    seconds, files, sizes, artifacts = {}, {}, {}, {}
    with tempfile.TemporaryDirectory(dir=folder) as root:
        shutil.copytree(folder / "base", root, dirs_exist_ok=True)
        store = Store(root)
        for node in given_nodes(folder):
            build(store, node)
        for node in stage_nodes(folder):
            started = cpu_seconds()
            made = build(store, node, execution=Execution(1, tables=engine)).artifact
            name = node.key[0]
            artifacts[name], seconds[name] = made, cpu_seconds() - started
            files[name], sizes[name] = len(made.manifest.files), sum(entry.bytes for entry in made.manifest.files)
        scope = scope_of(artifacts["normalized"], artifacts["duplicates"], engine)
        statistics = artifacts["tokens"].manifest.statistics
        return {
            "bytes": text_given(folder),
            "cpu_seconds": sum(seconds.values()),
            "seconds": seconds,
            "files": files,
            "sizes": sizes,
            "scope": asdict(scope),
            "corpus_bytes": int(artifacts["corpus"].manifest.statistics["bytes_out"]),
            "tokens": int(statistics["tokens_out"]),
            "peak_mib": peak_mib(),
        }


def scope_of(normalized: Artifact, duplicates: Artifact, engine: LocalEngine) -> Scope:
    """Return what the joins of one source met."""
    rows, shingles = normalized.manifest.statistics["rows_out"], duplicates.manifest.extra["duplicates"]["compared_shingles"]
    moved = {each.name: each for each in engine.moved}
    return Scope.of(rows, len(document_paths(normalized)), MinHashConfig().bands, shingles, moved)


def text_given(folder: Path) -> int:
    """Return the bytes of all texts that a run is given, repeated ones included."""
    texts = pl.scan_parquet(sorted((folder / "documents").glob("*.parquet")))
    sizes = pl.col("text").str.len_bytes().cast(pl.Int64)  # polars adds 32-bit lengths modulo 2^32
    return int(texts.select(sizes.sum()).collect().item())


def given_nodes(folder: Path) -> list[Node]:
    """Nodes that are there before the text is."""
    items, tokenizer = (
        Node((name,), None, GIVEN_FILES, {"from": str(folder / "given"), "below": ""}) for name in ("items", "tokenizer")
    )
    return [items, tokenizer, Node(("index",), None, CONTAMINATION_INDEX, ContaminationConfig(), {"suites": (items,)})]


def stage_nodes(folder: Path) -> list[Node]:
    """The stages in order; `raw` only copies the text."""
    items, tokenizer, index = given_nodes(folder)
    raw = Node(("raw",), None, GIVEN_FILES, {"from": str(folder / "documents"), "below": "files"})
    config = NormalizeConfig(source="generated", format=Records("parquet"), domain="prose")
    normalized = Node(("normalized",), None, NORMALIZE, config, {"raw": raw})
    one = {"normalized": normalized}
    minhash = Node(("minhash",), None, MINHASH, MinHashConfig(), one)
    scope = {"normalized": (normalized,)}
    duplicates = Node(("duplicates",), None, DUPLICATES, DuplicatesConfig(), scope | {"minhash": (minhash,)})
    paragraphs = Node(("paragraphs",), None, PARAGRAPHS, ParagraphsConfig(), scope | {"duplicates": duplicates})
    rules = Node(("quality_rules",), None, QUALITY_RULES, quality_rules_config("prose"), one)
    policy = ContaminationConfig()
    marks = Node(("contamination",), None, CONTAMINATION, policy, one | {"suites": (items,), "index": index})
    inputs = one | {"contamination": marks, "duplicates": duplicates}
    corpus = Node(("corpus",), None, CORPUS, CorpusConfig(drop_low_quality=False, heldout_frac=0.0), inputs)
    tokens = Node(("tokens",), None, TOKEN_CACHE, TokenCacheConfig("generated"), {"corpus": corpus, "tokenizer": tokenizer})
    return [raw, normalized, minhash, duplicates, paragraphs, rules, marks, corpus, tokens]


if __name__ == "__main__":
    main()
