"""Documents of code, maths, speeches and an encyclopedia that the scan for benchmark items marks, each with what it matched.

    PYTHONPATH=. .venv/bin/python -m benchmarks.false_marks --documents 50000

Text: `real_corpus.py` without its planted copies, in pieces of at most 4,000 characters that end at a blank line. All prose and
all of sympy and mpmath come first, then pieces of other files in an order by digest. Suites: all of the lab, built under
`--root` where they are missing. A mark counts as a leak if eight words in a row of an item's question, answer or passage stand
in the piece, and as false otherwise (`is_leak`). Every marked piece is written to `--out`, because only a reader can say what
its words mean. Bar: at most .2 % of the documents are marked falsely.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from benchmarks.real_corpus import installed, prose
from benchmarks.repeated_leaks import RULES, Texts, marked
from datakit.contamination.index import CONTAMINATION_INDEX
from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.build.plan import build_all
from lineage.shards.execution import Execution
from lineage.storage.digests import text_digest
from recipes.data import suite
from recipes.suites import main_suite, wider_suites
from resources.lab import Lab

MAX_CHARACTERS, MIN_CHARACTERS = 4_000, 200
MATHS = ("purelib/sympy/", "purelib/mpmath/")
LEAKED_WORDS, OF_ITEMS = 8, ("question", "answer", "passage")
PROSE_KINDS = {"sotu": "speeches", "kjv": "bible", "wiki": "encyclopedia"}


def pieces(text: str) -> Iterator[str]:
    """Split a text at blank lines into pieces of at most 4,000 characters; a longer paragraph stays whole."""
    held = ""
    for paragraph in text.split("\n\n"):
        if held and len(held) + len(paragraph) > MAX_CHARACTERS:
            yield held
            held = ""
        held = f"{held}\n\n{paragraph}" if held else paragraph
    yield held


def kind_of(name: str) -> str:
    return "maths" if name.startswith(MATHS) else "code"


def documents(downloads: Path, count: int) -> dict[str, str]:
    """Different texts with their kinds, as many as asked for. Raises: ValueError if this machine has fewer."""
    first = [(PROSE_KINDS[name.split("/")[0]], text) for name, text in prose(downloads)]
    code = [(kind_of(name), text) for name, text in installed()]
    first += [each for each in code if each[0] == "maths"]
    rest = [each for each in code if each[0] != "maths"]
    kinds: dict[str, str] = {}
    for kind, text in [*first, *rest]:
        for piece in pieces(text):
            if len(kinds) == count:
                return kinds
            if len(piece) >= MIN_CHARACTERS:
                kinds.setdefault(piece, kind)
    raise ValueError(f"this machine has {len(kinds):,} such documents; asked for {count:,}")


def matches(marks: Artifact, kinds: dict[str, str]) -> Sequence[dict]:
    """Every marked document with its kind, its text and its matches."""
    by_id = {text_digest(text): text for text in kinds}
    table = pl.read_parquet(marks.file("matches.parquet"))
    contaminated = pl.concat(pl.read_parquet(path) for path in marks.files(under="marks/")).filter("contaminated")["id"]
    return [
        {"kind": kinds[by_id[id_]], "id": id_, "matches": table.filter(pl.col("id") == id_).to_dicts(), "text": by_id[id_]}
        for id_ in contaminated
    ]


def is_leak(matches: Sequence[dict]) -> bool:
    """Whether one of a document's matches has eight words in a row of an item's own text."""
    return any(
        match["longest_run"] >= LEAKED_WORDS and match["channel"] in OF_ITEMS and match["tier"] != "partial"
        for match in matches
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--root", default=".marin")
    parser.add_argument("--out", type=Path, default=Path("false_marks.jsonl"))
    options = parser.parse_args()
    store = Lab.at(options.root, execution=Execution(1)).store
    suites = tuple(suite(each) for each in (main_suite(), *wider_suites()))
    index = Node(("repeated_leaks", "index"), None, CONTAMINATION_INDEX, RULES, {"suites": suites})
    build_all(store, [index])
    kinds = documents(store.downloads, options.documents)
    flagged = matches(marked(store, suites, index, Texts(tuple(kinds))), kinds)
    options.out.write_text("".join(json.dumps(each, default=str) + "\n" for each in flagged))
    totals, marks_of = Counter(kinds.values()), Counter(each["kind"] for each in flagged)
    false = Counter(each["kind"] for each in flagged if not is_leak(each["matches"]))
    print("| kind | documents | marked | false | share |", "|---|---|---|---|---|", sep="\n")
    for kind in totals:
        print(f"| {kind} | {totals[kind]:,} | {marks_of[kind]} | {false[kind]} | {false[kind] / totals[kind]:.2%} |")
    print(f"| all | {len(kinds):,} | {len(flagged)} | {false.total()} | {false.total() / len(kinds):.2%} |")
    print(f"{options.out} has each marked document with its matches")


if __name__ == "__main__":
    main()
