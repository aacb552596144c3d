"""CPU seconds of a contamination scan: our policy, Marin's definition as it ships, and datatrove's filter as shipped.

    PYTHONPATH=. .venv/bin/python benchmarks/real_corpus.py FOLDER --mb 160
    PYTHONPATH=. .venv/bin/python benchmarks/scan_speed.py FOLDER --mb 40 --datatrove-python PEER/bin/python

Marin's is written again as its `decon.py` marks a document: paragraphs, white-space tokens, a string a 13-gram, blake2b of
each, looked up - in a set of Python here, which answers faster than the call into its Bloom filter could. Beside it stand the
same without blake2b (strings in a set: the quicker measure of 2026-11-21, 4.5x then) and our named policy `marin-13gram`
(array code); all three must mark the same documents. Scans alternate within a round, in one process and thread; a ratio is
taken inside a round. datatrove (0.10.1 with spaCy, its own environment) runs over the first `--datatrove-mb` by itself.
Bar: ours at least 5 times as fast as Marin's.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

import polars as pl

from benchmarks.process_use import peak_mib
from benchmarks.rival_policies.marin import MarinPolicy
from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.leak_forms import lm_eval_text
from datakit.contamination.protocol import Policy, text_batches
from evals.items.item import ITEMS_FILE
from lineage.build.plan import build_all
from lineage.match_tiers import STANDING_TIERS
from lineage.shards.execution import Execution
from recipes.data import suite
from recipes.suites import main_suite
from resources.lab import Lab

PEER = Path(__file__).with_name("scan_speed_peer.py")
type Marker = Callable[[Sequence[str]], set[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="a folder that real_corpus.py wrote")
    parser.add_argument("--mb", type=float, default=40.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, help="benchmark items indexed; default: all")
    parser.add_argument("--root", default=".marin", help="store with the default suite, which is made where it is missing")
    parser.add_argument("--datatrove-python", type=Path)
    parser.add_argument("--datatrove-mb", type=float, default=4.0)
    options = parser.parse_args()
    items = read_items(options.root).head(options.items or 10**9)
    documents = read_documents(options.corpus, options.mb)
    texts = documents["text"].to_list()
    size = documents["text"].str.len_bytes().sum() / 1e6
    print(f"{len(texts):,} documents, {size:.1f} MB; {items.height:,} items; load {os.getloadavg()[0]:.1f}\n")
    ours = {"ours": our_marker(items, ContaminationConfig()), "marin-13gram, arrays": our_marker(items, MarinPolicy())}
    strings = {"Marin, strings in a set": as_shipped(items, lambda feature: feature)}
    markers = ours | strings | {"Marin as shipped": as_shipped(items, hashed)}
    seconds, marked = timed(markers, texts, options.rounds)
    marins = [flagged for name, flagged in marked.items() if name != "ours"]
    if any(flagged != marins[0] for flagged in marins):
        raise AssertionError("Marin's definition as shipped and as our named policy mark other documents")
    columns = ("scan", "CPU s, median", "lowest to highest", "MB/s", "documents marked", "times the speed of Marin as shipped")
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for name, spent in seconds.items():
        ratios = [theirs / mine for theirs, mine in zip(seconds["Marin as shipped"], spent, strict=True)]
        middle = statistics.median(spent)
        times = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        spread = f"{min(spent):.2f} to {max(spent):.2f}"
        print(f"| {name} | {middle:.2f} | {spread} | {size / middle:.1f} | {len(marked[name])} | {times} |")
    quicker = [b / a for a, b in zip(seconds["ours"], seconds["Marin, strings in a set"], strict=True)]
    print(f"\nours against strings in a set: {statistics.median(quicker):.2f} ({min(quicker):.2f} to {max(quicker):.2f})")
    print(f"peak memory of this process, all scans and their indexes: {peak_mib():.0f} MiB")
    if options.datatrove_python:
        print_datatrove(documents, items, ours["ours"], options)


def read_items(root: str) -> pl.DataFrame:
    store, node = Lab.at(root, execution=Execution(1)).store, suite(main_suite())
    made = build_all(store, [node])[0]
    return pl.read_parquet(made.folder() / ITEMS_FILE).sort("suite", "task", "item_id")


def read_documents(corpus: Path, megabytes: float) -> pl.DataFrame:
    """Documents of about so many megabytes, spread over the parts by the order of their ids."""
    parts = sorted((corpus / "documents").glob("*.parquet"))
    every = pl.concat([pl.read_parquet(path, columns=["id", "text"]) for path in parts]).sort("id")
    return every.filter(pl.col("text").str.len_bytes().cum_sum() <= megabytes * 1e6)


def our_marker(items: pl.DataFrame, policy: Policy) -> Marker:
    scan = policy.index(items, policy.channels(items)).scan

    def mark(texts: Sequence[str]) -> set[int]:
        matches = ((low + match.document, match.tier) for low, batch in text_batches(texts) for match in scan(batch))
        return {document for document, tier in matches if tier in STANDING_TIERS}

    return mark


type Hash = Callable[[str], int | str]


def as_shipped(items: pl.DataFrame, hashed: Hash) -> Marker:
    """`decon.py`, feature filter 3, with a set for the Bloom filter and without the drop set."""
    records = (lm_eval_text(item) for item in items.iter_rows(named=True))
    known = {feature for record in records for part in paragraphs(record, hashed) for feature in part}

    def is_contaminated(text: str) -> bool:
        for features in paragraphs(text, hashed):
            if features and sum(feature in known for feature in features) / len(features) >= 0.5:
                return True
        return False

    return lambda texts: {number for number, text in enumerate(texts) if is_contaminated(text)}


def paragraphs(text: str, hashed: Hash) -> Iterator[list[int | str]]:
    """Hashed features of every paragraph; of the whole text where none has one."""
    nothing = True
    for part in text.split("\n\n"):
        features = [hashed(feature) for feature in features_of(part)]
        nothing = nothing and not features
        yield features
    if nothing and 3 <= len(tokens := text.split()) < 13 and any(map(str.isalpha, text)):
        yield [hashed(" ".join(tokens))]


def features_of(paragraph: str) -> Iterable[str]:
    tokens = paragraph.split()
    if 3 <= len(tokens) < 13:
        return [" ".join(tokens)] if any(map(str.isalpha, paragraph)) else []
    grams = (" ".join(tokens[at : at + 13]) for at in range(len(tokens) - 12))
    return (gram for gram in grams if any(map(str.isalpha, gram)))


def hashed(feature: str) -> int:
    return int.from_bytes(blake2b(feature.encode(), digest_size=8).digest(), "big")


def timed(markers: dict[str, Marker], texts: Sequence[str], rounds: int) -> tuple[dict[str, list[float]], dict[str, set[int]]]:
    seconds: dict[str, list[float]] = {name: [] for name in markers}
    marked: dict[str, set[int]] = {}
    for _ in range(rounds):
        for name, marker in markers.items():
            started = time.process_time()
            marked[name] = marker(texts)
            seconds[name].append(time.process_time() - started)
    return seconds, marked


def print_datatrove(documents: pl.DataFrame, items: pl.DataFrame, ours: Marker, options: argparse.Namespace) -> None:
    some = documents.filter(pl.col("text").str.len_bytes().cum_sum() <= options.datatrove_mb * 1e6)
    size = some["text"].str.len_bytes().sum() / 1e6
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "documents").mkdir()
        some.write_parquet(Path(folder) / "documents" / "part.parquet")
        items.write_parquet(Path(folder) / "items.parquet")
        out = Path(folder) / "out.json"
        command = [options.datatrove_python, PEER, Path(folder) / "documents", Path(folder) / "items.parquet", out]
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": folder, "OMP_NUM_THREADS": "1"}
        subprocess.run([str(word) for word in command], check=True, env=environment, capture_output=True)
        theirs = json.loads(out.read_text())
    mine, _ = timed({"ours": ours}, some["text"].to_list(), options.rounds)
    middle = statistics.median(mine["ours"])
    versions = ", ".join(f"{name} {number}" for name, number in theirs["versions"].items())
    print(
        f"\n{versions}, its filter over {size:.1f} MB: {theirs['seconds']:.1f} s, {size / theirs['seconds']:.2f} MB/s, "
        f"{theirs['marked']} marked; ours {size / middle:.1f} MB/s: {theirs['seconds'] / middle:.0f}x"
    )


if __name__ == "__main__":
    main()
