"""One question to an edited checkout, in a process of its own: what would the lab reuse, flag as drifted and make again?

    python benchmarks/edits_probe.py question.json answer.json      (started by benchmarks/edits.py)

What is missing and cheap is made. What is flagged is verified. What is reused without a flag is made again too and compared,
with the inputs that it has today: that is the oracle, which the lab itself does not consult.
"""

import json
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.edits_run import edits_run
from evals.reports.report import REPORT
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import MissingArtifactError, Node, resolve
from lineage.build.plan import build
from lineage.build.verify import difference, verify
from lineage.config import to_jsonable
from lineage.shards.execution import Execution
from lineage.storage.digests import identity_digest
from lineage.trust.evidence import drift_of
from lineage.trust.fingerprint import stage_code
from lineage.writing.write import writing
from recipes import ferry as recipe
from recipes.stages import stages


def main(question_path: str, answer_path: str) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    question = json.loads(Path(question_path).read_text())
    started = time.perf_counter()
    nodes = recipe.nodes(edits_run())
    store = Store(question["root"])
    execution = Execution(question["workers"])
    with tempfile.TemporaryDirectory(prefix="edits-probe-") as scratch:
        answers = {node.name: answer(node, store, question, Store(f"{scratch}/s"), execution) for node in nodes}
    hashes: dict[str, str] = {}
    for node in nodes:
        hashes[node.name] = answers[node.name]["marin"] = declared_hash(node, hashes)
    Path(answer_path).write_text(json.dumps({"seconds": time.perf_counter() - started, "nodes": answers}, indent=1))


def answer(node: Node, store: Store, question: dict[str, Any], scratch: Store, execution: Execution) -> dict[str, Any]:
    """What becomes of one node: `status` reused, rebuilt, refused, would_run (a job), behind (one of those)."""
    answered: dict[str, Any] = {"stage": node.stage.name, "key": "/".join(node.key)}
    may_run = node.stage.job is None or question["base"] or node.stage.name in question["jobs"]
    try:
        artifact = resolve(store, node)
    except MissingArtifactError as error:
        if error.node is not node:
            return answered | {"status": "behind"}
        if not may_run:
            return answered | {"status": "would_run"}
        try:
            made = build(store, node, execution=execution).artifact
        except ValueError as refusal:
            return answered | {"status": "refused", "detail": str(refusal)}
        return answered | {"status": "rebuilt", "data_version": made.data_version}
    answered |= {"status": "reused", "data_version": artifact.data_version}
    drift = drift_of(artifact, stage_code(node.stage.module))
    if drift is not None:
        answered["flagged"] = list(drift.changes)
    if may_run and drift is not None:
        evidence = verify(artifact, stages()[node.stage.name], scratch, who="benchmarks/edits.py", execution=execution)
        answered |= {"outcome": evidence.outcome, "extent": evidence.extent, "detail": evidence.detail}
    elif may_run and node.stage.name != REPORT.name:
        detail = oracle(artifact, node, store, scratch)
        answered |= {"oracle": "differs" if detail else "equal", "detail": detail}
    return answered


def oracle(artifact: Artifact, node: Node, store: Store, scratch: Store) -> str:
    """Return how a reused artifact would differ if it were made again from the inputs that it resolves today.

    The report is left out of the comparison: it prints how long other stages took.
    """
    inputs = {
        name: tuple(resolve(store, n) for n in value) if isinstance(value, tuple) else resolve(store, value)
        for name, value in node.inputs.items()
    }
    assert node.stage.run is not None  # jobs have no oracle
    try:
        with writing(scratch, artifact.spec) as out:
            node.stage.run(out, node.config, **inputs)
    except ValueError as error:
        return f"refused: {error}"
    return difference(artifact.manifest, out.artifact.manifest, facts=True)


def declared_hash(node: Node, hashes: dict[str, str]) -> str:
    """A simulation of Marin's step identity: name, declared config and the hashes of the steps that it depends on.

    A bumped stage version stands for the versioned value that a careful author would have changed. Code is not included, and a
    dependency counts by its own hash, not by its bytes (docs/references.md#marin-executor).
    """
    parents = [hashes[parent.name] for parent in node.parents()]
    return identity_digest([list(node.key), node.stage.name, node.stage.version, to_jsonable(node.config), parents])


if __name__ == "__main__":
    main(*sys.argv[1:])
