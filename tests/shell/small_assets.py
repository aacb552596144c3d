"""A lab of four small assets made by the lab's factory, in real Dagster runs, with refreshable data.

`raw` and `clean` have a partition a source, `mix` takes every source, `run` takes the mix.
"""

import datetime
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg

from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.graph.consistency import Comparison
from lineage.shards.execution import Execution
from lineage.stage import Stage
from lineage.writing.writer import Writer
from marin_assets.consistency import check_consistency
from marin_assets.factory import AssetTemplate, family_asset
from resources.dagster_private import BaseAssetGraph
from resources.lab import Lab, LabResource

TODAY = datetime.date(2026, 11, 21)


def _write(out: Writer, config: dict[str, object], **inputs: Artifact | tuple[Artifact, ...]) -> None:
    parents = [a.data_version for value in inputs.values() for a in (value if isinstance(value, tuple) else (value,))]
    (out.folder / "text.txt").write_text(f"{config} {parents}")


TEXT = Stage("tests.text", "1", _write)


@dataclass
class SmallAssets:
    """`declared` is what the sources hold today; `instead` replaces assets of the factory by a test's own."""

    root: Path
    instance: dg.DagsterInstance
    sources: tuple[str, ...] = ("a", "b")
    declared: dict[str, int] = field(default_factory=dict)
    instead: list[dg.AssetsDefinition] = field(default_factory=list)

    @property
    def resource(self) -> LabResource:
        return LabResource(root=str(self.root), workers=1)

    @property
    def lab(self) -> Lab:
        return Lab.at(str(self.root), execution=Execution(1))

    def raw(self, source: str) -> Node:
        return Node(("raw",), source, TEXT, {"source": source, "revision": self.declared.get(source, 1)})

    def clean(self, source: str) -> Node:
        return Node(("clean",), source, TEXT, {}, {"raw": self.raw(source)})

    def mix(self) -> Node:
        return Node(("mix",), None, TEXT, {}, {"parts": tuple(self.clean(source) for source in self.sources)})

    def run(self) -> Node:
        return Node(("run",), None, TEXT, {}, {"mix": self.mix()})

    def assets(self) -> list[dg.AssetsDefinition]:
        partitions = dg.StaticPartitionsDefinition(list(self.sources))
        families = [
            self._family(self.raw("a"), lambda lab, source: self.raw(str(source)), partitions),
            self._family(self.clean("a"), lambda lab, source: self.clean(str(source)), partitions),
            self._family(self.mix(), lambda lab, source: self.mix(), None),
            self._family(self.run(), lambda lab, source: self.run(), None),
        ]
        own = {asset.key for asset in self.instead}
        return [*(a for a in map(family_asset, families) if a.key not in own), *self.instead]

    def graph(self) -> BaseAssetGraph:
        return dg.Definitions(assets=self.assets(), resources={"lab": self.resource}).resolve_asset_graph()

    def make(self, key: str, source: str | None = None) -> dg.ExecuteInProcessResult:
        """Materialize one asset in a run of its own."""
        return dg.materialize(
            self.assets(), selection=[key], partition_key=source, instance=self.instance, resources={"lab": self.resource}
        )

    def make_all(self) -> None:
        for key in ("raw", "clean"):
            for source in self.sources:
                self.make(key, source)
        self.make("mix")
        self.make("run")

    def built(self, node: Node) -> Artifact:
        """The artifact of a node, made without Dagster where it is not there."""
        return build(self.lab.store, node).artifact

    def compared(self) -> Comparison:
        return check_consistency([self.lab.store], self.instance, self.graph(), TODAY)

    @staticmethod
    def _family(example: Node, node_at, partitions: dg.PartitionsDefinition | None) -> AssetTemplate:
        return AssetTemplate(
            example=example,
            node_at=node_at,
            store_of=lambda lab: lab.store,
            group="documents",
            description="text",
            kinds=frozenset({"file"}),
            partitions_def=partitions,
        )
