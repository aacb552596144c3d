"""Chaos: kill every kind of victim at random moments of a training run of two hosts, and check that nothing is lost: `make
chaos`.

Two processes first train the run undisturbed. Then a daemon launches the same run as an asset from its queue, as a JobSet on a
real API server, with data and checkpoints in a bucket. At random moments one of `VICTIMS` is killed with SIGKILL. This script
plays a person who launches the asset again whenever no run of it is alive. The table lists what was hit and when. At the end
the checkpoints are compared. The exit status is 1 if a promise was broken (`chaos_promises.py`).

    python tests/lab/chaos.py --strikes 20 --seed 1 --steps 3000
"""

import argparse
import logging
import os
import random
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml
from chaos_location import STEPS, TRAIN
from chaos_promises import Ended, broken, saved_steps
from chaos_victims import VICTIMS, World, is_there
from chaos_world import SHAPE, add_node, chaos_run, compiled_in, final, gang_of_processes, give_data, make_data, versions
from dagster_processes import DagsterProcesses
from rich.console import Console
from rich.table import Table
from whole_lab import WholeLab

from lineage.artifact.store import Store
from lineage.build.nodes import spec_of
from lineage.build.plan import build
from recipes.records.run import Run
from resources.cluster import JOBSETS
from resources.manifests import ATTEMPT

log = logging.getLogger("chaos")

WAIT_SECONDS = 1800.0
LONGEST_PAUSE = 12.0
AFTER_SAVE, ANY = "training", "any"
"""Moments of a strike: when the run trains again, or at any state of the run."""
RETRIES = {"first_wait_seconds": 0.5, "max_wait_seconds": 2.0, "healthy_seconds": 2.0}
"""Kills come every few seconds here and not every few hours, so an attempt counts as healthy after less than an hour."""


@dataclass(frozen=True)
class Strike:
    """One strike: the victim, the moment, and the progress of the run."""

    victim: str
    seconds: float
    moment: str
    saved: int
    hosts: int
    description: str


def strikes(world: World, count: int) -> Iterator[Strike]:
    """Strike `count` times, every victim equally often, in random order after random pauses.

    A start takes longer than the longest pause, so pauses alone would hit mostly starts. Half of the strikes, chosen at random,
    wait until the run has saved a checkpoint since the last strike. The others do not wait.
    """
    names = [name for _ in range(count // len(VICTIMS) + 1) for name in world.rng.sample(list(VICTIMS), len(VICTIMS))]
    moments = world.rng.sample([AFTER_SAVE, ANY] * (count // 2 + 1), 2 * (count // 2 + 1))
    began, before = time.monotonic(), 0
    for number, (name, moment) in enumerate(zip(names[:count], moments, strict=False), start=1):
        _until(lambda now=moment, old=before: now == ANY or newest(world) > old or world.is_finished(), "the run saves")
        time.sleep(world.rng.uniform(0, LONGEST_PAUSE))
        _until(lambda who=name: is_there(world, who) or world.is_finished(), f"there is a {name}")
        if world.is_finished():
            raise RuntimeError(f"the run ended after {number - 1} of {count} strikes; give it more --steps")
        before, hosts, seconds = newest(world), len(world.pods()), time.monotonic() - began
        strike = Strike(name, seconds, moment, before, hosts, VICTIMS[name](world))
        log.warning(
            "strike %d of %d after %.0f s: %s, %s; saved so far: %d", number, count, seconds, name, strike.description, before
        )
        yield strike


def newest(world: World) -> int:
    """Return the last step that a process reported as saved."""
    return max(saved_steps(world.lab.kubelet), default=0)


def person(world: World) -> None:
    """Launch the asset whenever it is not made and no run works on it."""
    while not world.done.wait(1.0):
        try:
            if not world.active_runs() and not world.is_finished():
                world.launches += 1
                world.dagster.launch(TRAIN, {"launch": str(world.launches)})
        except Exception as error:  # the servers that it calls are being killed; the next look tries again
            message = getattr(error, "stderr", b"").decode().strip()
            world.unanswered[f"person: {unnumbered(message.rpartition('\n')[2] or repr(error))}"] += 1
            log.warning("a launch failed: %s", message[-1000:] or error)


def witness(world: World) -> None:
    """Record every job that exists."""
    while not world.done.wait(0.2):
        try:
            for jobset in world.lab.admin.find(JOBSETS):
                world.jobsets[jobset["metadata"]["uid"]] = int(jobset["metadata"]["annotations"][ATTEMPT])
        except Exception as error:  # as above; the end of the run prints the distinct ones for a person to judge
            world.unanswered[f"witness: {unnumbered(repr(error))}"] += 1


def unnumbered(text: str) -> str:
    """Remove numbers, so that looks that failed for one reason have equal messages."""
    return re.sub(r"0x[0-9a-f]+|[0-9a-f]{8,}|[0-9]+", "#", text)[:200]


@contextmanager
def disturbed(run: Run, plain: Store, folder: Path, compiled: Path, seed: int) -> Iterator[World]:
    """Yield the lab with the run's data in its bucket, and a person who launches the run."""
    env = {**compiled_in(compiled), "MARIN_HEARTBEAT_SECONDS": "10", "MARIN_ROLLING_SECONDS": "2"}
    mounts = [{"path": str(compiled), "host_path": str(compiled)}]
    with WholeLab(folder / "lab", env, mounts=mounts, retries=RETRIES) as lab, _storing_in(lab):
        for number in range(SHAPE.pods):
            add_node(lab.kubelet, f"gpu-{number}")
        store = Store(f"{lab.root}/artifacts", str(folder / "looked-at"))
        give_data(run, plain, store)
        hold_back_evaluations(lab.folder / "home" / "dagster.yaml")
        environment = {**lab.environment(), STEPS: str(run.spec.num_steps)}
        with DagsterProcesses("chaos_location", environment, lab.folder) as dagster:
            world = World(lab, dagster, run, store, spec_of(store, final(run)), random.Random(seed))
            threads = [threading.Thread(target=work, args=(world,)) for work in (person, witness)]
            for thread in threads:
                thread.start()
            try:
                yield world
            finally:
                world.done.set()
                for thread in threads:
                    thread.join()


def run_chaos(folder: Path, *, count: int, seed: int, steps: int) -> tuple[list[Strike], Ended]:
    """Run both runs; print the strikes and the results."""
    run = chaos_run(steps)
    lab = Path(tempfile.mkdtemp(prefix="lab-", dir=folder))
    plain = Store(str(folder / "plain"), str(folder / "work"))
    make_data(run, plain)
    launcher = partial(gang_of_processes, environment=compiled_in(folder / "compiled"))
    undisturbed = build(plain, final(run), launcher=launcher).artifact.manifest.resources.wall_seconds
    with disturbed(run, plain, lab, folder / "compiled", seed) as world:
        began = time.monotonic()
        hit = list(strikes(world, count))
        _until(world.is_finished, "the run is finished")
        _until(lambda: not world.active_runs(), "its last run ends")
        seconds = time.monotonic() - began
        _until(lambda: len(reported(world)) == len(run.spec.saved_steps()), "the sensor has reported every checkpoint")
        ended = Ended(
            wanted=versions(run, plain), versions=versions(run, world.store), jobsets=dict(world.jobsets),
            pods=list(world.lab.kubelet.history), logs=[pod.log_lines("", 0) or [] for pod in world.lab.kubelet.history],
            reported=reported(world),
            launches=world.launches, unanswered=dict(world.unanswered),
            undisturbed_seconds=undisturbed, seconds=seconds,
        )  # fmt: skip
    return hit, ended


def reported(world: World) -> list[str]:
    """Return the checkpoints that Dagster has recorded, one entry for each event."""
    query = (
        "select partition from event_logs where dagster_event_type = 'ASSET_MATERIALIZATION' and asset_key like '%checkpoint%'"
    )
    return sorted(row[0] for row in world.lab.postgres.rows(query))


def hold_back_evaluations(instance: Path) -> None:
    """Keep the sensor's requests in the queue: two cores can only train the run."""
    record = yaml.safe_load(instance.read_text())
    record["concurrency"]["runs"]["tag_concurrency_limits"] = [{"key": "dagster/sensor_name", "limit": 0}]
    instance.write_text(yaml.safe_dump(record))


@contextmanager
def _storing_in(lab: WholeLab) -> Iterator[None]:
    """Let this process use the lab's bucket too."""
    os.environ["STORAGE_EMULATOR_HOST"] = lab.bucket.url
    try:
        yield
    finally:
        del os.environ["STORAGE_EMULATOR_HOST"]


def _until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {WAIT_SECONDS:.0f} s: {what}")
        time.sleep(0.3)


def strikes_table(hit: list[Strike]) -> Table:
    table = Table(title="strikes", title_style="bold", pad_edge=False)
    for name in ("", "after", "victim", "what", "moment", "hosts running", "saved so far"):
        table.add_column(name)
    for number, one in enumerate(hit, start=1):
        table.add_row(
            str(number), f"{one.seconds:.0f} s", one.victim, one.description, one.moment, str(one.hosts), f"step {one.saved}"
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strikes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument(
        "--keep", type=Path, help="a folder for both runs; the undisturbed one of an earlier time is found there"
    )
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    with tempfile.TemporaryDirectory(prefix="marin-chaos-") as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        hit, ended = run_chaos(folder, count=given.strikes, seed=given.seed, steps=given.steps)
    console = Console(width=120)
    console.print(strikes_table(hit), ended.table())
    console.print(*(f"not answered, {count} times: {text}" for text, count in ended.unanswered.items()), sep="\n")
    wrong = broken(ended)
    console.print(*(wrong or ["every promise kept"]), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
