"""The stage `evals.suite`: files of a raw artifact become benchmark items.

A task says which files hold it, in which format, and how many items they must give, so another benchmark in a known
format is data in a recipe (`recipes/suites.py`). A new format is one function of `evals/items/formats.py`.
"""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import pyarrow as pa

from evals.items.formats import formats
from evals.items.item import ITEMS_FILE, Item, select_items, write_items
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.storage.digests import file_digest
from lineage.writing.writer import Writer

FILES_FOLDER = "files/"


@dataclass(frozen=True)
class TaskConfig:
    """Where one task's items come from."""

    name: str
    format: str
    """A name in `evals.items.formats.formats()`."""
    files: str
    """Glob below the raw artifact's `files/`; `*` crosses folders."""
    licence: str
    num_items: int | None = None
    """How many items the files must give; a pinned file that gives another number is not the pinned file."""

    split: str = field(default="", metadata={"added_later": True})
    """Which split of the benchmark the files hold: test, validation, dev; "shots" for examples that prompts begin
    with."""

    def __post_init__(self) -> None:
        if not self.name or not self.files or not self.licence:
            raise ValueError(f"task {self.name!r} (files {self.files!r}, licence {self.licence!r}): none may be empty")
        if self.format not in formats():
            raise ValueError(f"task {self.name!r}: format is {self.format!r}; allowed: {', '.join(formats())}")
        if self.num_items is not None and self.num_items <= 0:
            raise ValueError(f"task {self.name!r}: num_items is {self.num_items}; it must be positive or None")


@dataclass(frozen=True)
class SuiteConfig:
    """A suite: its tasks, and how many items of each. None keeps all, which a contamination index needs."""

    suite: str
    tasks: tuple[TaskConfig, ...]
    max_items_per_task: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        names = [task.name for task in self.tasks]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"suite {self.suite!r} has the tasks {names}; give at least one, each name once")
        if self.max_items_per_task is not None and self.max_items_per_task <= 0:
            raise ValueError(
                f"suite {self.suite!r}: max_items_per_task is {self.max_items_per_task}; it must be positive or None"
            )


def build_suite(out: Writer, config: SuiteConfig, raw: Artifact) -> None:
    """Write `items.parquet`, at most `max_items_per_task` a task.

    Raises: ValueError naming the task and file if a glob matches nothing, or a file is unreadable, lacks a field, or
    gives another number of items than declared.
    """
    root = raw.folder() / FILES_FOLDER
    items: list[Item] = []
    kept: dict[str, int] = {}
    num_read = 0
    for task in config.tasks:
        task_items = _read_task(config.suite, task, raw, root)
        chosen = select_items(task_items, config.max_items_per_task, config.seed)
        num_read += len(task_items)
        kept[task.name] = len(chosen)
        items += chosen
    write_items(out.folder / ITEMS_FILE, items)
    drops = {"over_max_items_per_task": num_read - len(items)} if num_read > len(items) else {}
    out.record(rows_in=num_read, rows_out=len(items), drops=drops)
    facts = {task.name: {"split": task.split, "licence": task.licence, "format": task.format} for task in config.tasks}
    out.extra["suite"] = {"format": "item/1", "suite": config.suite, "tasks": kept, "about": facts}


SUITE = Stage(
    "evals.suite",
    "1",
    build_suite,
    description="Benchmark items by content. Checkpoints are evaluated on them, and corpora are decontaminated against them.",
    checks=("file_set",),
)


def _read_task(suite: str, task: TaskConfig, raw: Artifact, root: Path) -> list[Item]:
    paths = [path for path in raw.files(under=FILES_FOLDER) if fnmatchcase(path.relative_to(root).as_posix(), task.files)]
    if not paths:
        raise ValueError(f"task {task.name!r}: no file of {raw.name} matches {task.files!r}; check the members it fetches")
    items = [item for path in paths for item in _read_file(suite, task, path, path.relative_to(root).as_posix())]
    if task.num_items is not None and len(items) != task.num_items:
        raise ValueError(
            f"task {task.name!r}: {len(items)} items in {len(paths)} file(s) ({paths[0].relative_to(root)} ...), "
            f"{task.num_items} are declared; the file is short or is another version"
        )
    return items


def _read_file(suite: str, task: TaskConfig, path: Path, name: str) -> list[Item]:
    digest = file_digest(path)
    try:
        channels = list(formats()[task.format](path))
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise ValueError(f"task {task.name!r}: cannot read {name} as {task.format}: {error}") from error
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(
            f"task {task.name!r}: a record of {name} does not have the form of {task.format} ({error!r})"
        ) from error
    return [Item(suite=suite, task=task.name, licence=task.licence, source_digest=digest, **c) for c in channels]
