"""A small store in the shape of the lab's: two sources, a corpus, a checkpoint, its export and its audit."""

import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.stage import Stage
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class Named:
    name: str = ""
    licence: str | None = "MIT"


def _raw(out: Writer, config: Named) -> None:
    (out.folder / "text.txt").write_text(config.name)
    licence = {"claim": "CC-BY-4.0", "why": "the card says so"} if config.licence is None else config.licence
    out.extra["source"] = {"name": config.name, "licence": licence}


def _corpus(out: Writer, config: Named, **inputs: Artifact) -> None:
    for split, rows in (("train", 3), ("heldout", 1)):
        (out.folder / split).mkdir()
        ids = [f"{row:032x}" for row in range(rows)]
        frame = pl.DataFrame({"id": ids, "text": ["some text"] * rows, "source": ["one"] * rows, "metadata": ["{}"] * rows})
        frame.write_parquet(out.folder / split / "part-00000-of-00001.parquet")
    out.record(rows_in=4, rows_out=4)


def _model(out: Writer, config: Named, **inputs: Artifact) -> None:
    (out.folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (out.folder / "model.safetensors").write_bytes(b"weights" * 100)
    out.extra["hf_model"] = {"architecture": "LlamaForCausalLM", "eos": [0], "dtype": "float32"}


def _audit(out: Writer, config: Named, **inputs: Artifact) -> None:
    (out.folder / "audit.json").write_text("{}")
    out.extra["audit"] = {"verdict": "clean"}


RAW, CORPUS = Stage("datakit.raw", "1", _raw), Stage("datakit.corpus", "1", _corpus)
CHECKPOINT, EXPORT = Stage("trainer.checkpoint", "1", _model), Stage("trainer.hf_model", "1", _model)
AUDIT = Stage("evals.audit", "1", _audit)


@dataclass(frozen=True)
class Lab:
    corpus: Artifact
    checkpoint: Artifact
    exported: Artifact
    audit: Artifact


def small_lab(root: Path, *, licence: str | None = None) -> Lab:
    """Make every artifact. The second source's licence is unverified unless it is given."""
    store = Store(str(root))
    one = Node(("raw",), "one", RAW, Named("one", "MIT"))
    two = Node(("raw",), "two", RAW, Named("two | of <them>", licence))
    corpus = Node(("corpus",), None, CORPUS, Named(), {"one": one, "two": two})
    checkpoint = Node(("runs", "tiny", "checkpoint"), "step-1", CHECKPOINT, Named(), {"corpus": corpus})
    exported = Node(("runs", "tiny", "hf_model"), "step-1", EXPORT, Named(), {"checkpoint": checkpoint})
    audit = Node(("runs", "tiny", "contamination_audit"), "step-1", AUDIT, Named(), {"checkpoint": checkpoint})
    for node in (one, two):
        build(store, node)
    return Lab(*(build(store, node).artifact for node in (corpus, checkpoint, exported, audit)))
