"""Results of an evaluation as artifacts, written by the evaluator's own writers from declared verdicts."""

import json
from dataclasses import asdict, dataclass

from evals.items.stage import EVAL_RESULT
from evals.scoring.records import EvalRecord, Score, write_records
from evals.scoring.statistics import share_score
from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer

ITEMS = 10


@dataclass(frozen=True)
class Policy:
    """A policy's name, and what it binds."""

    name: str
    suite: str


@dataclass(frozen=True)
class Verdicts:
    """The first `right` items are right, the rest of the first `graded` are wrong, the others have no verdict."""

    right: int
    graded: int
    wording: str


def _write_checkpoint(out: Writer, config: dict) -> None:
    (out.folder / "weights").write_text(config["model"])
    out.extra["checkpoint"] = {"step": 10, "tokens_seen": 1000}


def _write_policy(out: Writer, config: Policy) -> None:
    (out.folder / "policy.json").write_text(json.dumps(asdict(config)))


def _write_result(out: Writer, config: Verdicts, checkpoint: Artifact, policy: Artifact) -> None:
    def record(n: int) -> EvalRecord:
        graded, right = n < config.graded, n < config.right
        verdict = "graded" if graded else "failed"
        bits = (1.0 if right else 2.0) if graded else None
        digest = text_digest(f"{config.wording} {n}")
        return EvalRecord(
            "quiz", f"{n:02d}", "cloze-0shot/3", checkpoint.data_version, digest, "{}", verdict, right if graded else None, bits
        )

    records = [record(n) for n in range(ITEMS)]
    write_records(records, out.folder / "records.parquet")
    bits = sum(r.bpb for r in records if r.bpb is not None) / config.graded
    scores = [
        share_score("quiz", "accuracy", config.right, config.graded, ITEMS),
        share_score("quiz", "accuracy_per_byte", config.right, config.graded, ITEMS),
        Score("quiz", "gold_bits_per_byte", bits, bits - 0.1, bits + 0.1, config.graded, ITEMS),
        share_score("quiz", "unparsed", ITEMS - config.right, ITEMS, ITEMS),
        Score("quiz", "chance", 0.25, 0.25, 0.25, config.graded, ITEMS),
    ]
    out.extra["scores"] = [score.rounded() for score in scores]
    name = json.loads(policy.files("policy.json")[0].read_text())["name"]
    out.extra["policy"] = {"name": name, "data_version": policy.data_version, "code_drifted": False}


CHECKPOINT_STAGE = Stage("tests.checkpoint", "1", _write_checkpoint)
_POLICY = Stage("tests.policy", "1", _write_policy)
_RESULT = Stage(EVAL_RESULT.name, "tests", _write_result)


def result_node(
    model: str, policy: str, right: int, graded: int, wording: str = "Which?", *, suite: str = "s", day: str | None = None
) -> Node:
    """One result of a model at step 10, or of the model that a day made."""
    inputs = {
        "checkpoint": Node(
            ("runs", model, "checkpoint"), day or "step-00000010", CHECKPOINT_STAGE, {"model": f"{model} {day or ''}"}
        ),
        "policy": Node(("eval_policy", policy), None, _POLICY, Policy(policy, suite)),
    }
    place = ("runs", model, "eval_result"), day or "step-00000010|quiz"
    return Node(*place, _RESULT, Verdicts(right, graded, wording), inputs)
