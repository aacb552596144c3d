"""Launch settings from the UI reach the job, after its declared settings, without changing its identity."""

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from lineage.artifact.store import Store
from lineage.build.nodes import Node
from marin_assets.runs import training_asset
from recipes.records.run import Execution
from recipes.runs import checkpoint
from recipes.studies.default import tiny
from trainer.running import running_of
from trainer.spec.mesh import MeshShape
from trainer.spec.settings import RuntimeOptions


class BuiltError(Exception):
    """The run is not to be trained here."""


@pytest.mark.parametrize("given", [{}, {"trackers": ["wandb"], "mesh": "tensor=2", "watch_steps": 5}])
def test_run_config_reaches_the_job(given: dict, tmp_path: Path) -> None:
    run = replace(tiny(), execution=Execution(settings=RuntimeOptions(("tensorboard",), rolling_seconds=60.0)))
    nodes: list[Node] = []

    def build(store: object, node: Node, **_: object) -> None:
        nodes.append(node)
        raise BuiltError

    lab = type("Lab", (), {"store": Store(str(tmp_path)), "launcher": None, "build": staticmethod(build)})()
    config = {"ops": {"runs__tiny__training": {"config": given}}} if given else {}
    with pytest.raises(BuiltError):
        dg.materialize([training_asset(run)], resources={"lab": lab}, run_config=config)
    [node] = nodes
    plain = checkpoint(tiny(), run.spec.num_steps)
    assert (node.key, node.partition, node.config) == (plain.key, plain.partition, plain.config)
    running = running_of({}, node.arguments)
    assert running.rolling_seconds == 60.0, "declared, and nobody changed it"
    wanted = (("wandb",), MeshShape(tensor=2), 5) if given else (("tensorboard",), MeshShape(), 50)
    assert (running.trackers, running.mesh, running.watch_steps) == wanted
