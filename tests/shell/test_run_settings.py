"""What a person gives a run in the UI reaches its job, after what its line says, and changes nothing of what it is."""

from dataclasses import replace

import dagster as dg
import pytest

import marin_assets.runs
from lineage.plan import Node
from lineage.store import Store
from marin_assets.runs import training_asset
from recipes.lab import default_line
from recipes.runs import checkpoint
from trainer.mesh import MeshShape
from trainer.running import running_of
from trainer.settings import RunSettings


class BuiltError(Exception):
    """The run is not to be trained here."""


@pytest.mark.parametrize("given", [{}, {"trackers": ["wandb"], "mesh": "tensor=2", "watch_steps": 5}])
def test_run_config_is_told_to_the_job(given: dict, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    line = replace(default_line(), settings=RunSettings(("tensorboard",), rolling_seconds=60.0))
    asked: list[Node] = []

    def build(store: object, node: Node, **_: object) -> None:
        asked.append(node)
        raise BuiltError

    monkeypatch.setattr(marin_assets.runs, "build", build)
    lab = type("Lab", (), {"store": Store(str(tmp_path)), "launcher": None})()
    config = {"ops": {"runs__tiny__training": {"config": given}}} if given else {}
    with pytest.raises(BuiltError):
        dg.materialize([training_asset(line)], resources={"lab": lab}, run_config=config)
    [node] = asked
    plain = checkpoint(default_line(), line.run.num_steps)
    assert (node.key, node.partition, node.config) == (plain.key, plain.partition, plain.config)
    running = running_of({}, node.arguments)
    assert running.rolling_seconds == 60.0, "what the line says and nobody changed"
    wanted = (("wandb",), MeshShape(tensor=2), 5) if given else (("tensorboard",), MeshShape(), 50)
    assert (running.trackers, running.mesh, running.watch_steps) == wanted
