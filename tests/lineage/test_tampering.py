"""Tampering with a store of two runs, without keys: what the launch refuses, and what it cannot see.

`HOLES` is the list of docs/design/gate.md: each of them is admitted today, and a signature or a head that is kept elsewhere is
what closes it. A test fails if one of them is closed and that page still lists it.
"""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tampering import FUTURE, PAST, Lab, cut, forge_record, forge_waiver, make_labs, over, same_size, swap

from lineage.storage.digests import text_digest
from lineage.trust.gate import GateError
from lineage.trust.waivers import Waiver

type Way = Callable[[Lab], object]
ANY = Waiver("quarantined", "*", "eve", "let me", FUTURE)


def early(lab: Lab) -> Path:
    return lab.root.parent / "early"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


CLEAN: Mapping[str, Mapping[str, Way]] = {
    "edit": {
        "statistics": lambda lab: lab.rewrite(lab.manifest("a"), lambda r: r.update(statistics={"rows_out": 7}), reseal=False),
        "inputs, resealed": lambda lab: lab.rewrite(lab.manifest("b"), lambda r: r.update(inputs=[])),
        "config, resealed": lambda lab: lab.rewrite(lab.manifest("cache-kjv"), lambda r: r["config"].update(text="x")),
        "a fact, resealed": lambda lab: lab.rewrite(lab.manifest("cache-web"), lambda r: r["extra"]["read"].update(eos=1)),
        "facts taken off the list": lambda lab: lab.rewrite(lab.manifest("cache-web"), lambda r: r.pop("facts")),
        "data version, resealed": lambda lab: lab.rewrite(lab.manifest("marks-web"), lambda r: r.update(data_version="0" * 32)),
        "a file's digest, resealed": lambda lab: lab.rewrite(
            lab.manifest("marks-kjv"), lambda r: r["files"][0].update(digest="0" * 32)
        ),
        "bytes of a cache, same size": lambda lab: same_size(lab.file("cache-kjv")),
        "bytes of a cache, same size and times": lambda lab: same_size(lab.file("cache-kjv"), keep_times=True),
        "bytes of a run, same size": lambda lab: same_size(lab.file("a")),
        "bytes of an ancestor that the job does not open, same size": lambda lab: same_size(lab.file("documents-web")),
        "the same, with the times of before": lambda lab: same_size(lab.file("marks-kjv"), keep_times=True),
        "the same, by another file in its place": lambda lab: put_in_place(lab.file("documents-kjv")),
        "the same, by a link to a file elsewhere": lambda lab: linked_edit(lab.file("documents-web", "more.txt")),
        "the same, with what was remembered of it": lambda lab: forget_the_edit(lab, "marks-web"),
        "the seal taken off": lambda lab: lab.manifest("a").write_text(
            json.dumps({k: v for k, v in json.loads(lab.manifest("a").read_text()).items() if k != "seal"})
        ),
        "the head that a run saw": lambda lab: lab.rewrite(
            lab.manifest("b"), lambda r: r["extra"]["verdict_log"].update(count=9)
        ),
    },
    "delete": {
        "a manifest": lambda lab: lab.manifest("cache-kjv").unlink(),
        "a data file": lambda lab: lab.file("documents-web").unlink(),
        "an artifact": lambda lab: shutil.rmtree(lab.folder("documents-kjv")),
        "a data folder": lambda lab: shutil.rmtree(lab.file("marks-kjv").parent),
        "a record of the log": lambda lab: lab.record(3).unlink(),
        "the log": lambda lab: shutil.rmtree(lab.root / ".trust"),
        "the last record that a run saw": lambda lab: lab.record(6).unlink(),
        "the waiver that lets it through": lambda lab: shutil.rmtree(lab.waiver("failed")),
    },
    "roll back": {
        "the log": lambda lab: over(early(lab) / ".trust", lab.root / ".trust"),
        "the log but for its newest record": lambda lab: [lab.record(n).unlink() for n in (3, 4, 5)],
        "a lifting to the verdict before": lambda lab: shutil.copy(lab.record(1), lab.record(2)),
        "a lifting, resealed": lambda lab: lab.rewrite(lab.record(6), lambda r: r["verdict"].update(standing=True)),
        "a waiver's day": lambda lab: lab.rewrite(
            lab.waiver("failed") / "manifest.json", lambda r: r["config"].update(expires=PAST)
        ),
        "the waivers": lambda lab: shutil.rmtree(lab.root / "waivers"),
        "a cache to other bytes of its identity": lambda lab: (
            lab.file("cache-kjv").write_text("cache of KJV!"),
            lab.rewrite(lab.manifest("cache-kjv"), lambda r: r.update(data_version="1" * 32)),
        ),
    },
    "replay": {
        "an old record as the newest": lambda lab: shutil.copy(lab.record(2), lab.record(7)),
        "a run's manifest over the other's": lambda lab: shutil.copy(lab.manifest("a"), lab.manifest("b")),
        "a run over the other": lambda lab: over(lab.folder("a"), lab.folder("b")),
        "a verdict of the old form": lambda lab: lab.store.storage.create(
            f"{lab.made('cache-web').spec.address}/verdicts/quarantine/verdict.json", '{"standing": false}'
        ),
        "a data folder in another": lambda lab: over(lab.file("cache-kjv").parent, lab.file("cache-web").parent),
        "the manifest of marks as documents": lambda lab: shutil.copy(lab.manifest("marks-web"), lab.manifest("documents-web")),
    },
    "swap": {
        "two runs": lambda lab: swap(lab.folder("a"), lab.folder("b")),
        "two data folders of runs": lambda lab: swap(lab.file("a").parent, lab.file("b").parent),
        "two data folders of caches": lambda lab: swap(lab.file("cache-kjv").parent, lab.file("cache-web").parent),
        "two manifests": lambda lab: swap(lab.manifest("cache-kjv"), lab.manifest("cache-web")),
        "two records": lambda lab: swap(lab.record(3), lab.record(5)),
        "two files of one cache": lambda lab: swap(lab.file("cache-kjv"), lab.file("cache-kjv", "more.txt")),
        "two partitions": lambda lab: swap(lab.root / "documents/kjv", lab.root / "documents/web"),
    },
    "rename": {
        "a version": lambda lab: lab.folder("a").rename(lab.folder("a").with_name("0" * 32)),
        "a data folder": lambda lab: lab.file("cache-web").parent.rename(lab.folder("cache-web") / "data-x"),
        "a data file": lambda lab: lab.file("cache-web").rename(lab.file("cache-web").with_name("x.txt")),
        "a partition": lambda lab: (lab.root / "marks/kjv").rename(lab.root / "marks/other"),
        "a key": lambda lab: (lab.root / "documents").rename(lab.root / "others"),
        "a record": lambda lab: lab.record(3).rename(lab.record(8)),
        "the waiver that lets it through": lambda lab: lab.waiver("failed").rename(lab.root / "waivers/failed-x"),
    },
    "truncate": {
        "a data file": lambda lab: cut(lab.file("documents-kjv")),
        "a data file to nothing": lambda lab: cut(lab.file("marks-web"), 0),
        "a manifest": lambda lab: cut(lab.manifest("cache-web")),
        "a manifest to nothing": lambda lab: cut(lab.manifest("documents-web"), 0),
        "a record": lambda lab: cut(lab.record(3)),
        "the newest record": lambda lab: cut(lab.record(6)),
        "the waiver that lets it through": lambda lab: cut(lab.waiver("failed") / "manifest.json"),
    },
    "add": {
        "a file beside the data": lambda lab: lab.file("cache-kjv").with_name("extra.txt").write_text("x"),
        "a field of a manifest": lambda lab: lab.rewrite(lab.manifest("a"), lambda r: r.update(note="x"), reseal=False),
        "garbage as the newest record": lambda lab: lab.record(7).write_text("garbage"),
        "a record far ahead": lambda lab: forge_record(lab, 40, 6),
        "a verdict beside a manifest": lambda lab: lab.store.storage.create(
            f"{lab.made('a').spec.address}/verdicts/x/verdict.json", "{}"
        ),
        "a link in the place of a run": lambda lab: link_away(lab, "a"),
        "a link in the place of a deeper artifact": lambda lab: link_away(lab, "documents-web"),
        "a file twice in a manifest": lambda lab: lab.rewrite(
            lab.manifest("cache-kjv"), lambda r: r["files"].append(r["files"][0])
        ),
    },
}  # fmt: skip
"""From a store whose launch is admitted."""
HELD: Mapping[str, Mapping[str, Way]] = {
    "forged waiver": {
        "of another stage": lambda lab: forge_waiver(lab, ANY, stage="tests.documents"),
        "of another key": lambda lab: forge_waiver(lab, ANY, key=("waivers", "quarantined-00000000")),
        "at another address": lambda lab: forge_waiver(lab, ANY, address="waivers/quarantined-1/_/" + "0" * 32),
        "without a file in its manifest": lambda lab: forge_waiver(lab, ANY, listed=False),
        "without its file": lambda lab: forge_waiver(lab, ANY, written=False),
        "with another target, resealed": lambda lab: lab.rewrite(
            lab.waiver("failed") / "manifest.json", lambda r: r["config"].update(problem="quarantined", artifact="*")
        ),
        "of yesterday": lambda lab: forge_waiver(lab, Waiver("quarantined", "*", "eve", "let me", PAST)),
        "of a problem that none may waive": lambda lab: lab.rewrite(
            lab.waiver("failed") / "manifest.json", lambda r: r["config"].update(problem="damaged")
        ),
    },
    "forged verdict": {
        "standing false, not resealed": lambda lab: lab.record(7).write_text(
            lab.record(7).read_text().replace("true", "false")
        ),
        "a lifting without a seal that fits": lambda lab: lab.record(8).write_text(lab.record(2).read_text()),
        "a lifting far ahead": lambda lab: forge_record(lab, 12, 2, subject=json.loads(lab.record(7).read_text())["subject"]),
        "a lifting that names another record before it": lambda lab: (
            forge_record(lab, 8, 2, subject=json.loads(lab.record(7).read_text())["subject"], previous="0" * 64)
        ),
        "a lifting of another format": lambda lab: forge_record(lab, 8, 2, format="verdict/1"),
        "a revocation that is gone": lambda lab: lab.record(4).unlink(),
        "a revocation taken back in place": lambda lab: lab.rewrite(
            lab.record(4), lambda r: r["verdict"].update(standing=False)
        ),
        "an acceptance in the place of another record": lambda lab: forge_record(lab, 3, 3, accepts=["7"]),
    },
}  # fmt: skip
"""From a store whose launch a quarantine refuses."""
HOLES: Mapping[str, tuple[str, Way]] = {
    "statistics of a manifest, resealed": (
        "clean",
        lambda lab: lab.rewrite(lab.manifest("documents-web"), lambda r: r.update(statistics={"rows_out": 7})),
    ),
    "the last record, which no work has seen, is removed": ("held", lambda lab: lab.record(7).unlink()),
    "the last record, which no work has seen, is replaced": (
        "held",
        lambda lab: lab.rewrite(lab.record(7), lambda r: r["verdict"].update(standing=False)),
    ),
    "a lifting that is chained well, in another's name": (
        "held",
        lambda lab: forge_record(
            lab,
            8,
            7,
            previous=sha256(lab.record(7)),
            verdict=json.loads(lab.record(7).read_text())["verdict"] | {"standing": False},
        ),
    ),
    "a waiver as the stage writes it, in another's name": ("held", lambda lab: forge_waiver(lab, ANY)),
    "the whole store rolled back": (
        "held",
        lambda lab: (shutil.rmtree(lab.root), shutil.copytree(lab.root.parent / "clean", lab.root)),
    ),
}  # fmt: skip


def put_in_place(path: Path) -> None:
    """Replace a file by another one with other bytes, the same size and the same times."""
    before = path.stat()
    other = path.with_name(f"{path.name}.other")
    other.write_bytes(b"#" * before.st_size)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


def linked_edit(path: Path) -> None:
    elsewhere = path.parents[5] / "elsewhere.txt"
    elsewhere.write_bytes(b"#" * path.stat().st_size)
    path.unlink()
    path.symlink_to(elsewhere)


def forget_the_edit(lab: Lab, name: str) -> None:
    """Edit a file and write into the scratch folder that its new state was compared; launch once before, so that it has one."""
    lab.launch()
    path, made = lab.file(name), lab.made(name)
    memory = lab.root / ".work" / "verified" / f"{text_digest(made.uri)}.json"
    record = json.loads(memory.read_text())
    same_size(path)
    facts = path.stat()
    state = [facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns]
    digest = next(entry.digest for entry in made.manifest.files if entry.path == path.name)
    record["states"][path.name] = [*state, digest]
    memory.write_text(json.dumps(record))


def link_away(lab: Lab, name: str) -> None:
    folder = lab.folder(name)
    elsewhere = lab.root.parent / f"elsewhere-{lab.root.name}-{name}"
    shutil.move(folder, elsewhere)
    folder.symlink_to(elsewhere)


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Lab]:
    clean, held = make_labs(tmp_path_factory.mktemp("labs"))
    (waiver,) = clean.launch().waivers
    assert waiver["let_through"] == ["failed: marks[web]"]
    with pytest.raises(GateError) as refused:
        held.launch()
    assert {finding.problem for finding in refused.value.findings} == {"quarantined"}
    return clean, held


def copied(lab: Lab, folder: Path) -> Lab:
    for name in ("clean", "early", "held"):
        if name == "early" or (lab.root.parent / name) == lab.root or name == "clean":
            shutil.copytree(lab.root.parent / name, folder / name)
    return Lab(folder / lab.root.name)


@pytest.mark.parametrize(("kind", "way"), [(kind, way) for kind, ways in CLEAN.items() for way in ways])
def test_a_tampered_store_is_refused_by_name(labs: tuple[Lab, Lab], kind: str, way: str, tmp_path: Path) -> None:
    lab = copied(labs[0], tmp_path)
    CLEAN[kind][way](lab)
    with pytest.raises((GateError, ValueError, LookupError), match=r"kjv|web|run/[ab]|record \d+ of the verdict log"):
        lab.launch()


@pytest.mark.parametrize(("kind", "way"), [(kind, way) for kind, ways in HELD.items() for way in ways])
def test_what_holds_a_launch_back_cannot_be_forged_away(labs: tuple[Lab, Lab], kind: str, way: str, tmp_path: Path) -> None:
    lab = copied(labs[1], tmp_path)
    HELD[kind][way](lab)
    with pytest.raises(GateError, match=r"cache\[web\]"):
        lab.launch()


@pytest.mark.parametrize("way", HOLES)
def test_what_cannot_be_seen_without_keys_is_known(labs: tuple[Lab, Lab], way: str, tmp_path: Path) -> None:
    state, tamper = HOLES[way]
    lab = copied(labs[0] if state == "clean" else labs[1], tmp_path)
    tamper(lab)
    lab.launch()


def test_there_are_sixty_ways_and_six_of_each_kind() -> None:
    kinds = Counter({kind: len(ways) for table in (CLEAN, HELD) for kind, ways in table.items()})
    assert len(kinds) == 10 and min(kinds.values()) >= 6 and kinds.total() >= 60
