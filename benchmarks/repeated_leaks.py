"""Repeated leaks: copies of questions of every task, verbatim, edited and halved, through the stage that marks a source.

    PYTHONPATH=. .venv/bin/python benchmarks/repeated_leaks.py --items 3 --copies 1 10 100 1000 10000

Data: the suites of the default line, built under `--root` where they are missing. The copies of one run lie in one source,
each in other words; all copies of a question have the same edit or the same half, as a page that was copied has. An item is
`removed` if all documents with it are marked, else it has its status, or is `left` if it is matched and a copy stays.
Bar: no item is clean, and none is left.
"""

import argparse
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from datakit.contamination.channels import channel_table
from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.index import CONTAMINATION_INDEX
from datakit.contamination.leak_forms import AROUND, Item, edited, question_only
from datakit.contamination.marks import CONTAMINATION
from datakit.contamination.protocol import load_index
from datakit.documents.parts import write_sorted_parts
from evals.items.item import ITEMS_FILE
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build, build_all
from lineage.match_tiers import CLEAN, MATCHED, UNKNOWN, WHOLE_ONLY
from lineage.shards.execution import Execution
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer
from recipes.data import suite
from recipes.suites import main_suite, wider_suites
from resources.lab import Lab

RULES = ContaminationConfig(num_canaries=8)
CLEAN_DOCUMENTS = 200
FORMS = ("verbatim", "edited", "halved")


@dataclass(frozen=True)
class Texts:
    """The texts of a source; the digest of the config is its identity."""

    texts: tuple[str, ...]


def write_documents(out: Writer, config: Texts) -> None:
    texts = sorted(config.texts, key=text_digest)
    frame = pl.DataFrame({"id": [text_digest(text) for text in texts], "text": texts})
    columns = frame.with_columns(source=pl.lit("leaks"), metadata=pl.lit('{"source_id": "x"}'))
    write_sorted_parts(out.folder, "documents", columns, target_bytes=1 << 28)


DOCUMENTS = Stage("benchmark.leaked_documents", "1", write_documents)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=3, help="questions of each task")
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--root", default=".marin")
    options = parser.parse_args()
    store = Lab.at(options.root, execution=Execution(1)).store
    suites = tuple(suite(each) for each in (main_suite(), *wider_suites()))
    index = Node(("repeated_leaks", "index"), None, CONTAMINATION_INDEX, RULES, {"suites": suites})
    folder = build_all(store, [index])[0].folder() / "index"
    items = pl.concat(pl.read_parquet(build(store, each).artifact.folder() / ITEMS_FILE) for each in suites)
    chosen = choose(items, folder, options.items)
    print(f"{len(items):,} items, {len(chosen)} leaked\n")
    print("| form | copies | removed | unknown | whole only | left | clean | other documents marked |")
    print("|" + "---|" * 8)
    for form in options.forms:
        for copies in options.copies:
            print(row(store, suites, index, chosen, form, copies), flush=True)


def choose(items: pl.DataFrame, folder: Path, count: int) -> Sequence[Item]:
    """Return the first `count` items of each task, in random order, whose question can be matched."""
    ordered = items.sort("suite", "task", "item_id")
    channels = channel_table(ordered)
    is_question = pl.Series(load_index(folder, RULES).is_matchable()) & (channels["channel"] == "question")
    matchable = ordered[channels.filter(is_question)["item"].to_list()]
    shuffled = matchable.sample(fraction=1.0, shuffle=True, seed=0)
    return shuffled.group_by("task", maintain_order=True).head(count).sort("task", "item_id").to_dicts()


def leak(item: Item, form: str) -> str:
    choose_words = random.Random(f"{item['task']} {item['item_id']}")
    words = item["question"].split()
    match form:
        case "edited":
            return edited(0.12, question_only)(item, choose_words)
        case "halved":
            return " ".join(words[: (len(words) + 1) // 2])
        case _:
            return item["question"]


def filler(seed: str) -> str:
    words, choose_words = AROUND.split(), random.Random(seed)
    return " ".join(choose_words.choices(words, k=24)) + f" {seed}"


def row(store: Store, suites: Sequence[Node], index: Node, chosen: Sequence[Item], form: str, copies: int) -> str:
    """Return the table row of one source; every clean or left item is printed with its leak first."""
    leaks = [leak(item, form) for item in chosen]
    texts = [
        [f"{filler(f'{at} {copy} a')}\n{text}\n{filler(f'{at} {copy} b')}" for copy in range(copies)]
        for at, text in enumerate(leaks)
    ]
    clean = [filler(f"clean {at}") for at in range(CLEAN_DOCUMENTS)]
    documents = Texts((*(text for of_item in texts for text in of_item), *clean))
    marks = marked(store, suites, index, documents)
    found, flagged = Counter[str](), marked_ids(marks)
    statuses = {row[:3]: row[3] for row in statuses_of(marks)}
    for item, text, of_item in zip(chosen, leaks, texts, strict=True):
        result = outcome(statuses[item["suite"], item["task"], item["item_id"]], of_item, flagged)
        found[result] += 1
        if result in (CLEAN, "left"):
            print(f"{result}: {item['task']}/{item['item_id']} {form} x {copies}: {text[:120]!r}")
    leaked = {text_digest(text) for of_item in texts for text in of_item}
    shown = [found[name] for name in ("removed", UNKNOWN, WHOLE_ONLY, "left", CLEAN)]
    return "| " + " | ".join(map(str, (form, copies, *shown, len(flagged - leaked)))) + " |"


def outcome(status: str, texts: Sequence[str], flagged: set[str]) -> str:
    stays = any(text_digest(text) not in flagged for text in texts)
    return "removed" if not stays else "left" if status == MATCHED else status


def marked(store: Store, suites: Sequence[Node], index: Node, documents: Texts) -> Artifact:
    normalized = Node(("repeated_leaks", "documents"), "leaks", DOCUMENTS, documents)
    inputs: Mapping[str, object] = {"normalized": normalized, "suites": tuple(suites), "index": index}
    build(store, normalized)
    node = Node(("repeated_leaks", "marks"), "leaks", CONTAMINATION, RULES, inputs)
    return build(store, node, execution=Execution(1)).artifact


def marked_ids(marks: Artifact) -> set[str]:
    return set(pl.concat(pl.read_parquet(path) for path in marks.files(under="marks/")).filter("contaminated")["id"])


def statuses_of(marks: Artifact) -> list[tuple]:
    return pl.read_parquet(marks.file("items.parquet")).select("suite", "task", "item_id", "status").rows()


if __name__ == "__main__":
    main()
