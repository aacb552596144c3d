"""What the acts of the replay share: its store, the recipe before and after the fix, and the printer of evidence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from evals.items.item import Item, read_items, select_items
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, ancestors_first, resolve, spec_of
from lineage.build.plan import build
from lineage.jobs.job import Launcher
from lineage.shards.execution import ONE_WORKER, Execution
from scenarios import nodes
from scenarios.bundle import TEST_FILE, TRAIN_FILE, write_bundle
from scenarios.evidence import Teller
from scenarios.nodes import Recipe
from scenarios.scale import Scale

ITEM_SEED = 8
RUN_ID = "bison"
BUNDLE_FOLDER = "bundle"


@dataclass(frozen=True)
class World:
    """One replay. `before` reads both files of the bundle, `after` does not read `test.json`."""

    folder: Path
    store: Store
    launcher: Launcher
    teller: Teller
    before: Recipe
    leaked: tuple[Item, ...]
    control: tuple[Item, ...]
    execution: Execution = ONE_WORKER

    @property
    def after(self) -> Recipe:
        return replace(self.before, bundle_files=(TRAIN_FILE,))

    @property
    def bundle(self) -> Path:
        return self.folder / BUNDLE_FOLDER

    @property
    def scale(self) -> Scale:
        return self.before.scale

    def make(self, *wanted: Node) -> list[Artifact]:
        """Build nodes and all that they need. What exists already is skipped without a message."""
        for node in ancestors_first(wanted):
            if self.store.find(spec_of(self.store, node)) is None:
                build(self.store, node, execution=self.execution, launcher=self.launcher, run_id=RUN_ID)
        return [resolve(self.store, node) for node in wanted]


def new_world(
    folder: Path,
    store: Store,
    scale: Scale,
    suite_source: str,
    launcher: Launcher,
    teller: Teller,
    execution: Execution = ONE_WORKER,
) -> World:
    """An empty store, the benchmark's items, and the bundle on disk with half of the chosen items in its `test.json`.

    Raises: FileExistsError if the folder has a replay, because what must be stale in this replay would exist already.
    """
    if (folder / BUNDLE_FOLDER).exists():
        raise FileExistsError(f"{folder} has a replay already, and nothing would be stale in a second one: give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    before = Recipe(scale, suite_source, str(folder / BUNDLE_FOLDER), (TRAIN_FILE, TEST_FILE))
    world = World(folder, store, launcher, teller, before, (), (), execution)
    leaked, control = _chosen(read_items(world.make(nodes.suite(before))[0]), scale)
    write_bundle(world.bundle, leaked, scale.num_train_problems)
    return replace(world, leaked=leaked, control=control)


def _chosen(items: Sequence[Item], scale: Scale) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Leaked and control items, in turn, of those that fit into a context."""
    fitting = [item for item in items if len(item.question) + len(item.solution) <= scale.max_item_chars]
    wanted = scale.num_leaked + scale.num_control
    chosen = select_items(fitting, wanted, ITEM_SEED)
    if len(chosen) < wanted:
        raise ValueError(
            f"{len(chosen)} items have at most {scale.max_item_chars} characters; {wanted} are needed: lower either"
        )
    share = scale.num_leaked / wanted
    is_leaked = [int((number + 1) * share) > int(number * share) for number in range(wanted)]
    return (
        tuple(item for item, leaks in zip(chosen, is_leaked, strict=True) if leaks),
        tuple(item for item, leaks in zip(chosen, is_leaked, strict=True) if not leaks),
    )


def losses(checkpoint: Artifact) -> pl.Series:
    """Training loss of every step, nats a token."""
    return pl.read_parquet(checkpoint.files("metrics.parquet")[0])["loss_nats"]
