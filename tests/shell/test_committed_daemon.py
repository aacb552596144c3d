"""The sensor of commits under a real daemon, with PostgreSQL, a bucket and a job without a step."""

from pathlib import Path

import pytest
from committed_world import watched
from small import FinishedFerry
from small_runs import DAY

from lineage.build.plan import build
from marin_assets.event_log import VERSION_TAG

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_checkpoint_that_no_step_watched_is_in_the_event_log_once(finished_ferry: FinishedFerry, tmp_path: Path) -> None:
    """The job saves two steps to the place of one partition; the day's checkpoint is the last and no other."""
    with watched(tmp_path, finished_ferry.lab.ferry_store) as world:
        assert world.reported() == [], "what was there when the sensor began is known"
        made = build(world.store, world.final).artifact
        steps = [a.spec.config["step"] for a in world.store.artifacts(*made.spec.key) if a.spec.stage == made.spec.stage]
        assert sorted(steps) == [20, 40]
        world.until_looked(2)
        (event,) = world.reported()
        assert (tuple(event.asset_key.path), event.partition) == (made.spec.key, DAY)
        assert (event.tags or {}).items() >= {VERSION_TAG: made.spec.version, "dagster/data_version": made.data_version}.items()
        assert event.description == "committed by a job whose step was gone"
        shown = {name: value.value for name, value in event.metadata.items()}
        assert (shown["step"], shown["artifact"]) == (40, made.uri)
        assert shown["loss_nats"] == made.manifest.extra["checkpoint"]["loss_nats"]
        assert [ref["data_version"] for ref in shown["inputs"]] == [ref.data_version for ref in made.spec.inputs]  # type: ignore[index, union-attr]
        world.dagster.kill_daemon()
        world.dagster.start_daemon()
        world.until_looked(2)
        assert len(world.reported()) == 1, "a daemon that was killed goes on from its cursor"
