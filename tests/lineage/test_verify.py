"""Verification of drifted artifacts: what is rebuilt, what is compared, what clears a drift."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from lineage.artifact.manifest import MANIFEST_NAME, from_json, to_json
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, spec_of
from lineage.build.plan import build
from lineage.build.verify import sampled, verify
from lineage.jobs.job import LaunchRecord, LaunchRequest
from lineage.stage import Stage
from lineage.trust.evidence import Evidence, code_changes, drift_of
from lineage.trust.fingerprint import CODE_FINGERPRINT, Code, stage_code
from lineage.writing.write import writing
from lineage.writing.writer import Writer

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("a", "b", "c", "d", "e")


@dataclass(frozen=True)
class Words:
    """Config of the stage here."""

    names: tuple[str, ...] = NAMES


def write_shard(folder: Path, name: str, content: str, statistic: str = "letters") -> Mapping[str, int]:
    (folder / f"{name}.txt").write_text(content)
    return {statistic: len(content)}


def stage_of(
    contents: Mapping[str, str],
    *,
    ending: str = "",
    fact: int = 0,
    domain: str = "web",
    code: str = "before",
    statistic: str = "letters",
) -> Stage:
    """A stage in shards with a step after them; two of these are the same stage before and after an edit."""

    def write(out: Writer, config: Words) -> None:
        done = out.map_shards(write_shard, {name: (name, content, statistic) for name, content in contents.items()})
        texts = [(out.folder / f"{name}.txt").read_text() for name in sorted(done)]
        (out.folder / "all.txt").write_text("".join(texts) + ending)
        out.extra["fact"] = {"deep": fact, CODE_FINGERPRINT: code}
        out.facts["domain"] = domain
        out.record(rows_out=sum(int(str(s[statistic])) for s in done.values()))

    return Stage("tests.words", "1", write)


SAME = dict.fromkeys(NAMES, "text")


def made_by_older_code(store: Store, stage: Stage) -> Artifact:
    node = Node(("words",), None, stage, Words())
    with writing(store, spec_of(store, node), "the fingerprint of older code") as out:
        assert stage.run is not None
        stage.run(out, Words())
    return out.artifact


def ask(tmp_path: Path, before: Stage, after: Stage, num_shards: int = 2) -> tuple[Artifact, Evidence]:
    artifact = made_by_older_code(Store(str(tmp_path / "lab")), before)
    scratch = Store(str(tmp_path / "scratch"))
    return artifact, verify(artifact, after, scratch, who="ada", num_shards=num_shards)


def test_equal_bytes_on_sampled_shards_clear_the_drift_and_leave_the_manifest_alone(tmp_path: Path) -> None:
    stage = stage_of(SAME)
    store, node = Store(str(tmp_path / "lab")), Node(("words",), None, stage, Words())
    artifact = made_by_older_code(store, stage)
    text = (tmp_path / "lab" / artifact.spec.address / MANIFEST_NAME).read_bytes()
    assert build(store, node).drifted
    evidence = verify(artifact, stage, Store(str(tmp_path / "scratch")), who="ada", num_shards=2)
    assert evidence.is_equal
    assert len(evidence.shards) == 2 and evidence.num_shards == 5
    assert set(evidence.files) == {"all.txt", *(f"{name}.txt" for name in evidence.shards)}
    again = build(store, node)
    assert again.reused and not again.drifted
    assert "verified equivalent on 2 of 5 shards (ada, " in str(again.drift)
    assert (tmp_path / "lab" / artifact.spec.address / MANIFEST_NAME).read_bytes() == text


def test_a_fingerprint_that_a_stage_records_is_no_result(tmp_path: Path) -> None:
    _, evidence = ask(tmp_path, stage_of(SAME), stage_of(SAME, code="after"))
    assert evidence.is_equal, evidence.detail


@given(changed=st.sets(st.sampled_from(NAMES)), num_shards=st.integers(1, 6))
@settings(max_examples=examples(10))
def test_a_change_is_found_exactly_when_a_sampled_shard_has_it(
    tmp_path_factory: pytest.TempPathFactory, changed: set[str], num_shards: int
) -> None:
    """The slow reference: make everything with both codes and look at the sampled files."""
    after = stage_of({name: "other" if name in changed else "text" for name in NAMES})
    artifact, evidence = ask(tmp_path_factory.mktemp("lab"), stage_of(SAME), after, num_shards)
    chosen = sampled(artifact, stage_code(after.module), num_shards) or set(NAMES)
    assert evidence.is_equal == (not changed & chosen)
    assert not evidence.shards or set(evidence.shards) == chosen
    listed = sorted({"all.txt", *(f"{name}.txt" for name in changed & chosen)})[:5]
    assert not changed & chosen or f": {', '.join(listed)}" in evidence.detail


@pytest.mark.parametrize(
    ("after", "detail"),
    [
        (stage_of(SAME, ending="!"), "1 of 6 files: all.txt"),
        (stage_of(SAME, fact=1), "its files are equal, its manifest would differ at extra.fact.deep"),
        (stage_of(SAME, domain="docs"), "facts that later stages read: domain"),
        (stage_of({**SAME, "f": "text"}), "2 of 6 files: all.txt, f.txt"),
        (stage_of(dict.fromkeys(NAMES[:4], "text")), "2 of 6 files: all.txt, e.txt"),
    ],
)
def test_other_output_is_reported_and_leaves_the_artifact_drifted(tmp_path: Path, after: Stage, detail: str) -> None:
    """A step after the shards, a fact in the manifest, and another cut into shards differ wherever the sample falls."""
    artifact, evidence = ask(tmp_path, stage_of(SAME), after)
    assert not evidence.is_equal
    assert detail in evidence.detail
    built = build(artifact.store, Node(("words",), None, after, Words()))
    assert built.reused and built.drifted
    assert "bump the stage version" in str(built.drift)


def test_another_cut_into_shards_with_the_same_bytes_is_made_as_a_whole(tmp_path: Path) -> None:
    artifact = made_by_older_code(Store(str(tmp_path / "lab")), stage_of(SAME))
    renamed = stage_of(SAME)

    def write(out: Writer, config: Words) -> None:
        for name in NAMES:
            write_shard(out.folder, name, "text")
        (out.folder / "all.txt").write_text("text" * 5)
        out.extra["fact"] = {"deep": 0}
        out.facts["domain"] = "web"
        out.record(rows_out=20)

    evidence = verify(artifact, replace(renamed, run=write), Store(str(tmp_path / "s")), who="ada", num_shards=2)
    assert evidence.is_equal
    assert evidence.extent == "all of its files"


def test_shards_without_a_statistic_that_the_code_reads_are_made_as_a_whole(tmp_path: Path) -> None:
    _, evidence = ask(tmp_path, stage_of(SAME, statistic="characters"), stage_of(SAME))
    assert evidence.is_equal and evidence.extent == "all of its files"


def test_an_artifact_without_shards_on_record_is_made_as_a_whole(tmp_path: Path) -> None:
    store, stage = Store(str(tmp_path / "lab")), stage_of(SAME)
    artifact = made_by_older_code(store, stage)
    older = replace(artifact.manifest, shards={})
    record = json.loads(to_json(older))
    assert "shards" not in record
    read = from_json(json.dumps(record), "an older manifest")
    assert read.shards == {}
    evidence = verify(Artifact(store, read), stage, Store(str(tmp_path / "s")), who="ada", num_shards=2)
    assert evidence.is_equal and evidence.extent == "all of its files"


def test_facts_count_in_the_data_version_and_extra_does_not(tmp_path: Path) -> None:
    stages = (stage_of(SAME), stage_of(SAME, fact=1), stage_of(SAME, domain="docs"))
    versions = [made_by_older_code(Store(str(tmp_path / str(i))), stage).data_version for i, stage in enumerate(stages)]
    assert versions[0] == versions[1] != versions[2]


def test_a_stale_artifact_is_refused_and_a_failing_stage_leaves_no_evidence(tmp_path: Path) -> None:
    store, stage = Store(str(tmp_path / "lab")), stage_of(SAME)
    artifact = made_by_older_code(store, stage)
    with pytest.raises(ValueError, match=r"made by tests.words 1, this checkout has tests.words 2: it is stale"):
        verify(artifact, replace(stage, version="2"), Store(str(tmp_path / "s")), who="ada")

    def fail(out: Writer, config: Words) -> None:
        raise RuntimeError("the stage is broken")

    with pytest.raises(RuntimeError, match="the stage is broken"):
        verify(artifact, replace(stage, run=fail, config=Words), Store(str(tmp_path / "s")), who="ada")
    drift = drift_of(artifact, stage_code(stage.module))
    assert drift is not None and drift.evidence is None


def test_a_package_of_another_version_is_drift_and_evidence_is_for_these_versions_alone(tmp_path: Path) -> None:
    store, stage = Store(str(tmp_path / "lab")), stage_of(SAME)
    code = stage_code(stage.module)
    with writing(store, spec_of(store, Node(("words",), None, stage, Words())), code.fingerprint, packages=["pytest"]) as out:
        assert stage.run is not None
        stage.run(out, Words())
    now = Code(code.fingerprint, {"pytest": "99", "never-recorded": "1"})
    assert code_changes(out.artifact.manifest, code) == ()
    assert code_changes(out.artifact.manifest, now) == (f"pytest was {pytest.__version__} and is 99",)
    assert now.id != Code(code.fingerprint, {"pytest": "100", "never-recorded": "1"}).id


JOB = """
import sys
from pathlib import Path
from lineage.jobs.job import read_job

def main():
    job = read_job(Path(sys.argv[1]))
    with job.writing(job.spec, None) as out:
        above = job.inputs["above"]
        (out.folder / "x.txt").write_text(above.files()[0].read_text() + job.store.parents(above)[0].name)

if __name__ == "__main__":
    main()
"""


def copy_first(out: Writer, config: Words, above: Artifact) -> None:
    (out.folder / "y.txt").write_text(above.files()[0].read_text())


def test_a_job_is_verified_over_links_to_its_ancestors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, folder = Store(str(tmp_path / "lab")), tmp_path / "code"
    (folder / "a_job").mkdir(parents=True)
    (folder / "a_job" / "__main__.py").write_text(JOB)
    monkeypatch.syspath_prepend(str(folder))
    importlib.import_module("a_job.__main__")  # the fingerprint finds modules outside the project where they are loaded

    def launch(request: LaunchRequest) -> LaunchRecord:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
        subprocess.run([sys.executable, "-m", request.module, str(request.job_path)], env=environment, check=True, timeout=60)
        return LaunchRecord("child process", "cpu", ())

    top = Node(("words",), None, stage_of(SAME), Words())
    middle = Node(("middle",), None, Stage("tests.copy", "1", copy_first), Words(), {"above": top})
    job = Node(("job",), None, Stage("tests.job", "1", job="a_job"), Words(), {"above": middle})
    artifact = [build(store, node, launcher=launch).artifact for node in (top, middle, job)][-1]
    scratch = Store(str(tmp_path / "scratch"))
    evidence = verify(artifact, job.stage, scratch, who="ada", launcher=launch)
    assert evidence.is_equal and evidence.files == ("x.txt",)
    assert [made.name for made in scratch.artifacts() if not (tmp_path / "scratch" / made.spec.address).is_symlink()] == ["job"]
    assert (tmp_path / "scratch" / artifact.input("above").spec.address).is_symlink()
