"""Walks over the lineage tables: ancestors, descendants, and an order in which things could be made again.

The graph is built once as compressed sparse rows, so the cost of a walk depends on what it visits, not on the store.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np
import polars as pl

from lineage.graph.edges import LineageTables

type Direction = Literal["up", "down"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Compressed sparse rows: the nodes that a node leads to are `others[starts[node] : starts[node + 1]]`, sorted."""

    starts: np.ndarray
    others: np.ndarray

    @classmethod
    def of(cls, nodes: np.ndarray, others: np.ndarray, size: int) -> Self:
        """Return the rows of pairs over `size` nodes; a pair that is given twice (an input under two names) counts once."""
        codes = np.sort(nodes.astype(np.int64) * size + others)
        codes = codes[np.diff(codes, prepend=-1) > 0]
        return cls(np.searchsorted(codes, np.arange(size + 1) * size), codes % max(size, 1))

    def of_node(self, node: int) -> list[int]:
        """Return the nodes that a node leads to."""
        return self.others[self.starts[node] : self.starts[node + 1]].tolist()

    def breadth_first(self, node: int) -> list[int]:
        """Return a node and all that it leads to, also through others, nearest first.

        scipy has the same walk, and takes .2 s to import.
        """
        level, place = np.array([node]), np.zeros(self.starts.size, np.int64)
        levels, is_reached = [level], np.zeros(self.starts.size, np.bool_)
        while level.size:
            is_reached[level] = True
            counts = self.starts[level + 1] - self.starts[level]
            skipped = self.starts[level] - np.cumsum(counts) + counts
            nodes = self.others[np.repeat(skipped, counts) + np.arange(counts.sum())]
            nodes = nodes[~is_reached[nodes]]
            place[nodes[::-1]] = np.arange(nodes.size)[::-1]  # where each is for the first time
            level = nodes[place[nodes] == np.arange(nodes.size)]
            levels.append(level)
        return np.concatenate(levels).tolist()


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
        """Children and parents as indices."""
        names = pl.DataFrame({"address": self.addresses}).with_row_index("i")
        pairs = self.tables.edges.select("child", "parent")
        pairs = pairs.join(names.rename({"i": "c", "address": "child"}), on="child")
        pairs = pairs.join(names.rename({"i": "p", "address": "parent"}), on="parent")
        return pairs["c"].to_numpy(), pairs["p"].to_numpy()

    @cached_property
    def _up(self) -> Rows:
        children, parents = self._edges
        return Rows.of(children, parents, len(self.addresses))

    @cached_property
    def _down(self) -> Rows:
        children, parents = self._edges
        return Rows.of(parents, children, len(self.addresses))

    def is_known(self, address: str) -> bool:
        """Whether an address of the graph has a manifest."""
        return address in self._created

    def walk(self, address: str, direction: Direction) -> list[str]:
        """Return the address and all its ancestors ("up") or descendants ("down"), nearest first.

        Raises: ValueError for an address that the tables do not have.
        """
        rows = self._up if direction == "up" else self._down
        return [self.addresses[node] for node in rows.breadth_first(self._position(address))]

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
        rows = self._up if direction == "up" else self._down
        return [self.addresses[i] for i in rows.of_node(self._position(address))]

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
