"""What a student's audit says of its teachers: rollouts by name and step, items that only the teacher read, and unknowns."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from chat_stub import chatting
from planted_marks import leave_corpus, leave_marks
from small_synthetic import accepted_node, shard_config
from test_audit import (
    CHECKPOINT,
    ITEMS,
    SUITE,
    WEB,
    Items,
    Steps,
    audit_node,
    run_audit,
    with_leak,
)

from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.documents.parts import read_documents
from datakit.sources.raw import RAW
from evals.audit.build import AUDIT, AuditConfig
from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.token_shards import tokens_extra, write_token_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer
from post_training.synthetic.spec import AcceptConfig, Teacher
from recipes.sources_studies import synthetic_source

LEAKED = "7+7=14"
"""The text of the item math/0: only the teacher's completion of one prompt makes it."""


@dataclass(frozen=True)
class Held:
    """Marks that match documents with a text, for one item."""

    text: str = LEAKED
    item: str = "math/0"


def write_marks(out: Writer, config: Held, normalized: Artifact, suites: tuple[Artifact, ...]) -> None:
    """Every document that holds the text, by plain search."""
    documents = read_documents(normalized)
    held = documents.filter(pl.col("text").str.contains(config.text, literal=True))["id"].to_list()
    rows = [(each, "suite", *config.item.split("/"), "question", "verbatim", 1.0, 0, len(config.text), 6) for each in held]
    leave_marks(out, rows, suites[0], {config.item} if held else ())


def write_corpus(out: Writer, config: Held, normalized: Artifact, contamination: Artifact) -> None:
    """Nothing is removed: the student trains on the leak."""
    leave_corpus(out, read_documents(normalized).select("id", "text"))


def write_cache(out: Writer, config: Held, corpus: Artifact) -> None:
    documents = pl.read_parquet(corpus.file("train/part-00000-of-00001.parquet"))
    rows = [(name, np.frombuffer(text.encode(), np.uint8).astype(np.int64)) for name, text in documents.iter_rows()]
    shard = write_token_shard(out.folder, "s", rows, "uint16")
    out.facts["tokens"] = tokens_extra("sums", "uint16", 1 << 16, "tokenizer", None, None, [shard])


def answers(messages: list[dict]) -> str:
    left, right = messages[0]["content"].removesuffix("=").split("+")
    return f"{int(left) + int(right):02d}"


def student_audit(root: Path, teacher: Node | None, audits: tuple[Node, ...] = ()) -> Artifact:
    """Sample a teacher that is always right, train a student on what is accepted, and audit it."""
    suite = Node(("suite",), None, SUITE, Items(ITEMS))
    run_audit(root, suite)  # by itself: the suite of the teacher's audit may have the same key and other items
    with chatting(answers) as stub:
        config = shard_config(stub.url, teacher=Teacher("stub", stub.url, "chat"), samples=1, most_prompts=None)
        accepted = accepted_node(config, teacher, AcceptConfig())
        if teacher is not None:
            stub.versions["stub"] = run_audit(root, teacher).data_version
        source = synthetic_source("sums", "sums", "math", "CC0-1.0")
        raw = Node(("datakit", "raw"), "sums", RAW, source, {"accepted": accepted})
        of = NormalizeConfig("sums", source.format, source.domain)
        normalized = Node(("datakit", "normalized"), "sums", NORMALIZE, of, {"raw": raw})
        run_audit(root, normalized)
    seen = {"normalized": normalized, "suites": (suite,)}
    marks = Node(("marks",), "sums", Stage("datakit.contamination", "1", write_marks), Held(), seen)
    both = {"normalized": normalized, "contamination": marks}
    corpus = Node(("corpus",), "sums", Stage("tests.taught_corpus", "1", write_corpus), Held(), both)
    cache = Node(("cache",), "sums", Stage("tests.taught_cache", "1", write_cache), Held(), {"corpus": corpus})
    mixture = Node(("mixture",), "sums", MIXTURE, MixtureConfig("m", (Phase(0, {"sums": 1.0}),), seed=2), {"caches": (cache,)})
    inputs = {
        "checkpoint": Node(("student",), None, CHECKPOINT, Steps(20), {"mixture": mixture}),
        "suites": (suite,),
        "contamination": (marks,),
        "corpora": (corpus,),
    }
    if audits:
        inputs["teacher_audits"] = audits
    return run_audit(root, Node(("student_audit",), None, AUDIT, AuditConfig(), inputs))


def statuses(audit: Artifact) -> dict[str, tuple[str, bool]]:
    table = pl.read_parquet(audit.file("teachers.parquet"))
    return {f"{row['task']}/{row['item_id']}": (row["status"], row["seen_by_student"]) for row in table.iter_rows(named=True)}


KNOWN = replace(WEB, statuses={})


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The teacher had read law/0, its own rollout holds math/0, and nobody looked for law/1 and math/2 in what it read."""
    items = tuple(name for name in ITEMS if name != "math/2")
    teacher = audit_node(
        items, (replace(with_leak(), statuses={"law/0": "matched", "law/1": "unknown", "math/1": "whole_only"}),), step=40
    )
    root = tmp_path_factory.mktemp("taught")
    run_audit(root, teacher)
    return student_audit(root, teacher.inputs["checkpoint"], (teacher,))


def test_an_item_in_an_accepted_rollout_is_found_with_rollout_and_step(audited: Artifact) -> None:
    reads = pl.read_parquet(audited.file("rollout_exposures.parquet"))
    assert set(reads["rollout"]) == {"7+7#0"} and set(reads["prompt_id"]) == {"7+7"}
    exposed = pl.read_parquet(audited.file("exposures.parquet"))
    assert sorted(set(reads["step"])) == sorted(set(exposed["step"])) and len(reads) > 0
    item = pl.read_parquet(audited.file("items.parquet")).filter(pl.col("item_id") == "0", pl.col("task") == "math")
    assert item["first_step"][0] == reads["step"].min()
    teacher = audited.input("teacher_audits.0").input("checkpoint")
    assert set(reads["teacher_version"]) == {teacher.data_version}


def test_an_item_that_only_the_teacher_read_is_teacher_exposed(audited: Artifact) -> None:
    found = statuses(audited)
    assert found == {
        "law/0": ("teacher exposed", False),
        "math/0": ("clean", True),
        "math/1": ("unknown", False),  # half of it may have been read
        "math/2": ("unknown", False),
        "law/1": ("unknown", False),
    }
    page = audited.file("audit.md").read_text()
    assert "What the teachers had read" in page and "7+7#0" in page and "law 0" in page


def test_a_teacher_by_url_and_one_without_an_audit_are_unknown(tmp_path: Path) -> None:
    by_url = student_audit(tmp_path / "url", None)
    assert {status for status, _ in statuses(by_url).values()} == {"unknown"}
    assert json.loads(by_url.file("audit.json").read_text())["teachers"]["sets"][0]["teacher"] == "stub (by URL)"
    teacher = audit_node(ITEMS, (KNOWN,), step=4).inputs["checkpoint"]
    without = student_audit(tmp_path / "unaudited", teacher)
    assert {status for status, _ in statuses(without).values()} == {"unknown"}


def test_an_audit_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    teacher = audit_node(ITEMS, (KNOWN,), step=4).inputs["checkpoint"]
    other = audit_node(ITEMS, (KNOWN,), step=9)
    run_audit(tmp_path, other)
    with pytest.raises(ValueError, match="audits a checkpoint that taught none"):
        student_audit(tmp_path, teacher, (other,))


def test_a_student_without_a_teacher_has_no_such_files(tmp_path: Path) -> None:
    made = run_audit(tmp_path, audit_node(ITEMS, (WEB,), step=4))
    assert "teachers.parquet" not in made.manifest.paths
    assert "teachers" not in made.manifest.extra["audit"]
