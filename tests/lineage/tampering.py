"""A store of two runs, and many ways in which somebody with write access and without a key may tamper with it.

    documents -> marks -> cache, for `kjv` and `web`; run `a` reads one cache, run `b` the other; a score reads everything

Each way starts from a store whose launch is admitted (`CLEAN`) or from one with a quarantine that refuses it (`HELD`).
"""

import datetime
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from lineage.artifact.manifest import MANIFEST_NAME, FileEntry, Manifest, ResourceUse, content_version, sealed, to_json
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve, spec_of
from lineage.build.plan import build
from lineage.build.waiver_stage import waive
from lineage.config import to_jsonable
from lineage.jobs.job import Job, read_job, write_job
from lineage.stage import Stage
from lineage.storage.digests import utf8_digest
from lineage.trust.verdict_log import LOG_FOLDER
from lineage.trust.verdicts import quarantine, record_check, revoke
from lineage.trust.waivers import Waiver, waiver_key, waiver_text
from lineage.writing.writer import Writer

NEEDS = {"tests.cache": "tests.marks"}
TODAY = datetime.datetime.now(datetime.UTC).date()
FUTURE, PAST = ((TODAY + datetime.timedelta(days=days)).isoformat() for days in (30, -1))


@dataclass(frozen=True)
class Text:
    text: str


def write_text(out: Writer, config: Text, **inputs: Artifact) -> None:
    (out.folder / "text.txt").write_text(config.text)
    (out.folder / "more.txt").write_text(config.text[::-1])
    out.facts["read"] = {"eos": 0}


DOCUMENTS, MARKS, CACHE = (Stage(f"tests.{name}", "1", write_text) for name in ("documents", "marks", "cache"))
RUN = Stage("tests.run", "1", write_text, gate=NEEDS)


def data(source: str) -> tuple[Node, Node, Node]:
    documents = Node(("documents",), source, DOCUMENTS, Text(f"documents of {source}"))
    marks = Node(("marks",), source, MARKS, Text(f"marks of {source}"), {"documents": documents})
    return documents, marks, Node(("cache",), source, CACHE, Text(f"cache of {source}"), {"marks": marks})


NODES = dict(zip(("documents-kjv", "marks-kjv", "cache-kjv"), data("kjv"), strict=True))
NODES |= dict(zip(("documents-web", "marks-web", "cache-web"), data("web"), strict=True))
NODES |= {name: Node(("run", name), None, RUN, Text(f"run {name}"), {"cache": NODES[f"cache-{source}"]})
          for name, source in (("a", "kjv"), ("b", "web"))}  # fmt: skip
READS = ("a", "b", "cache-kjv", "cache-web")
SCORE = Node(("score",), None, RUN, Text("score"), {name.replace("-", "_"): NODES[name] for name in READS})


@dataclass(frozen=True)
class Lab:
    """A store to tamper with."""

    root: Path

    @property
    def store(self) -> Store:
        return Store(str(self.root))

    def made(self, name: str) -> Artifact:
        return resolve(self.store, NODES[name])

    def folder(self, name: str) -> Path:
        return self.root / self.made(name).spec.address

    def manifest(self, name: str) -> Path:
        return self.folder(name) / MANIFEST_NAME

    def file(self, name: str, file: str = "text.txt") -> Path:
        return self.made(name).folder() / file

    def record(self, number: int) -> Path:
        return self.root / LOG_FOLDER / f"{number:08d}.json"

    def waiver(self, problem: str) -> Path:
        return next(path.parent for path in (self.root / "waivers").rglob(MANIFEST_NAME) if f"/{problem}-" in path.as_posix())

    def rewrite(self, path: Path, change: Callable[[dict], object], *, reseal: bool = True) -> None:
        """Change a sealed record."""
        record = json.loads(path.read_text())
        seal = record.pop("seal")
        change(record)
        path.write_text(sealed(record) if reseal else json.dumps({**record, "seal": seal}, indent=1))

    def launch(self) -> Job:
        """Write the job of the score and read it as its process would. Raises: what refuses it."""
        spec = spec_of(self.store, SCORE)
        inputs = {name.replace("-", "_"): self.made(name) for name in READS}
        write_job(Job(self.store, spec, inputs, "code", "", NEEDS), self.root / ".work" / "job.json")
        return read_job(self.root / ".work" / "job.json")


def make_labs(folder: Path) -> tuple[Lab, Lab]:
    """Build the clean store and the held one. Seven records: a quarantine and its lifting, a failure that is waived, a waiver
    that is revoked, a failure that passes later; the held store has one more quarantine, which no run has seen."""
    clean = Lab(folder / "clean")
    for name in ("documents-kjv", "marks-kjv", "cache-kjv", "documents-web", "marks-web", "cache-web"):
        build(clean.store, NODES[name])
    quarantine(clean.made("documents-web"), "scraped from the wrong site", "ada")
    quarantine(clean.made("documents-web"), "it was the right site", "ada", standing=False)
    build(clean.store, NODES["a"])
    shutil.copytree(clean.root, folder / "early")
    record_check(clean.made("marks-web"), "rows", ["2 rows are lost"], "run 1")
    waive(clean.store, Waiver("failed", "marks[web]", "ada", "two rows of 10^9", FUTURE))
    waive(clean.store, Waiver("unaudited", "*", "ada", "an old one", PAST))
    revoke(waive(clean.store, Waiver("quarantined", "*", "bob", "I need it", FUTURE)), "nobody needs it", "ada")
    record_check(clean.made("cache-kjv"), "rows", ["a row is lost"], "run 2")
    record_check(clean.made("cache-kjv"), "rows", [], "run 3")
    build(clean.store, NODES["b"])
    shutil.copytree(clean.root, folder / "held")
    held = Lab(folder / "held")
    quarantine(held.made("cache-web"), "a bad licence", "ada")
    return clean, held


def forge_waiver(lab: Lab, waiver: Waiver, **wrong: object) -> None:
    """Write a sealed waiver by hand; `wrong` says what of it is not as the stage would write it."""
    text = waiver_text(waiver).encode()
    spec = ArtifactSpec(waiver_key(waiver), None, "lineage.waiver", "1", to_jsonable(waiver))
    spec = replace(spec, **{name: value for name, value in wrong.items() if name in ("key", "stage")})  # type: ignore[arg-type]
    files = (FileEntry("waiver.json", len(text), None, utf8_digest(text)),) if wrong.get("listed", True) else ()
    manifest = Manifest(spec, content_version(files), "data-0", files, {}, {}, ResourceUse(0, 0, 0), "", PAST, "", {})
    folder = lab.root / str(wrong.get("address", spec.address))
    (folder / "data-0").mkdir(parents=True)
    if wrong.get("written", True):
        (folder / "data-0" / "waiver.json").write_bytes(text)
    (folder / MANIFEST_NAME).write_text(to_json(manifest))


def forge_record(lab: Lab, number: int, like: int, **changes: object) -> None:
    """Append a sealed record made from another one, with changes at its top level."""
    record = json.loads(lab.record(like).read_text())
    del record["seal"]
    lab.record(number).write_text(sealed(record | {"number": number} | changes))


def swap(first: Path, second: Path) -> None:
    aside = first.with_name(f"{first.name}.aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def same_size(path: Path, *, keep_times: bool = False) -> None:
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"#")
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def cut(path: Path, left: float = 0.5) -> None:
    os.truncate(path, int(path.stat().st_size * left))


def over(source: Path, target: Path) -> None:
    """Replace a folder by a copy of another."""
    shutil.rmtree(target)
    shutil.copytree(source, target)
