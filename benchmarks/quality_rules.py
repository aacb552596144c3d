"""The published rule sets against datatrove's filters: agreement rule by rule, and CPU seconds, on the same documents.

    PYTHONPATH=. .venv/bin/python benchmarks/real_corpus.py FOLDER --mb 60
    PYTHONPATH=. .venv/bin/python benchmarks/quality_rules.py FOLDER/documents --mb 10 --datatrove-python PEER/bin/python

PEER is a separate environment with `datatrove[processing]==0.10.1 spacy` (its filters cut words with spaCy). Both sides run
one thread, in fresh processes, in turn; a ratio is taken inside one round, and their median and spread are printed. Agreement
is the share of documents on which a rule decides alike when it is the only one, whichever rules come before it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from benchmarks.process_use import peak_mib
from datakit.documents.parts import slices
from datakit.quality.rule_sets import PUBLISHED, Rule, RuleSet, measured, verdict
from datakit.quality.rules import SLICE_CHARS, judged

PEER = Path(__file__).with_name("quality_rules_peer.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=Path, help="a folder of Parquet parts with id and text")
    parser.add_argument("--mb", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--datatrove-python", type=Path, required=True)
    parser.add_argument("--child", action="store_true", help="be our side of a round")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(ours(options.documents)))
        return
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / "documents.parquet"
        texts = sampled(options.documents, options.mb)
        texts.write_parquet(sample)
        megabytes = texts["text"].str.len_bytes().sum() / 1e6
        print(f"{texts.height} documents, {megabytes:.1f} MB")
        speed(sample, megabytes, options)
        agreement(texts["text"], peer(options.datatrove_python, sample, "rules"))


def sampled(folder: Path, megabytes: float) -> pl.DataFrame:
    """Documents of about so many megabytes, spread over the parts by the order of their ids."""
    every = pl.concat([pl.read_parquet(path, columns=["id", "text"]) for path in sorted(folder.glob("*.parquet"))]).sort("id")
    return every.filter(pl.col("text").str.len_bytes().cum_sum() <= megabytes * 1e6)


def ours(sample: Path) -> dict:
    documents = pl.read_parquet(sample)
    judged(documents.head(1), PUBLISHED)
    started = time.process_time()
    for piece in slices(documents, SLICE_CHARS):
        judged(piece, PUBLISHED)
    seconds = time.process_time() - started
    return {"cpu_seconds": seconds, "peak_mib": peak_mib()}


def peer(python: Path, sample: Path, mode: str) -> dict:
    out = sample.with_name(f"{mode}.json")
    environment = {"PATH": os.environ.get("PATH", ""), "OMP_NUM_THREADS": "1", "HOME": str(sample.parent)}
    subprocess.run([str(python), str(PEER), str(sample), str(out), "--mode", mode], check=True, env=environment)
    return json.loads(out.read_text())


def speed(sample: Path, megabytes: float, options: argparse.Namespace) -> None:
    """All five sets in turn on both sides."""
    ratios = []
    for number in range(options.rounds):
        command = [sys.executable, __file__, str(sample), "--child", "--datatrove-python", str(options.datatrove_python)]
        one_thread = {**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
        mine = json.loads(subprocess.run(command, env=one_thread, capture_output=True, text=True, check=True).stdout)
        theirs = peer(options.datatrove_python, sample, "speed")
        total = sum(theirs["cpu_seconds"].values())
        ratios.append(total / mine["cpu_seconds"])
        print(
            f"round {number}: ours {megabytes / mine['cpu_seconds']:.2f} MB/s, peak {mine['peak_mib']:.0f} MiB; datatrove "
            f"{theirs['datatrove']} {megabytes / total:.3f} MB/s, peak {theirs['peak_mib']:.0f} MiB; ratio {ratios[-1]:.1f}",
            flush=True,
        )
        print("  datatrove, s:", ", ".join(f"{name} {seconds:.1f}" for name, seconds in theirs["cpu_seconds"].items()))
    print(f"all sets: {statistics.median(ratios):.1f}x ({min(ratios):.1f} to {max(ratios):.1f}) over {len(ratios)} rounds")


def agreement(texts: pl.Series, theirs: dict) -> None:
    signals = measured(texts)
    print(f"{'rule':<42} {'agree':>7} {'both':>6} {'only ours':>9} {'only theirs':>11}")
    for name, dropped in theirs["drops"].items():
        rules = tuple(rule for part in name.split(" or ") for rule in named(part))
        mine = signals.select(verdict(RuleSet("one", "", rules)))["one"] != ""
        line(name, mine, pl.Series(dropped))
    for rules in PUBLISHED:
        if rules.name not in theirs["sets"]:  # datatrove fetches C4's list of words from the web
            print(f"set {rules.name}: not asked of datatrove")
            continue
        line(f"set {rules.name}", signals.select(verdict(rules))[rules.name] != "", pl.Series(theirs["sets"][rules.name]))


def named(name: str) -> tuple[Rule, ...]:
    """The published rule on a signal; where two sets have one, the name begins with the set's."""
    wanted = name.split(" ")
    sets = [rules for rules in PUBLISHED if len(wanted) == 1 or rules.name.startswith(wanted[0])]
    return tuple(rule for rules in sets for rule in rules.rules if rule.signal == wanted[-1])


def line(name: str, mine: pl.Series, theirs: pl.Series) -> None:
    both, only_mine, only_theirs = (mine & theirs).sum(), (mine & ~theirs).sum(), (~mine & theirs).sum()
    agree = 1 - (only_mine + only_theirs) / mine.len()
    print(f"{name:<42} {agree:>7.4f} {both:>6} {only_mine:>9} {only_theirs:>11}")


if __name__ == "__main__":
    main()
