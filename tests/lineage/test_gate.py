"""The launch gate: it finds and names every unfit ancestor, and only a waiver passes one."""

import datetime
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_lineage import Parents, dags, reached, write_dag

from lineage.artifact.manifest import (
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    ResourceUse,
    UnsoundManifestError,
    content_version,
    sealed,
    sound_manifest,
    to_json,
)
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve, spec_of
from lineage.build.plan import build
from lineage.build.waiver_stage import waive
from lineage.config import to_jsonable
from lineage.jobs.job import Job, read_job, write_job
from lineage.stage import Stage
from lineage.storage.digests import utf8_digest
from lineage.trust.gate import GateError, inspect
from lineage.trust.verdicts import quarantine, record_check, revoke, verdicts
from lineage.trust.waivers import Waiver, waiver_key, waiver_text
from lineage.upkeep.upgrade import apply_upgrade
from lineage.upkeep.upgrade_plan import plan_upgrade
from lineage.writing.writer import Writer

NEEDS = {"tests.cache": "tests.marks"}
FUTURE = (datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=30)).isoformat()
PAST = (datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)).isoformat()


@dataclass(frozen=True)
class Text:
    """`source`: a file whose text is written instead; no identity, so the same address can get other bytes."""

    text: str = ""
    source: str = field(default="", metadata={"identity": False})


def write_text(out: Writer, config: Text, **inputs: Artifact) -> None:
    (out.folder / "text.txt").write_text(Path(config.source).read_text() if config.source else config.text)
    (out.folder / "more.txt").write_text("more")


DOCUMENTS = Stage("tests.documents", "1", write_text)
MARKS = Stage("tests.marks", "1", write_text)
CACHE = Stage("tests.cache", "1", write_text)
RUN = Stage("tests.run", "1", write_text, gate=NEEDS)


@dataclass(frozen=True)
class Line:
    """documents -> marks -> cache -> run, the last one gated; `other` feeds the run beside the cache."""

    documents: Node
    marks: Node
    cache: Node
    other: Node
    run: Node

    def build_data(self, store: Store) -> None:
        for node in (self.documents, self.marks, self.cache, self.other):
            build(store, node)


def line(text: str = "text", source: str = "", *, audited: bool = True) -> Line:
    documents = Node(("documents",), "kjv", DOCUMENTS, Text(text, source))
    marks = Node(("marks",), "kjv", MARKS, Text("marks"), {"documents": documents})
    cache = Node(("cache",), "kjv", CACHE, Text("cache"), {"marks": marks} if audited else {"documents": documents})
    other = Node(("other",), None, DOCUMENTS, Text("other"))
    return Line(documents, marks, cache, other, Node(("run",), None, RUN, Text("run"), {"cache": cache, "other": other}))


def manifest_path(artifact: Artifact) -> Path:
    return artifact.folder().parent / MANIFEST_NAME


def edit(artifact: Artifact, *, keep_seal: bool, **changes: object) -> None:
    record = json.loads(manifest_path(artifact).read_text()) | changes
    if keep_seal:
        manifest_path(artifact).write_text(json.dumps(record))
    else:
        del record["seal"]
        manifest_path(artifact).write_text(sealed(record))


def lose(artifact: Artifact) -> None:
    artifact.store.delete(artifact)


def cut_short(artifact: Artifact) -> None:
    artifact.files("text.txt")[0].write_text("")


def lose_a_file(artifact: Artifact) -> None:
    artifact.files("more.txt")[0].unlink()


def edit_statistics(artifact: Artifact) -> None:
    edit(artifact, keep_seal=True, statistics={"rows_out": 7})


def edit_data_version(artifact: Artifact) -> None:
    edit(artifact, keep_seal=False, data_version="0" * 32)


def remove_seal(artifact: Artifact) -> None:
    record = json.loads(manifest_path(artifact).read_text())
    del record["seal"]
    manifest_path(artifact).write_text(json.dumps(record))


def put_elsewhere(artifact: Artifact) -> None:
    """Another artifact's folder is copied over it."""
    other = resolve(artifact.store, line().other)
    shutil.rmtree(manifest_path(artifact).parent)
    shutil.copytree(manifest_path(other).parent, manifest_path(artifact).parent)


def fail_a_check(artifact: Artifact) -> None:
    record_check(artifact, "rows_conserved", ["2 rows are lost"], "Dagster run 7")


def distrust(artifact: Artifact) -> None:
    quarantine(artifact, "scraped from the wrong site", "ada")


BREAKS: Mapping[str, tuple[Callable[[Artifact], None], str, str]] = {
    "a file is cut short": (
        cut_short,
        "damaged",
        r"1 of 2 files: text.txt has 0 bytes, its manifest says \d; copy the missing",
    ),
    "a file is lost": (lose_a_file, "damaged", "1 of 2 files: more.txt is not there"),
    "a check failed": (fail_a_check, "failed", r"rows_conserved: 2 rows are lost \(Dagster run 7"),
    "somebody distrusts it": (distrust, "quarantined", r"scraped from the wrong site \(ada"),
}
"""What the plan alone cannot see: the artifact of the wanted identity is there."""
MANIFEST_BREAKS: Mapping[str, tuple[Callable[[Artifact], None], str, str]] = {
    "it is gone": (lose, "missing", r"there is no documents/kjv/\w+/manifest.json"),
    "its statistics are edited": (edit_statistics, "edited", "it was edited"),
    "its data version is edited": (edit_data_version, "edited", "its files give data version"),
    "its seal is removed": (remove_seal, "edited", "must have a seal and has none"),
    "another lies in its place": (put_elsewhere, "moved", "it says that it is other/_/"),
}


@pytest.mark.parametrize("what", BREAKS)
@pytest.mark.parametrize("where", ["documents", "cache"])
def test_a_run_on_an_unfit_ancestor_is_refused_by_name(what: str, where: str, tmp_path: Path) -> None:
    tamper, problem, detail = BREAKS[what]
    store, given = Store(str(tmp_path)), line()
    given.build_data(store)
    tamper(resolve(store, getattr(given, where)))
    with pytest.raises(
        GateError, match=rf"run is refused, its ancestors are .*\n  {problem}: {where}\[kjv\]: .*{detail}"
    ) as caught:
        build(store, given.run)
    assert [(finding.problem, finding.artifact) for finding in caught.value.findings] == [(problem, f"{where}[kjv]")]
    assert store.latest(("run",), None) is None


@pytest.mark.parametrize("what", MANIFEST_BREAKS)
def test_a_broken_manifest_is_found_at_the_gate(what: str, tmp_path: Path) -> None:
    tamper, problem, detail = MANIFEST_BREAKS[what]
    store, given = Store(str(tmp_path)), line()
    given.build_data(store)
    refs = spec_of(store, given.run).inputs
    assert inspect(store, refs, NEEDS) == []
    tamper(resolve(store, given.documents))
    (finding,) = inspect(store, refs, {})
    assert (finding.problem, finding.artifact) == (problem, "documents[kjv]")
    assert re.search(detail, finding.detail)
    assert "`./marin materialize documents --partition kjv`" in finding.mend


def test_every_missing_and_stale_ancestor_is_named_at_once(tmp_path: Path) -> None:
    store, given = Store(str(tmp_path)), line("old")
    given.build_data(store)
    lose(resolve(store, given.other))
    with pytest.raises(GateError) as caught:
        build(store, line("new").run)
    assert [(f.problem, f.artifact) for f in caught.value.findings] == [("stale", "documents[kjv]"), ("missing", "other")]
    assert "`./marin materialize documents --partition kjv`" in str(caught.value)
    assert "`./marin materialize other`" in str(caught.value)


def test_a_cache_swapped_under_a_waiting_job_is_refused(tmp_path: Path) -> None:
    """Same identity, other bytes: what a preempted run must not resume on."""
    words = tmp_path / "words"
    words.write_text("before")
    store, given = Store(str(tmp_path / "store")), line(source=str(words))
    given.build_data(store)
    refs = spec_of(store, given.run).inputs
    lose(resolve(store, given.documents))
    words.write_text("after")
    build(store, given.documents)
    (finding,) = inspect(store, refs, {})
    assert (finding.problem, finding.artifact) == ("swapped", "documents[kjv]")


def test_a_cache_that_was_never_audited_is_refused(tmp_path: Path) -> None:
    store, given = Store(str(tmp_path)), line(audited=False)
    given.build_data(store)
    with pytest.raises(GateError, match=r"unaudited: cache\[kjv\]: made by tests.cache with no tests.marks above it"):
        build(store, given.run)


def test_what_is_built_already_is_reused_whatever_became_of_its_inputs(tmp_path: Path) -> None:
    store, given = Store(str(tmp_path)), line()
    given.build_data(store)
    build(store, given.run)
    distrust(resolve(store, given.documents))
    assert build(store, given.run).reused


def waiver(**changes: str) -> Waiver:
    fields = {"problem": "failed", "artifact": "documents[kjv]", "who": "ada", "why": "two rows of 10^9", "expires": FUTURE}
    return Waiver(**(fields | changes))  # type: ignore[arg-type]


def test_a_waiver_lets_through_what_it_names_and_is_recorded(tmp_path: Path) -> None:
    store, given = Store(str(tmp_path)), line()
    given.build_data(store)
    fail_a_check(resolve(store, given.documents))
    made = waive(store, waiver(artifact="documents*", target="run"))
    (record,) = build(store, given.run).artifact.manifest.extra["waivers"]
    assert record["address"] == made.spec.address
    assert (record["who"], record["why"], record["expires"]) == ("ada", "two rows of 10^9", FUTURE)
    assert record["let_through"] == ["failed: documents[kjv]"]


@pytest.mark.parametrize(
    "changes",
    [{"expires": PAST}, {"problem": "quarantined"}, {"artifact": "documents[k]"}, {"artifact": "marks*"}, {"target": "runs/*"}],
    ids=str,
)
def test_a_waiver_lets_nothing_else_through(changes: dict[str, str], tmp_path: Path) -> None:
    store, given = Store(str(tmp_path)), line()
    given.build_data(store)
    fail_a_check(resolve(store, given.documents))
    waive(store, waiver(**changes))
    with pytest.raises(GateError, match=r"failed: documents\[kjv\]"):
        build(store, given.run)


def forged(store: Store, given: Waiver, **fields: object) -> Path:
    """A waiver's manifest written by hand: sealed, at the address that it says, without a run of the stage."""
    text = waiver_text(given).encode()
    spec = ArtifactSpec(waiver_key(given), None, "lineage.waiver", "1", to_jsonable(given))
    spec = replace(spec, **{name: value for name, value in fields.items() if name in ("key", "stage", "partition")})  # type: ignore[arg-type]
    files = (FileEntry("waiver.json", len(text), None, utf8_digest(text)),)
    files = fields.get("files", files)  # type: ignore[assignment]
    made = Manifest(spec, content_version(files), "data-0", files, {}, {}, ResourceUse(0, 0, 0), "", FUTURE, "", {})
    folder = Path(store.root, str(fields.get("address", spec.address)))
    (folder / "data-0").mkdir(parents=True)
    (folder / "data-0" / "waiver.json").write_bytes(bytes(fields.get("content", text)))  # type: ignore[arg-type]
    (folder / MANIFEST_NAME).write_text(to_json(made))
    return folder


FORGED: Mapping[str, Mapping[str, object]] = {
    "another stage": {"stage": "tests.documents"},
    "another key": {"key": ("waivers", "failed-00000000")},
    "a partition": {"partition": "x"},
    "no data file in the manifest": {"files": ()},
    "a data file of another size": {"content": b"{}"},
    "another address": {"address": "waivers/failed-1/_/" + "0" * 32},
}


@pytest.mark.parametrize("how", FORGED)
def test_a_waiver_written_by_hand_does_not_count_and_is_named(how: str, tmp_path: Path) -> None:
    store, given = Store(str(tmp_path)), line()
    given.build_data(store)
    fail_a_check(resolve(store, given.documents))
    folder = forged(store, waiver(artifact="*"), **FORGED[how])
    with pytest.raises(GateError, match="a waiver does not count: waivers/") as caught:
        build(store, given.run)
    assert str(folder.relative_to(tmp_path)) in str(caught.value)
    waive(store, waiver())
    assert not build(store, given.run).reused, "a sound waiver counts beside a forged one"


@pytest.mark.parametrize("text", ["garbage", "{}", "[]", '{"schema": 99}', "null"])
def test_one_garbage_file_among_the_waivers_stops_no_waived_launch(text: str, tmp_path: Path) -> None:
    store, given = Store(str(tmp_path)), line()
    given.build_data(store)
    fail_a_check(resolve(store, given.documents))
    waive(store, waiver())
    (tmp_path / "waivers" / "odd").mkdir()
    (tmp_path / "waivers" / "odd" / MANIFEST_NAME).write_text(text)
    assert not build(store, given.run).reused


@pytest.mark.parametrize("how", [revoke, quarantine])
def test_a_waiver_that_is_revoked_does_not_count_until_it_is_put_back(how: Callable[..., None], tmp_path: Path) -> None:
    store, given = Store(str(tmp_path)), line()
    given.build_data(store)
    fail_a_check(resolve(store, given.documents))
    made = waive(store, waiver())
    how(made, "the rows matter", "her boss")
    with pytest.raises(GateError, match=r"does not count: .* by her boss .*: the rows matter"):
        build(store, given.run)
    how(made, "they do not", "her boss", standing=False)
    assert not build(store, given.run).reused


def test_a_verdict_that_is_removed_at_the_end_of_the_log_is_missed(tmp_path: Path) -> None:
    """A run records the head of the log; what is built on the run later finds that the log is shorter than it was."""
    store, given = Store(str(tmp_path)), line()
    given.build_data(store)
    documents = resolve(store, given.documents)
    distrust(documents)
    waive(store, waiver(problem="quarantined"))
    made = build(store, given.run, launcher=None).artifact
    assert made.manifest.extra["verdict_log"]["count"] == 1
    shutil.rmtree(tmp_path / ".trust")
    (finding,) = inspect(store, [made.ref("run")], NEEDS)
    assert finding.problem == "unjudged" and "record 1 of the verdict log is not there any more" in finding.detail


def test_a_verdict_of_the_old_form_stops_until_it_is_upgraded(tmp_path: Path) -> None:
    store, given = Store(str(tmp_path)), line()
    given.build_data(store)
    cache = resolve(store, given.cache)
    old = {"name": "quarantine", "kind": "quarantined", "why": "w", "who": "ada", "when": "2026-11-20", "standing": True}
    store.storage.create(f"{cache.spec.address}/verdicts/quarantine/verdict.json", json.dumps(old))
    assert [f.problem for f in inspect(store, [cache.ref("x")], {})] == ["unjudged"]
    list(apply_upgrade(store, plan_upgrade(store, lambda spec: spec.key)))
    assert [f.problem for f in inspect(store, [cache.ref("x")], {})] == ["quarantined"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem": "missing"}, "waiver problem is 'missing'; allowed: failed, quarantined, unaudited"),
        ({"why": " "}, "waiver why is ' '; it must say something"),
        ({"expires": "soon"}, "waiver expires is 'soon'; give a day, YYYY-MM-DD"),
    ],
)
def test_a_bad_waiver_names_field_value_and_what_is_allowed(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        waiver(**changes)


def test_a_job_meets_the_gate_again_when_it_starts(tmp_path: Path) -> None:
    """Between launch and start may lie hours in a queue."""
    store, given = Store(str(tmp_path)), line()
    given.build_data(store)
    spec = spec_of(store, given.run)
    inputs = {"cache": resolve(store, given.cache), "other": resolve(store, given.other)}
    write_job(Job(store, spec, inputs, "code", "", NEEDS), tmp_path / "job.json")
    assert read_job(tmp_path / "job.json").waivers == ()
    distrust(resolve(store, given.documents))
    with pytest.raises(GateError, match=r"quarantined: documents\[kjv\]"):
        read_job(tmp_path / "job.json")
    waive(store, waiver(problem="quarantined"))
    (record,) = read_job(tmp_path / "job.json").waivers
    assert record["let_through"] == ["quarantined: documents[kjv]"]


def test_a_check_that_passes_leaves_no_trace_and_lifts_its_own_failure(tmp_path: Path) -> None:
    store, given = Store(str(tmp_path)), line()
    given.build_data(store)
    documents = resolve(store, given.documents)
    record_check(documents, "rows_conserved", [], "run 1")
    assert verdicts(documents) == []
    record_check(documents, "rows_conserved", ["2 rows are lost"], "run 2")
    record_check(documents, "file_set", [], "run 2")
    assert [v.standing for v in verdicts(documents)] == [True]
    record_check(documents, "rows_conserved", [], "run 3")
    assert [(v.standing, v.who) for v in verdicts(documents)] == [(False, "run 3")]
    assert build(store, given.run).artifact.name == "run"


def test_a_quarantine_is_lifted_and_reported(tmp_path: Path) -> None:
    store, given = Store(str(tmp_path)), line()
    given.build_data(store)
    distrust(resolve(store, given.cache))
    quarantine(resolve(store, given.cache), "it was the right site", "grace", standing=False)
    (verdict,) = verdicts(resolve(store, given.cache))
    assert (verdict.standing, verdict.who) == (False, "grace")
    assert not build(store, given.run).reused


@given(dags(), st.data())
def test_exactly_the_unfit_ancestors_are_found(parents: Parents, data: st.DataObject) -> None:
    """Against plain reachability over the drawn pairs."""
    start = data.draw(st.integers(0, len(parents) - 1))
    unfit = data.draw(st.sets(st.integers(0, len(parents) - 1)))
    with tempfile.TemporaryDirectory() as folder:
        made = write_dag(Store(folder), parents)
        for number in unfit:
            data.draw(st.sampled_from([fail_a_check, distrust]))(made[number])
        findings = inspect(made[start].store, [made[start].ref("x")], {})
    names = sorted(finding.artifact for finding in findings)
    assert names == sorted(made[number].name for number in unfit & reached(parents, start, "up"))


def changed(value: object, data: st.DataObject) -> object:
    """The same JSON with one leaf changed."""
    if isinstance(value, dict) and value:
        key = data.draw(st.sampled_from(sorted(value)))
        return value | {key: changed(value[key], data)}
    if isinstance(value, list) and value:
        place = data.draw(st.integers(0, len(value) - 1))
        return [*value[:place], changed(value[place], data), *value[place + 1 :]]
    return f"{value}x"


@given(st.data())
def test_any_edit_of_a_manifest_is_found(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (made,) = write_dag(Store(folder), [[]])
        text = manifest_path(made).read_text()
        assert sound_manifest(text, made.spec.address, "here") == made.manifest
        record = changed(json.loads(text), data)
        with pytest.raises(UnsoundManifestError):
            sound_manifest(json.dumps(record), made.spec.address, "here")
