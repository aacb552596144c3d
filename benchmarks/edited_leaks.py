"""Recall of items with 12 % of their words edited, and of halves of questions, by task, with 95 % intervals.

    PYTHONPATH=. .venv/bin/python -m benchmarks.edited_leaks --items 400

Data: the suites of the lab, built under `--root` where they are missing. Each item whose question can be matched is planted
once in each form, in words of its own. It is `found` if its document is marked for it. `clean` counts items that a source
with this document alone would report as clean: not found, no part of them is, and their status is not `whole_only`.
Bars: found .9 of question and answer on each task; clean 0.
"""

import argparse
import random
from collections.abc import Mapping, Sequence

import polars as pl

from benchmarks.repeated_leaks import RULES, choose, filler
from datakit.contamination.channels import channel_table
from datakit.contamination.index import CONTAMINATION_INDEX
from datakit.contamination.leak_forms import Form, Item, edited, question_and_answer, question_only
from datakit.contamination.protocol import PolicyIndex, load_index, text_batches
from evals.items.item import ITEMS_FILE
from evals.scoring.intervals import wilson
from lineage.build.nodes import Node
from lineage.build.plan import build, build_all
from lineage.match_tiers import CLEAN, PARTIAL, STANDING_TIERS, WHOLE_ONLY
from lineage.shards.execution import Execution
from recipes.data import suite
from recipes.suites import main_suite, wider_suites
from resources.lab import Lab

KEY = ("suite", "task", "item_id")


def first_half(item: Item, choose: random.Random) -> str:
    words = item["question"].split()
    return " ".join(words[: (len(words) + 1) // 2])


def second_half(item: Item, choose: random.Random) -> str:
    words = item["question"].split()
    return " ".join(words[(len(words) + 1) // 2 :])


FORMS: Mapping[str, Form] = {
    "question and answer, 12 % edited": edited(0.12, question_and_answer),
    "question, 12 % edited": edited(0.12, question_only),
    "first half of the question": first_half,
    "second half of the question": second_half,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=400, help="questions of each task")
    parser.add_argument("--root", default=".marin")
    options = parser.parse_args()
    store = Lab.at(options.root, execution=Execution(1)).store
    suites = tuple(suite(each) for each in (main_suite(), *wider_suites()))
    node = Node(("repeated_leaks", "index"), None, CONTAMINATION_INDEX, RULES, {"suites": suites})
    folder = build_all(store, [node])[0].folder() / "index"
    items = pl.concat(pl.read_parquet(build(store, each).artifact.folder() / ITEMS_FILE) for each in suites).sort(KEY)
    channels, index = channel_table(items), load_index(folder, RULES)
    chosen = choose(items, folder, options.items)
    row_of = {key: row for row, key in enumerate(items.select(KEY).rows())}
    rows = [row_of[tuple(item[name] for name in KEY)] for item in chosen]
    is_promised = pl.Series(index.finds_parts()) & (channels["channel"] == "question")
    promised = set(channels.filter(is_promised)["item"])
    print_promised(items, promised)
    for name, form in FORMS.items():
        print(f"\n{name}\n\n| task | items | found | 95 % | in part | whole only | clean |\n|---|---|---|---|---|---|---|")
        texts = [leaked(item, form) for item in chosen]
        outcomes = outcomes_of(texts, rows, index, channels["item"].to_list(), promised)
        table = pl.DataFrame({"task": [item["task"] for item in chosen], "outcome": outcomes})
        for (task,), of_task in [*table.group_by("task", maintain_order=True), (("all",), table)]:
            print(table_row(str(task), of_task["outcome"].to_list()), flush=True)


def print_promised(items: pl.DataFrame, promised: set[int]) -> None:
    """Print how many items of each task may be called clean; the others are `whole_only` at best."""
    tasks = items.with_row_index("row").with_columns(is_promised=pl.col("row").is_in(list(promised)))
    print("| task | items | of these, halves would be found |\n|---|---|---|")
    for task, number, share in tasks.group_by("task").agg(pl.len(), pl.col("is_promised").mean()).sort("task").iter_rows():
        print(f"| {task} | {number:,} | {share:.3f} |")
    print(f"| all | {len(items):,} | {tasks['is_promised'].mean():.3f} |")


def leaked(item: Item, form: Form) -> str:
    seed = f"{item['task']} {item['item_id']}"
    return f"{filler(f'{seed} a')}\n{form(item, random.Random(seed))}\n{filler(f'{seed} b')}"


def outcomes_of(
    texts: Sequence[str], rows: Sequence[int], index: PolicyIndex, item_of_channel: Sequence[int], promised: set[int]
) -> list[str]:
    """Return what a source with each text alone would say of the item `rows` [texts] in it."""
    outcomes = [CLEAN if row in promised else WHOLE_ONLY for row in rows]
    for low, batch in text_batches(texts):
        for match in index.scan(batch):
            at = low + match.document
            if item_of_channel[match.channel] != rows[at] or outcomes[at] == "found":
                continue
            if match.tier in STANDING_TIERS:
                outcomes[at] = "found"
            elif match.tier == PARTIAL:
                outcomes[at] = PARTIAL
    return outcomes


def table_row(task: str, outcomes: Sequence[str]) -> str:
    found, number = outcomes.count("found"), len(outcomes)
    low, high = wilson(found, number)
    shares = [f"{outcomes.count(name) / number:.3f}" for name in (PARTIAL, WHOLE_ONLY, CLEAN)]
    return f"| {task} | {number} | {found / number:.3f} | {low:.3f} to {high:.3f} | " + " | ".join(shares) + " |"


if __name__ == "__main__":
    main()
