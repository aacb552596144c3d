"""Walks over the lineage tables: ancestors, descendants, and an order in which things could be made again.

The graph is built once as compressed sparse rows, so the cost of a walk depends on what it visits, not on the store.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from lineage.graph.edges import LineageTables

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # .3 CPU seconds, which commands that walk nothing do not pay

type Direction = Literal["up", "down"]


@dataclass(frozen=True)
class LineageGraph:
    """Nodes are addresses. An input whose manifest is gone is a node too (`is_known` is False for it)."""

    tables: LineageTables

    @cached_property
    def addresses(self) -> list[str]:
        """Every artifact and every input, sorted."""
        known = self.tables.artifacts.select("address")
        gone = self.tables.edges.select(address="parent").join(known, on="address", how="anti").unique()
        return pl.concat([known, gone])["address"].sort().to_list()

    @cached_property
    def index(self) -> dict[str, int]:
        return {address: i for i, address in enumerate(self.addresses)}

    @cached_property
    def _created(self) -> dict[str, str]:
        return dict(self.tables.artifacts.select("address", "created").iter_rows())

    @cached_property
    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Children and parents as indices, each pair once (an input may be given twice under two names)."""
        names = pl.DataFrame({"address": self.addresses}).with_row_index("i")
        pairs = self.tables.edges.select("child", "parent")
        pairs = pairs.join(names.rename({"i": "c", "address": "child"}), on="child")
        pairs = pairs.join(names.rename({"i": "p", "address": "parent"}), on="parent").select("c", "p").unique()
        return pairs["c"].to_numpy(), pairs["p"].to_numpy()

    @cached_property
    def _up(self) -> "csr_array":
        from scipy.sparse import csr_array

        children, parents = self._edges
        size = len(self.addresses)
        return csr_array((np.ones(children.size, np.int8), (children, parents)), shape=(size, size))

    @cached_property
    def _down(self) -> "csr_array":
        return self._up.T.tocsr()

    def is_known(self, address: str) -> bool:
        """Whether an address of the graph has a manifest."""
        return address in self._created

    def walk(self, address: str, direction: Direction) -> list[str]:
        """Return the address and all its ancestors ("up") or descendants ("down"), nearest first.

        Raises: ValueError for an address that the tables do not have.
        """
        from scipy.sparse.csgraph import breadth_first_order

        start = self._position(address)
        order = breadth_first_order(self._up if direction == "up" else self._down, start, return_predecessors=False)
        return [self.addresses[i] for i in order]

    def reach(self, addresses: Iterable[str], direction: Direction) -> set[str]:
        """Return the addresses and all their ancestors ("up") or descendants ("down")."""
        reached: set[str] = set()
        for address in addresses:
            if address not in reached:
                reached.update(self.walk(address, direction))
        return reached

    def require(self, address: str) -> None:
        """Raises: ValueError for an address that the tables do not have."""
        self._position(address)

    def neighbours(self, address: str, direction: Direction) -> list[str]:
        """Return the direct inputs ("up") or direct descendants ("down") in address order."""
        matrix = self._up if direction == "up" else self._down
        start = self._position(address)
        return [self.addresses[i] for i in np.sort(matrix.indices[matrix.indptr[start] : matrix.indptr[start + 1]])]

    def oldest_first(self, addresses: Iterable[str]) -> list[str]:
        """Sort inputs before what was made from them, older artifacts first where that leaves a choice.

        Raises: ValueError when the edges among them go in a circle, which only a forged table can.
        """
        chosen = set(addresses)
        waits = {address: sum(p in chosen for p in self.neighbours(address, "up")) for address in chosen}
        ready = [(self._created.get(address, ""), address) for address, count in waits.items() if not count]
        heapq.heapify(ready)
        ordered = []
        while ready:
            _, address = heapq.heappop(ready)
            ordered.append(address)
            for child in self.neighbours(address, "down"):
                if child in chosen:
                    waits[child] -= 1
                    if not waits[child]:
                        heapq.heappush(ready, (self._created.get(child, ""), child))
        if len(ordered) != len(chosen):
            left = sorted(chosen - set(ordered))[0]
            raise ValueError(f"the lineage of {left} goes in a circle: check it with `./marin lineage --check`")
        return ordered

    def _position(self, address: str) -> int:
        if address not in self.index:
            raise ValueError(f"no artifact at {address!r} in the lineage tables; they hold {len(self.addresses):,} addresses")
        return self.index[address]
