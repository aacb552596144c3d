"""Text to a token cache: our two engines, Hugging Face's bare batch call, and datatrove's DocumentTokenizer.

    PYTHONPATH=. .venv/bin/python benchmarks/real_corpus.py FOLDER --mb 160
    PYTHONPATH=. .venv/bin/python benchmarks/tokenization.py FOLDER [--mb 160] [--hf-mb 24] [--vocab 65536] [--rounds 3]
        [--datatrove-python PYTHON]

Only the corpus' base documents are read, in the corpus' own order: planted copies are text that an engine has seen, and caches
triple the figure on such text. Every run is a separate process, engines take turns, and CPU seconds count: of all threads,
the tokenizer's loading included, imports and training it not. gigatoken is slow until it knows the frequent words, so its
shards are quoted apart: cold (the first 12 MB) and unseen (after 20 MB of other text). The slow ones read the first `--hf-mb`
megabytes. Ids are compared document by document with ours by the reference. (Not called tokenize.py: that would hide the
standard library's module from every script here.)
"""

import argparse
import importlib.metadata
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from tokenizers import pre_tokenizers, trainers

from datakit.documents.parts import write_parquet
from datakit.tokens.cache import shard_plan, tokenize_shard
from datakit.tokens.engines import choose_engine
from datakit.tokens.formats import PLAIN, TokenPolicy
from datakit.tokens.tokenizer import END_OF_TEXT, load_tokenizer, new_tokenizer
from lineage.storage.digests import text_digest

SAMPLE_MB, COLD_MB, WARM_MB, PART_ROWS = 12, 12, 20, 4096
ENGINES = ("gigatoken", "hf", "bare", "datatrove")
PEER = """
import json, resource, sys, time
from pathlib import Path
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.tokens import DocumentTokenizer
documents, tokenizer, out = sys.argv[1:]
start = time.process_time()
steps = [ParquetReader(documents), DocumentTokenizer(out, tokenizer, eos_token="<|endoftext|>", shuffle_documents=False)]
LocalPipelineExecutor(steps, tasks=1, workers=1, logging_dir=out + "/logs").run()
children = resource.getrusage(resource.RUSAGE_CHILDREN)
peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
print(json.dumps({"cpu": time.process_time() - start + children.ru_utime + children.ru_stime, "peak_mib": peak, "shards": []}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mb", type=float, default=160)
    parser.add_argument("--hf-mb", type=float, default=24)
    parser.add_argument("--vocab", type=int, default=65536)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--datatrove-python", type=Path)
    parser.add_argument("--one", nargs=4, metavar=("ENGINE", "DOCUMENTS", "TOKENIZER", "OUT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(one(*given.one)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        compare(given, Path(scratch))


def compare(given: argparse.Namespace, scratch: Path) -> None:
    """Prepare the text and the tokenizer, run every engine in turn, print the table."""
    whole, small = scratch / "whole", scratch / "small"
    sizes = {whole: write_documents(given.folder, whole, given.mb), small: write_documents(given.folder, small, given.hf_mb)}
    tokenizer = scratch / "tokenizer.json"
    train(small, tokenizer, given.vocab)
    print(f"gigatoken {_version('gigatoken')}, tokenizers {_version('tokenizers')}, vocabulary {given.vocab}")
    print(f"verdict on the corpus: {choose_engine(tokenizer, 'auto', _texts(small)[:64])}")
    runs: dict[str, list[dict]] = {engine: [] for engine in ENGINES}
    for number in range(given.rounds):
        for engine in ENGINES:
            if engine == "datatrove" and given.datatrove_python is None:
                continue
            documents = whole if engine == "gigatoken" else small
            out = scratch / f"{engine}-{number}"
            runs[engine].append(run(engine, documents, tokenizer, out, given))
    table(runs, sizes[whole], sizes[small])
    reference = tokens_of(scratch / "hf-0")
    differing = {"gigatoken": _differing(reference, tokens_of(scratch / "gigatoken-0"))}
    if given.datatrove_python is not None:
        differing["datatrove"] = _differing(reference, datatrove_tokens(scratch / "datatrove-0", reference[0].dtype))
    for engine, count in differing.items():
        print(f"{engine}: {count} of {len(reference)} documents have other ids than the reference")


def write_documents(folder: Path, target: Path, megabytes: float) -> float:
    """The first base documents of the corpus, up to some megabytes, with the columns of a corpus; how many there are."""
    truth = pl.read_parquet(folder / "truth.parquet").filter(pl.col("kind") == "base").select("id")
    every = pl.concat([pl.read_parquet(path) for path in sorted((folder / "documents").glob("*.parquet"))])
    base = every.join(truth, on="id", how="semi", maintain_order="left")
    base = base.with_columns(id=pl.col("text").map_elements(text_digest, return_dtype=pl.String))
    sizes = base["text"].str.len_bytes().cum_sum()
    chosen = base.filter(sizes <= megabytes * 1e6).with_columns(source=pl.lit("bench"), metadata=pl.lit("{}"))
    for index, part in enumerate(chosen.select("id", "text", "source", "metadata").iter_slices(PART_ROWS)):
        write_parquet(target / f"part-{index:05d}.parquet", part.to_arrow())
    return int(chosen["text"].str.len_bytes().sum()) / 1e6


def train(documents: Path, tokenizer: Path, vocab: int) -> None:
    """Byte-level BPE on the first megabytes, as `datakit.tokenizer` trains it."""
    alphabet, kept, size = sorted(pre_tokenizers.ByteLevel.alphabet()), [], 0
    for text in _texts(documents):
        kept.append(text)
        size += len(text)
        if size > SAMPLE_MB * 1e6:
            break
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet, show_progress=False
    )
    made = new_tokenizer()
    made.train_from_iterator(kept, trainer)
    tokenizer.write_text(made.to_str())


def run(engine: str, documents: Path, tokenizer: Path, out: Path, given: argparse.Namespace) -> dict:
    """One engine in a separate process; what it says of itself."""
    out.mkdir()
    if engine == "datatrove":
        command = [str(given.datatrove_python), "-c", PEER, str(documents), str(tokenizer), str(out)]
    else:
        command = [sys.executable, __file__, str(given.folder), "--one", engine, str(documents), str(tokenizer), str(out)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def one(engine: str, documents: str, tokenizer: str, out: str) -> dict:
    """What a child does: a cache by our shard function, or the bare batch call."""
    began = time.process_time()
    parts, path = sorted(Path(documents).glob("*.parquet")), Path(tokenizer)
    shards: list[tuple[float, float]] = []
    if engine == "bare":
        loaded = load_tokenizer(path)
        for part in parts:
            loaded.encode_batch(pl.read_parquet(part, columns=["text"])["text"].to_list(), add_special_tokens=False)
    else:
        policy = TokenPolicy.of(path, "benchmark", None, END_OF_TEXT)
        for index, rows in enumerate(shard_plan((part, pq.read_metadata(part)) for part in parts)):
            start = time.process_time()
            record = tokenize_shard(Path(out), f"shard-{index:05d}", *rows, path, policy, PLAIN, engine)  # pyrefly: ignore
            shards.append((record["bytes"] / 1e6, time.process_time() - start))
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
    return {"cpu": time.process_time() - began, "peak_mib": peak, "shards": shards}


def table(runs: dict[str, list[dict]], whole_mb: float, small_mb: float) -> None:
    """MB a CPU second, the spread over rounds, and ratios to our own cache by the reference."""
    speeds = {
        "gigatoken, whole": [whole_mb / r["cpu"] for r in runs["gigatoken"]],
        f"gigatoken, cold (first {COLD_MB} MB)": [_window(r["shards"], 0, COLD_MB) for r in runs["gigatoken"]],
        f"gigatoken, unseen (after {WARM_MB} MB)": [_window(r["shards"], WARM_MB, 1e9) for r in runs["gigatoken"]],
        "hf (ours)": [small_mb / r["cpu"] for r in runs["hf"]],
        "hf encode_batch, no cache": [small_mb / r["cpu"] for r in runs["bare"]],
        "datatrove DocumentTokenizer": [small_mb / r["cpu"] for r in runs["datatrove"]],
    }
    base = statistics.median(speeds["hf encode_batch, no cache"])
    print(
        f"{whole_mb:.0f} MB (gigatoken), {small_mb:.0f} MB (the others)\n"
        f"{'':42}{'MB/CPU s':>9}{'min':>8}{'max':>8}{'x bare HF':>11}"
    )
    for name, speeds_of_engine in speeds.items():
        known = [speed for speed in speeds_of_engine if speed > 0]
        if known:
            middle = statistics.median(known)
            print(f"{name:42}{middle:9.2f}{min(known):8.2f}{max(known):8.2f}{middle / base:11.2f}")
    for engine, done in runs.items():
        if done:
            print(f"peak memory {engine}: {max(r['peak_mib'] for r in done):.0f} MiB")


def _window(shards: list[tuple[float, float]], low: float, high: float) -> float:
    """MB a CPU second of the shards that begin between two places of the text, in MB; 0 without any."""
    place, megabytes, seconds = 0.0, 0.0, 0.0
    for size, cpu in shards:
        if low <= place < high:
            megabytes, seconds = megabytes + size, seconds + cpu
        place += size
    return megabytes / seconds if seconds else 0.0


def tokens_of(out: Path) -> list[np.ndarray]:
    """Ids of every document of a cache of ours."""
    documents: list[np.ndarray] = []
    for path in sorted((out / "tokens").glob("*.tokens")):
        ends = np.fromfile(path.with_suffix(".ends"), "<i8")
        width = "<u2" if path.stat().st_size == 2 * ends[-1] else "<u4"
        documents += np.split(np.fromfile(path, width), ends[:-1])
    return documents


def datatrove_tokens(out: Path, dtype: np.dtype) -> list[np.ndarray]:
    """Ids of every document of datatrove's one file."""
    (index,) = out.glob("*.ds.index")
    return np.split(np.fromfile(index.with_suffix(""), dtype), np.fromfile(index, "<u8").astype(np.int64)[:-1])


def _differing(reference: list[np.ndarray], encoded: list[np.ndarray]) -> int:
    return sum(not np.array_equal(a, b) for a, b in zip(reference, encoded[: len(reference)], strict=True))


def _texts(documents: Path) -> list[str]:
    return [text for path in sorted(documents.glob("*.parquet")) for text in pl.read_parquet(path, columns=["text"])["text"]]


def _version(distribution: str) -> str:
    return importlib.metadata.version(distribution)


if __name__ == "__main__":
    main()
