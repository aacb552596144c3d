"""Small inputs for the data stages: documents, marks, and the stages between them, built for real in a temporary store."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from datakit.corpus.build import CORPUS, CorpusConfig
from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig
from datakit.dedup.minhash import MINHASH, MinHashConfig
from datakit.documents.parts import DOCUMENTS, TARGET_PART_BYTES, document_paths, write_parquet, write_sorted_parts
from datakit.documents.schemas import DOCUMENT_SCHEMA
from datakit.quality.verdicts import QUALITY, quality_config
from datakit.sources.raw import RAW
from datakit.sources.source import Domain, Format, Loader, Records, Source
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.shards.execution import ONE_WORKER, Execution
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer

JSONL = Records("jsonl")
ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = [f"{a}{b}{c}" for a in "bdfgklmnprstvz" for b in "aeiou" for c in ("ndle", "rt", "lling", "sk", "m", "tion")]


def source_of(loader: Loader, format: Format | Records = JSONL, domain: Domain = "prose", *, trainable: bool = True) -> Source:
    """A source of a loader, whose other fields do not matter to the test."""
    return Source(
        name="s",
        loader=loader,
        format=format,
        domain=domain,
        licence="MIT",
        terms="none",
        mixture_weight=1.0,
        trainable=trainable,
    )


def fetched(root: Path, loader: Loader, execution: Execution = ONE_WORKER, *, trainable: bool = True) -> Artifact:
    """The raw files of a loader."""
    declared = source_of(loader, trainable=trainable)
    return build(Store(str(root)), Node(("raw",), "s", RAW, declared), execution=execution).artifact


@dataclass(frozen=True)
class Texts:
    """A source, spelled out."""

    source: str
    texts: tuple[str, ...]
    domain: str = "encyclopedia"
    part_bytes: int = TARGET_PART_BYTES
    line: str = "datakit"
    """First part of the keys: documents of other content under the same source need another place."""


@dataclass(frozen=True)
class Marked:
    """Texts that count as contaminated."""

    texts: tuple[str, ...] = ()


def _write_documents(out: Writer, config: Texts) -> None:
    rows = {(text_digest(text), text, config.source, '{"source_id": "here"}') for text in config.texts}
    frame = pl.DataFrame(sorted(rows), schema=dict.fromkeys(DOCUMENT_SCHEMA.names, pl.String), orient="row")
    write_sorted_parts(out.folder, DOCUMENTS, frame, config.part_bytes)
    out.extra["documents"] = {"domain": config.domain}
    out.record(rows_in=len(config.texts), rows_out=len(rows), drops={"exact_duplicate": len(config.texts) - len(rows)})


def _write_marks(out: Writer, config: Marked, normalized: Artifact) -> None:
    marked = [text_digest(text) for text in config.texts]
    for path in document_paths(normalized):
        ids = pl.read_parquet(path, columns=["id"])
        marks = ids.with_columns(contaminated=pl.col("id").is_in(marked), tier=pl.lit(""), best_score=pl.lit(0.0))
        write_parquet(out.folder / "marks" / path.name, marks.to_arrow())


NOTHING_MARKED = Marked()
TEXTS = Stage("tests.documents", "1", _write_documents)
MARKS = Stage("tests.marks", "1", _write_marks)


def documents(config: Texts) -> Node:
    return Node((config.line, "normalized"), config.source, TEXTS, config)


def minhash(config: Texts, how: MinHashConfig | None = None) -> Node:
    return Node((config.line, "minhash"), config.source, MINHASH, how or MinHashConfig(), {"normalized": documents(config)})


def duplicates(
    sources: tuple[Texts, ...],
    how: DuplicatesConfig | None = None,
    signed: MinHashConfig | None = None,
    *earlier: tuple[Texts, ...],
) -> Node:
    """Duplicates of a scope; `earlier` are the sources of the scopes before it, the oldest first."""
    inputs = {"normalized": tuple(map(documents, sources)), "minhash": tuple(minhash(s, signed) for s in sources)}
    if earlier:
        texts = [each for scope in earlier for each in scope]
        inputs |= {
            "earlier_normalized": tuple(map(documents, texts)),
            "earlier_minhash": tuple(minhash(each, signed) for each in texts),
            "earlier_duplicates": tuple(duplicates(scope, how, signed, *earlier[:i]) for i, scope in enumerate(earlier)),
        }
    name = "-".join(["scope", *(str(len(scope)) for scope in earlier)])
    return Node(("duplicates", name), None, DUPLICATES, how or DuplicatesConfig(), inputs)


def quality(config: Texts) -> Node:
    rules = quality_config(config.domain)
    return Node((config.line, "quality"), config.source, QUALITY, rules, {"normalized": documents(config)})


def marks(config: Texts, marked: Marked = NOTHING_MARKED) -> Node:
    return Node((config.line, "marks"), config.source, MARKS, marked, {"normalized": documents(config)})


def corpus(
    config: Texts, scope: tuple[Texts, ...] = (), how: CorpusConfig | None = None, marked: Marked = NOTHING_MARKED
) -> Node:
    how = how or CorpusConfig()
    inputs = {
        "normalized": documents(config),
        "contamination": marks(config, marked),
        "duplicates": duplicates(scope or (config,)),
    }
    if how.drop_low_quality:
        inputs["quality"] = quality(config)
    return Node(("corpus", "small"), config.source, CORPUS, how, inputs)


def made(root: Path, node: Node, workers: int = 1) -> Artifact:
    """The node's artifact, its ancestors first, in the store below `root`."""
    store = Store(str(root))
    for parent in node.parents():
        made(root, parent, workers)
    return build(store, node, execution=Execution(workers)).artifact


def printed_after_a_kill(code: str, root: Path) -> list[str]:
    """Run a script that kills itself, with a new folder as its argument; then again: the words that it prints."""
    root.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)])}
    command = [sys.executable, "-c", code, str(root)]
    first, second = (subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120) for _ in range(2))
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert second.returncode == 0, second.stderr
    return second.stdout.split()


def random_texts(count: int, words: int, seed: int) -> list[str]:
    """Texts of invented words, a sentence of ten words a line: they share no 5-gram but by chance."""
    generator = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        chosen = [VOCABULARY[i] for i in generator.integers(0, len(VOCABULARY), words)]
        lines = [" ".join(chosen[i : i + 10]) for i in range(0, words, 10)]
        texts.append(".\n".join(line.capitalize() for line in lines) + ".")
    return texts


def edited(text: str, seed: int, edits: int = 1) -> str:
    """The text with some of its words replaced."""
    generator = np.random.default_rng(seed)
    words = text.split(" ")
    for place in generator.choice(len(words), edits, replace=False):
        words[place] = f"edited{seed}x{place}"
    return " ".join(words)


def file_bytes(artifact: Artifact) -> dict[str, bytes]:
    """Every data file's bytes by its path."""
    folder = artifact.folder()
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in artifact.files()}
