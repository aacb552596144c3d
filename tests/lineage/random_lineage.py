"""Random artifact graphs in real stores, and slow answers to questions about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    places = {start}
    while more := {b for a, b in pairs if a in places} - places:
        places |= more
    return places


@dataclass(frozen=True)
class Recomputes:
    """A drawn graph in which nodes were made several times with equal bytes.

    `versions[n]` has, for each version of node n, its parents as (node, version); `(n, v)` names one artifact.
    """

    versions: tuple[tuple[tuple[tuple[int, int], ...], ...], ...]

    def write(self, store: Store) -> dict[tuple[int, int], Artifact]:
        """Commit every artifact. Versions of one node differ in their config, so in their address, and not in their bytes."""
        made: dict[tuple[int, int], Artifact] = {}
        for number, versions in enumerate(self.versions):
            for version, above in enumerate(versions):
                made[number, version] = write(store, number, [made[parent] for parent in above], version=version)
        return made

    def below(self, origin: int, made: Mapping[tuple[int, int], Artifact]) -> set[tuple[int, int]]:
        """What is left (`made`) and opens bytes of a node, directly or through others, by following pairs until nothing is
        new. An input that was deleted is replaced by the equal one whose address is first."""
        pairs = set()
        for child in made:
            for parent in self.versions[child[0]][child[1]]:
                equal = [place for place in made if place[0] == parent[0]]
                stand_in = min(equal, key=lambda place: made[place].spec.address, default=(parent[0], -1))
                pairs.add((child, parent if parent in made else stand_in))
        places = {place for place in made if place[0] == origin} | {(origin, -1)}
        while more := {child for child, parent in pairs if parent in places} - places:
            places |= more
        return places - {(origin, -1)}


@st.composite
def recomputes(draw: st.DrawFn, max_nodes: int = 7) -> Recomputes:
    count = draw(st.integers(1, max_nodes))
    versions: list[tuple[tuple[tuple[int, int], ...], ...]] = []
    for number in range(count):
        parent = st.integers(0, number - 1).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, len(versions[n]) - 1)))
        above = st.lists(parent, max_size=3, unique=True).map(tuple) if number else st.just(())
        versions.append(tuple(draw(st.lists(above, min_size=1, max_size=3))))
    return Recomputes(tuple(versions))
