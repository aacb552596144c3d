"""The table of canonical assets by key: declarations share assets, and every ancestor of a run is the node of its asset.

A run whose ancestor is not what the asset of that key makes could never be built: the launch would ask for an artifact that no
asset makes. So it is refused when it is declared.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from lineage.build.nodes import Node
from lineage.config import to_jsonable
from lineage.storage.digests import identity_digest
from marin_assets.factory import AssetTemplate
from partitions.axes import sources

type Key = tuple[str, ...]


class AssetTable:
    """Canonical assets by key. Assets of one key and different sources are joined; each partition keeps its own node."""

    def __init__(self) -> None:
        self._assets: dict[Key, AssetTemplate] = {}
        self._partitions: dict[Key, frozenset[str]] = {}
        self._digests: dict[int, tuple[Node, str]] = {}
        self._checked: dict[int, Node] = {}

    def __iter__(self) -> Iterator[AssetTemplate]:
        return iter(self._assets.values())

    def __contains__(self, key: Key) -> bool:
        return key in self._assets

    def add(self, assets: Iterable[AssetTemplate], nodes: Sequence[Node]) -> None:
        """Add the assets of a declaration whose own nodes are `nodes`.

        Raises: ValueError, and nothing is added, if an ancestor of `nodes` is not what the asset of its key makes.
        """
        before = dict(self._assets), dict(self._partitions)
        checked = dict(self._checked)
        try:
            for asset in assets:
                self._join(asset)
            for node in nodes:
                self._check_with_ancestors(node)
        except Exception:
            self._assets, self._partitions = before
            self._checked = checked
            raise

    def _join(self, asset: AssetTemplate) -> None:
        key = asset.example.key
        names = asset.partitions()
        mine = self._assets.get(key)
        if mine is None:
            self._assets[key], self._partitions[key] = asset, frozenset(names)
            return
        if (mine.partitions_def is None) != (asset.partitions_def is None):
            raise ValueError(f"asset {'/'.join(key)} has partitions in one declaration and none in another; rename one record")
        if new := [name for name in names if name not in self._partitions[key]]:
            self._assets[key] = _joined(mine, self._partitions[key], asset, new)
            self._partitions[key] |= frozenset(new)

    def _check_with_ancestors(self, node: Node) -> None:
        """Check a node after its inputs. The check is by object, because two nodes of one key and partition may differ."""
        if id(node) not in self._checked:
            for parent in node.parents():
                self._check_with_ancestors(parent)
            self._check(node)
            self._checked[id(node)] = node

    def _check(self, node: Node) -> None:
        asset = self._assets.get(node.key)
        if asset is None or asset.node is None:
            raise ValueError(f"no asset makes {node.name}; declare the record that it belongs to")
        if asset.partitions_def is not None and node.partition not in self._partitions[node.key]:
            raise ValueError(f"asset {'/'.join(node.key)} has no partition {node.partition!r}")
        declared = asset.node(node.partition)
        if declared is not node and self._digest(declared) != self._digest(node):
            raise ValueError(
                f"two declarations mean different artifacts by {node.name}: {difference(declared, node)}; one of them could "
                "never be made. Give the record that differs a name of its own (scope, decontamination, corpus, tokens, mix)"
            )

    def _digest(self, node: Node) -> str:
        """Return the digest of all that a node is made by and from; no artifact is read."""
        if id(node) not in self._digests:
            inputs = {
                name: [self._digest(each) for each in (value if isinstance(value, tuple) else (value,))]
                for name, value in node.inputs.items()
            }
            identity = [list(node.key), node.partition, node.stage.name, node.stage.version, to_jsonable(node.config), inputs]
            self._digests[id(node)] = node, identity_digest(identity)
        return self._digests[id(node)][1]


def _joined(first: AssetTemplate, own: frozenset[str], other: AssetTemplate, new: Sequence[str]) -> AssetTemplate:
    """Return the first asset with the partitions that only the other has."""
    assert first.node is not None and other.node is not None and first.partitions_def is not None
    node = partial(_either, first.node, own, other.node)
    names = (*first.partitions_def.get_partition_keys(), *new)
    return replace(first, node=node, node_at=lambda lab, partition: node(partition), partitions_def=sources(names))


def _either(first, own: frozenset[str], other, partition: str | None) -> Node:
    return (first if partition in own else other)(partition)


def difference(first: Node, second: Node) -> str:
    """Say what two nodes of one key and partition do not share: stage, config, or the first input that differs."""
    if first.stage is not second.stage:
        return f"stage {first.stage.name} and {second.stage.name}"
    if to_jsonable(first.config) != to_jsonable(second.config):
        return f"config {first.config} and {second.config}"
    one, other = ({parent.name: parent for parent in node.parents()} for node in (first, second))
    if unlike := sorted(one.keys() ^ other.keys()):
        return f"only one of them is made from {', '.join(unlike)}"
    for name, parent in one.items():
        if reason := difference(parent, other[name]):
            return f"{name} differs: {reason}"
    return ""
