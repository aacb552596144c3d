"""What an audit says of preference pairs: which pair holds an item, on which side, and which steps read it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
from planted_marks import leave_corpus, leave_marks
from rich.console import Console
from test_audit import BATCH_SIZE, CHECKPOINT, SUITE, Items, Steps, run_audit

from datakit.readers.pairs import pair_record
from datakit.sources.record import Record
from evals.audit.build import AUDIT, AuditConfig
from evals.audit.pairs import READS_SCHEMA, sides_of
from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.order import DataOrder
from lineage.order.token_shards import tokens_extra, write_flat_shard
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer
from marin_assets.cli.exposure import print_exposure

PAIRS, WIDTH, STEPS = 40, 8, 80
LEAKS = {"7": "prompt", "11": "chosen", "23": "rejected"}
"""Where the text of the item math/<number> stands in the pair of that number."""
ITEMS = tuple(f"math/{name}" for name in (*LEAKS, "99"))


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts that differ from each other."""

    count: int = PAIRS


def leaked(number: str) -> str:
    return f"the exact words of item {number}"


def pair(number: int) -> Record:
    name = str(number)
    texts = {side: f"{side} of {name}" for side in ("prompt", "chosen", "rejected")}
    if name in LEAKS:
        texts[LEAKS[name]] += f": {leaked(name)}"
    record = pair_record(f"pair-{name}", texts["chosen"], texts["rejected"], texts["prompt"])
    assert isinstance(record, Record)
    return record


def write_documents(out: Writer, config: Pairs) -> None:
    records = [pair(number) for number in range(config.count)]
    texts = [str(record.text) for record in records]
    metadata = [json.dumps({"source_id": record.source_id, **record.fields}) for record in records]
    table = pl.DataFrame({"id": [text_digest(text) for text in texts], "text": texts, "metadata": metadata})
    (out.folder / "documents").mkdir()
    table.sort("id").write_parquet(out.folder / "documents" / "part-00000-of-00001.parquet")


def documents(normalized: Artifact) -> pl.DataFrame:
    return pl.read_parquet(normalized.file("documents/part-00000-of-00001.parquet"))


def write_marks(out: Writer, config: Pairs, normalized: Artifact, suites: tuple[Artifact, ...]) -> None:
    """Every document that holds the words of an item, by plain search."""
    rows = []
    for name, text in documents(normalized).select("id", "text").iter_rows():
        for number in LEAKS:
            if (start := text.encode().find(leaked(number).encode())) >= 0:
                end = start + len(leaked(number))
                rows.append((name, "suite", "math", number, "question", "verbatim", 1.0, start, end, 6))
    leave_marks(out, rows, suites[0], {f"math/{number}" for number in LEAKS})


def write_corpus(out: Writer, config: Pairs, normalized: Artifact, contamination: Artifact) -> None:
    """Nothing is removed: the run trains on the leaks."""
    leave_corpus(out, documents(normalized).select("id", "text"))


def write_cache(out: Writer, config: Pairs, corpus: Artifact) -> None:
    """Each pair is a row of tokens of its own number."""
    ids = pl.read_parquet(corpus.file("train/part-00000-of-00001.parquet"))["id"].to_list()
    tokens, ends = np.repeat(np.arange(len(ids)), WIDTH), WIDTH * np.arange(1, len(ids) + 1)
    shard = write_flat_shard(out.folder, "s", ids, tokens, ends, "uint16", np.ones(len(tokens), np.uint8))
    out.facts["tokens"] = tokens_extra("pairs", "uint16", 1 << 16, "tokenizer", None, None, [shard], "uint8", WIDTH)


def write_reference(out: Writer, config: Pairs, checkpoint: Artifact, caches: tuple[Artifact, ...]) -> None:
    (out.folder / "scores").write_text("of every pair")


def node(key: str, name: str, run: object, inputs: Mapping) -> Node:
    return Node((key,), None, Stage(name, "1", run), Pairs(), inputs)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A run on pairs, with its reference, that starts from a run on the same documents as text."""
    suite = Node(("suite",), None, SUITE, Items(ITEMS))
    normalized = node("normalized", "tests.pair_documents", write_documents, {})
    marks = node("marks", "datakit.contamination", write_marks, {"normalized": normalized, "suites": (suite,)})
    corpus = node("corpus", "tests.pair_corpus", write_corpus, {"normalized": normalized, "contamination": marks})
    cache = node("cache", "tests.pair_cache", write_cache, {"corpus": corpus})
    mixture = Node(("mixture",), None, MIXTURE, MixtureConfig("m", (Phase(0, {"pairs": 1.0}),), seed=2), {"caches": (cache,)})
    before = Node(("before",), None, CHECKPOINT, Steps(1), {"mixture": mixture})
    reference = node("reference", "tests.pair_reference", write_reference, {"checkpoint": before, "caches": (cache,)})
    run = Node(("student",), None, CHECKPOINT, Steps(STEPS), {"mixture": mixture, "start": before, "reference": reference})
    inputs = {"checkpoint": run, "suites": (suite,), "contamination": (marks,), "corpora": (corpus,)}
    return run_audit(tmp_path_factory.mktemp("pairs"), Node(("student_audit",), None, AUDIT, AuditConfig(), inputs))


def test_an_item_in_a_pair_is_found_with_pair_side_and_step(audited: Artifact) -> None:
    """The batches, read forward, are the second way: each token is the place of its pair."""
    reads = pl.read_parquet(audited.file("pair_exposures.parquet"))
    found = {
        (row["item_id"], row["pair"], *row["sides"], row["id"], row["step"]) for row in reads.rows(named=True) if row["leg"]
    }
    order = DataOrder.open(audited.input("checkpoint").input("mixture"), WIDTH)
    places = {name: place for place, name in enumerate(documents(audited.input("corpora.0").input("normalized"))["id"])}
    wanted = set()
    for number, side in LEAKS.items():
        name = text_digest(str(pair(int(number)).text))
        steps = [step for step in range(STEPS) if places[name] in order.batch(step * BATCH_SIZE, BATCH_SIZE)]
        wanted |= {(number, f"pair-{number}", side, name, step) for step in steps}
    assert found == wanted and len({row[0] for row in wanted}) == len(LEAKS)
    assert reads.schema == pl.Schema(READS_SCHEMA)


def test_the_summary_and_the_page_name_the_pairs(audited: Artifact) -> None:
    summary = audited.manifest.extra["audit"]
    reads = pl.read_parquet(audited.file("pair_exposures.parquet"))
    assert summary["pairs"]["pairs_read"] == reads["pair"].n_unique() and summary["verdict_at_step"] == "contaminated"
    assert sum(summary["pairs"]["by_side"].values()) == len(set(reads["item_id"]))
    page = audited.file("audit.md").read_text()
    assert all(f"pair-{number}" in page for number in set(reads["item_id"])) and "Preference pairs that hold items" in page


def test_exposure_shows_when_a_pair_was_read(audited: Artifact, capsys: pytest.CaptureFixture[str]) -> None:
    reads = pl.read_parquet(audited.file("pair_exposures.parquet")).filter(leg=1)
    name = reads["id"][0]
    print_exposure("student", str(audited.store.root), [name], None, as_json=True, console=Console())
    shown = json.loads(capsys.readouterr().out)
    assert [row["step"] for row in shown["reads"] if row["leg"] == 1] == reads.filter(id=name)["step"].sort().to_list()


def test_a_match_that_spans_parts_is_on_both() -> None:
    record = pair(11)
    text = str(record.text)
    start, end = text.index("prompt of 11"), text.index("chosen of 11") + 3
    assert sides_of(text, record.fields["preference"], start, end) == ["prompt", "chosen"]
    assert sides_of(text, record.fields["preference"], text.index("rejected of"), len(text)) == ["rejected"]


def test_sides_are_unknown_where_the_text_is_not_that_of_the_messages() -> None:
    """Normalization cuts runs of more than 128 characters of whitespace out of texts."""
    record = pair_record("a", f"four{' ' * 300}!", "five", "two and two?")
    assert isinstance(record, Record)
    text = re.sub(" {128,}", " " * 128, str(record.text))
    assert sides_of(text, record.fields["preference"], 0, 5) == ["unknown"]
    assert sides_of(str(record.text), record.fields["preference"], 0, 5) == ["prompt"]
