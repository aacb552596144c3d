"""Checkpoints that are trained in the process of a test."""

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, ancestors_first, resolve, spec_of
from lineage.build.plan import build
from lineage.jobs.job import Job
from trainer.spec.stage import CHECKPOINT
from trainer.train import train


def trained(store: Store, node: Node) -> Artifact:
    """Train in this process: `build` would start one."""
    for ancestor in ancestors_first([node])[:-1]:
        if ancestor.stage is not CHECKPOINT:
            build(store, ancestor)
        elif store.find(spec_of(store, ancestor)) is None:
            trained(store, ancestor)
    inputs = {name: resolve(store, value) for name, value in node.inputs.items() if isinstance(value, Node)}
    return train(Job(store, spec_of(store, node), inputs, "code", ""))
