"""Every contamination policy over the sources of the default corpus, side by side.

    PYTHONPATH=. .venv/bin/python benchmarks/compare_policies.py [--root .marin] [--sources wiki kjv] [--out FOLDER]

The policies are the recommended one, the two that the product keeps (GPT-3, Tulu 3) and those of `rival_policies/`
(Marin, datatrove, Dolma, GPT-3 with lengths by benchmark). Indexes and marks are made where the store lacks them.
Prints three tables: what each policy marks, what it finds of planted items and marks falsely, and which policies agree.
`--out` keeps which items and which documents each policy marks (`items.parquet`, `documents.parquet`).
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchmarks.rival_policies.comparison import as_markdown, compare_policies
from benchmarks.rival_policies.policies import rival_policies
from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.index import CONTAMINATION_INDEX
from datakit.contamination.marks import CONTAMINATION
from lineage.build.nodes import Node, ancestors_first
from lineage.build.plan import build
from recipes import data
from recipes.contamination import published_policies
from recipes.records.data import Decontamination
from recipes.studies.default import default_corpus
from resources.lab import Lab


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=".marin")
    parser.add_argument("--sources", nargs="+", help="default: all sources of the default corpus")
    parser.add_argument("--out", type=Path, help="an empty folder for the tables of items and documents")
    options = parser.parse_args()
    corpus = default_corpus()
    nodes = [node for source in options.sources or corpus.sources for node in marks_by_policy(corpus.decontamination, source)]
    store = Lab.at(options.root).store
    made = {node: build(store, node).artifact for node in ancestors_first(nodes)}
    comparison = compare_policies([made[node] for node in nodes], ContaminationConfig().policy)
    print(as_markdown(comparison))
    if options.out:
        options.out.mkdir(parents=True)
        comparison.items.write_parquet(options.out / "items.parquet")
        comparison.documents.write_parquet(options.out / "documents.parquet")


def marks_by_policy(of: Decontamination, source: str) -> Iterator[Node]:
    """Marks of a source by every policy."""
    yield data.contamination(of, source)
    for name in published_policies():
        yield data.named_contamination(of, name, source)
    clean = tuple(data.normalized(name) for name in of.clean)
    for name, policy in rival_policies().items():
        suites = data.suites(of.suites)
        index = Node(("contamination_index", name), None, CONTAMINATION_INDEX, policy, {"suites": suites, "clean": clean})
        inputs = {"normalized": data.normalized(source), "suites": suites, "index": index}
        yield Node(("contamination", name), source, CONTAMINATION, policy, inputs)


if __name__ == "__main__":
    main()
