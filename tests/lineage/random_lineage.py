"""Random artifact graphs in real stores, and slow answers to questions about them."""

from collections.abc import Sequence

from hypothesis import strategies as st

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.writing.write import writing

type Parents = list[list[int]]
"""For every node, the earlier nodes that it was made from; one may be given twice, under two names."""


@st.composite
def dags(draw: st.DrawFn, max_nodes: int = 9) -> Parents:
    count = draw(st.integers(1, max_nodes))
    return [draw(st.lists(st.integers(0, i - 1), max_size=3)) if i else [] for i in range(count)]


def write(store: Store, number: int, inputs: Sequence[Artifact], stage: str = "tests.node", **config: object) -> Artifact:
    """Commit one artifact whose only file holds its number."""
    refs = tuple(parent.ref(f"inputs.{i}") for i, parent in enumerate(inputs))
    spec = ArtifactSpec(("tests", f"n{number}"), None, stage, "1", {"number": number, **config}, refs)
    with writing(store, spec, code_fingerprint="code") as out:
        (out.folder / "number.txt").write_text(str(number))
    return out.artifact


def write_dag(store: Store, parents: Parents) -> list[Artifact]:
    made: list[Artifact] = []
    for number, above in enumerate(parents):
        made.append(write(store, number, [made[i] for i in above]))
    return made


def reached(parents: Parents, start: int, direction: str) -> set[int]:
    """Ancestors ("up") or descendants ("down") of a node, itself included, by following pairs until nothing is new."""
    pairs = {(child, parent) for child, above in enumerate(parents) for parent in above}
    if direction == "down":
        pairs = {(parent, child) for child, parent in pairs}
    found = {start}
    while more := {b for a, b in pairs if a in found} - found:
        found |= more
    return found
