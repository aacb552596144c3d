"""A stage of two lazy shard maps: pages, and the length of each; beside them notes, which the stage joins at its end."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lineage.artifact.store import Store
from lineage.build.nodes import Node, spec_of
from lineage.jobs.job import Job
from lineage.shards.run import SCRATCH_FOLDER
from lineage.stage import Stage
from lineage.trust.fingerprint import stage_code
from lineage.writing.writer import Writer

NAMES = tuple("abcdef")
PAGE_BYTES = 50_000
NOTES = f"{SCRATCH_FOLDER}/notes"


@dataclass(frozen=True)
class Pages:
    """One page a name. `lazy` is no part of what the stage writes."""

    names: tuple[str, ...] = NAMES
    lazy: bool = True


def write_page(folder: Path, name: str, log: Path) -> Mapping[str, int]:
    note(log, name)
    (folder / "pages").mkdir()
    (folder / "pages" / f"{name}.txt").write_text(name * PAGE_BYTES)
    (folder / NOTES).mkdir(parents=True)
    (folder / NOTES / f"{name}.txt").write_text(f"{name}\n")
    return {"letters": PAGE_BYTES}


def measure(folder: Path, name: str, page: Path, log: Path) -> Mapping[str, int]:
    note(log, name.upper())
    (folder / f"{name}.txt").write_text(str(len(page.read_text())))
    return {"letters": PAGE_BYTES}


def note(log: Path, name: str) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as stream:
        stream.write(f"{name}\n")


def write_pages(out: Writer, config: Pages) -> None:
    log = out.store.scratch / "log"
    out.map_shards(write_page, {f"page-{name}": (name, log) for name in config.names}, lazy=config.lazy)
    tasks = {f"measure-{name}": (name, out.folder / "pages" / f"{name}.txt", log) for name in config.names}
    done = out.map_shards(measure, tasks, lazy=config.lazy)
    out.bring(out.folder / NOTES)
    (out.folder / "notes.txt").write_text("".join(path.read_text() for path in sorted((out.folder / NOTES).iterdir())))
    out.record(rows_in=len(done), rows_out=len(done), drops={}, bytes_out=out.bytes_below("pages"))


def write_revised(out: Writer, config: Pages) -> None:
    """As a stage may that reads its shards: one page is changed, one is deleted."""
    write_pages(out, config)
    first, second = (out.folder / "pages" / f"{name}.txt" for name in config.names[:2])
    first.write_text(first.read_text().upper())
    second.unlink()


PAGES = Stage("tests.pages", "1", write_pages)
REVISED = Stage("tests.revised", "1", write_revised)


def pages(stage: Stage = PAGES, *, lazy: bool = True) -> Node:
    return Node(("tests", "pages"), "p", stage, Pages(lazy=lazy))


def job_of(store: Store, node: Node) -> Job:
    """The job file of a node, as every runner reads it."""
    code = stage_code(node.stage.module)
    return Job(store, spec_of(store, node), {}, code.fingerprint, "", packages=tuple(code.packages))
