"""Purges of random graphs with random pins while other threads build them again, build on them and read them."""

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import THOUSAND_EXAMPLES, examples
from random_lineage import Parents, dags, reached
from storage_worlds import WHEN, bytes_below, dangling, planned

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.jobs.claims import BeingPurgedError
from lineage.stage import Stage
from operations.storage.pins import Pin, add_pin
from operations.storage.plan import RefusedPlanError
from operations.storage.purge import purge, restore, trashed

BUILDERS, READERS, PURGES = 2, 1, 3
GRAPHS = THOUSAND_EXAMPLES if settings().max_examples >= THOUSAND_EXAMPLES else examples(5)
"""All thousand graphs in `make purge-study`; one takes about .2 CPU s."""


@dataclass
class Works:
    """Threads that build and read a graph until they are stopped. `faults`: what none of them may ever see."""

    store: Store
    nodes: Sequence[Node]
    kept: Sequence[str]
    """Addresses that a pin or a declaration protects."""
    stop: threading.Event = field(default_factory=threading.Event)
    faults: list[str] = field(default_factory=list)

    def __enter__(self) -> "Works":
        jobs = [(self._build, i) for i in range(BUILDERS)] + [(self._read, i) for i in range(READERS)]
        self._threads = [threading.Thread(target=job, args=(random.Random(seed),)) for job, seed in jobs]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join()

    def _build(self, chance: random.Random) -> None:
        """Make a node again, with what it needs, or something new from it."""
        while not self.stop.is_set():
            number = chance.randrange(len(self.nodes))
            new = Node(("new", f"n{number}"), None, Stage("tests.new", "1", _number), {"n": number}, {"of": self.nodes[number]})
            try:
                for node in (*self.nodes[: number + 1], *([new] if chance.random() < 0.3 else [])):
                    build(self.store, node)
            except (BeingPurgedError, LookupError):  # it stops at an input that a purge takes, and commits nothing
                continue
            except Exception as error:
                self.faults.append(f"a builder: {error!r}")

    def _read(self, chance: random.Random) -> None:
        while not self.stop.is_set():
            try:
                self.faults += dangling(self.store)
                for address in self.kept:
                    artifact = self.store.open(address)
                    if artifact is None:
                        self.faults.append(f"{address} is protected and gone")
                    else:
                        artifact.verify()
            except Exception as error:
                self.faults.append(f"a reader: {error!r}")


@settings(max_examples=GRAPHS)
@given(graph=dags(), pinned=st.sets(st.integers(0, 8), max_size=3), declared=st.sets(st.integers(0, 8), max_size=2))
def test_nothing_protected_is_lost_and_no_input_dangles_beside_builders_and_readers(
    tmp_path_factory: pytest.TempPathFactory, graph: Parents, pinned: set[int], declared: set[int]
) -> None:
    store = Store(str(tmp_path_factory.mktemp("works")))
    nodes = _nodes(graph)
    made = [build(store, node).artifact for node in nodes]
    pinned, declared = ({i for i in chosen if i < len(made)} for chosen in (pinned, declared))
    for number in pinned:
        add_pin(store, Pin(made[number].spec.address, "ada", "needed", "2999-01-01"))
    roots = {made[number].spec.address: "declared" for number in declared}
    kept = sorted({made[i].spec.address for root in pinned | declared for i in reached(graph, root, "up")})
    data = {name: content for name, content in bytes_below(store).items() if not name.endswith((".json", ".sig"))}
    digests = []
    with Works(store, nodes, kept) as works:
        for _ in range(PURGES):
            digests.append(planned(store, roots, now=WHEN()))
            try:
                taken = purge(store, digests[-1], roots, WHEN()).taken
            except RefusedPlanError:  # something new was made from what it takes: a person makes another plan
                continue
            works.faults += [f"{address} is protected and was taken" for address in taken if address in kept]
    assert not works.faults and not dangling(store)
    for digest in digests:
        for address in trashed(store, digest):
            if store.open(address) is None:
                restore(store, digest, address)
    assert not dangling(store)
    for artifact in made:
        back = store.open(artifact.spec.address)
        assert back is not None and back.data_version == artifact.data_version
        back.verify()
    assert data.items() <= bytes_below(store).items()


def _nodes(graph: Parents) -> list[Node]:
    nodes: list[Node] = []
    for number, above in enumerate(graph):
        inputs = {f"i{place}": nodes[i] for place, i in enumerate(above)}
        nodes.append(Node(("tests", f"n{number}"), None, Stage("tests.node", "1", _number), {"n": number}, inputs))
    return nodes


def _number(out, config, **inputs: Artifact) -> None:
    (out.folder / "number.txt").write_text(f"{config['n']} {sorted(inputs)}")
    out.record(rows_in=0, rows_out=1)
