"""Many artifacts by one launch: each has its own end, summary and report; what fails or dies leaves the others theirs."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import listed_job.__main__ as listed_job
import pytest

from lineage.artifact.store import Store
from lineage.build.nodes import Node, resolve
from lineage.build.plan import Built, build
from lineage.build.together import build_together
from lineage.jobs.child_processes import run_subprocess
from lineage.jobs.job import JobFailedError, LaunchRecord, LaunchRequest
from lineage.jobs.job_list import job_files
from lineage.jobs.summary import SUMMARIES, StepSummary, read_summary
from lineage.messages import ProgressMessage
from lineage.stage import Stage
from lineage.writing.writer import Writer

LAB = Path(__file__).parents[1] / "lab"


@dataclass(frozen=True)
class Word:
    word: str


def write_nothing(out: Writer, config: Word) -> None:
    raise AssertionError(f"{config} is never made")


SAY = Stage("tests.say", "1", job=listed_job.__package__, config=Word)
ABSENT = Node(("absent",), None, Stage("tests.absent", "1", write_nothing), Word("absent"))


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(LAB))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def say(word: str, **more) -> Node:
    return Node(("said",), word, SAY, Word(word), **more)


@dataclass
class Pods:
    """A launcher that starts a new process for each launch, as that of a cluster does."""

    launches: list[LaunchRequest] = field(default_factory=list)
    tries: int = 1

    def __call__(self, launch: LaunchRequest) -> LaunchRecord:
        self.launches.append(launch)
        for number in range(1, self.tries + 1):
            try:
                ran = run_subprocess(launch)
            except JobFailedError:
                if number == self.tries:
                    raise
            else:
                return replace(ran, attempts=tuple(replace(each, number=number, seconds=9.0) for each in ran.attempts))
        raise AssertionError("no try is left")


@dataclass
class Heard:
    """What was reported, in order: words that ended, and messages of jobs."""

    ended: dict[str, Built | Exception] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def end(self, node: Node, built: Built | Exception) -> None:
        word = str(node.partition)
        assert word not in self.ended, f"each is reported once: {built}"
        self.ended[word] = built
        self.lines.append(f"end {word}")

    def hear(self, node: Node, note: ProgressMessage) -> None:
        self.lines.append(f"{node.partition} {note.done} of {note.total}, {note.numbers['failed']:g} failed")

    @property
    def made(self) -> list[str]:
        return [word for word, built in self.ended.items() if isinstance(built, Built)]


def together(store: Store, launcher, *nodes: Node) -> Heard:
    heard = Heard()
    build_together(store, nodes, launcher, heard.end, heard.hear, run_id="run-7")
    return heard


def summaries(store: Store) -> dict[str, StepSummary]:
    every = (read_summary(path.read_text(), str(path)) for path in Path(store.root, SUMMARIES).rglob("*.json"))
    return {summary.name: summary for summary in every}


def test_one_launch_makes_all_and_reports_each_while_the_next_runs(store: Store) -> None:
    pods = Pods()
    heard = together(store, pods, say("a"), say("b"), say("c"))
    (launch,) = pods.launches
    assert launch.name == "said (3 jobs)"
    assert heard.lines == ["a 0 of 3, 0 failed", "end a", "b 1 of 3, 0 failed", "end b", "c 2 of 3, 0 failed", "end c"]
    words = {word: resolve(store, say(word)) for word in "abc"}
    assert [made.files()[0].read_text() for made in words.values()] == ["a", "b", "c"]
    assert {made.manifest.run_id for made in words.values()} == {"run-7"}
    last = heard.ended["c"]
    assert isinstance(last, Built) and last.launched is not None and not last.reused
    ends = summaries(store)
    assert {end.state for end in ends.values()} == {"done"} and len(ends) == 3
    assert [attempt.seconds for end in ends.values() for attempt in end.attempts] == [3.0] * 3, "each paid a third"


def test_they_are_the_artifacts_of_single_builds(store: Store, tmp_path: Path) -> None:
    alone = Store(str(tmp_path / "alone"))
    build(alone, say("a"))
    build(store, say("b"))
    heard = together(store, Pods(), say("a"), say("b"))
    assert resolve(store, say("a")).data_version == resolve(alone, say("a")).data_version
    reused = heard.ended["b"]
    assert isinstance(reused, Built) and reused.reused, "it was there"
    again = Pods()
    assert together(store, again, say("a"), say("b")).made == ["a", "b"] and not again.launches


def test_what_fails_is_named_and_the_rest_is_made(store: Store) -> None:
    lacks = say("lacks", inputs={"absent": ABSENT})
    heard = together(store, Pods(), say("a"), say("fail"), lacks, say("nothing"), say("z"))
    assert sorted(heard.made) == ["a", "z"]
    assert "absent was never materialized" in str(heard.ended["lacks"])
    assert "1 of 4 jobs failed" in str(heard.ended["fail"]) and isinstance(heard.ended["fail"], JobFailedError)
    assert isinstance(heard.ended["nothing"], JobFailedError)
    assert {name: end.state for name, end in summaries(store).items()} == {
        "said[a]": "done", "said[fail]": "failed", "said[nothing]": "failed", "said[z]": "done"
    }  # fmt: skip
    nothing = together(store, Pods(), say("nothing"), say("y"))
    assert "exited 0 but committed nothing" in str(nothing.ended["nothing"]) and nothing.made == ["y"]


def test_a_process_that_replaces_a_dead_one_makes_the_rest(store: Store) -> None:
    heard = together(store, Pods(tries=3), say("a"), say("die-1"), say("b"))
    assert heard.made == ["a", "die-1", "b"]
    log = next(Path(store.scratch, "jobs").glob("*/log.txt")).read_text()
    assert log.count("a starts") == 2 and log.count("a is there already") == 1


def test_a_launch_that_dies_keeps_what_it_made(store: Store) -> None:
    heard = together(store, Pods(), say("a"), say("die-9"), say("b"))
    assert heard.made == ["a"] and "status 9" in str(heard.ended["b"])
    assert heard.lines.index("end a") < heard.lines.index("end die-9")


def test_an_interrupt_ends_every_summary(store: Store) -> None:
    def interrupted(launch: LaunchRequest) -> LaunchRecord:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        together(store, interrupted, say("a"), say("b"))
    assert [end.state for end in summaries(store).values()] == ["interrupted"] * 2


def test_who_asks_for_the_same_asks_for_the_same_job(store: Store) -> None:
    """So that the job of a step that died is adopted, though the list is shorter by now."""
    first, later, other = Pods(), Pods(), Pods()
    together(store, first, say("a"), say("fail"))
    together(store, later, say("a"), say("fail"))
    together(store, other, say("b"), say("fail"))
    assert first.launches[0].digest == later.launches[0].digest != other.launches[0].digest
    assert len(json.loads(later.launches[0].job_path.read_text())["jobs"]) == 1


def test_jobs_of_two_kinds_are_two_launches(store: Store) -> None:
    pods = Pods()
    heard = together(store, pods, say("a"), say("b", hardware=("cpu-large",)), say("c"))
    assert [launch.hardware for launch in pods.launches] == [(), ("cpu-large",)]
    assert sorted(heard.made) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"job_list": 2, "jobs": {}}', "format of the job list is 2, this checkout reads 1"),
        ('{"job_list": 1, "jobs": {}}', r"jobs is \{\}; an object of job files"),
        ('{"job_list": 1, "jobs": {"../x": {}}}', "names of letters"),
        ('{"job_list": 1, "jobs": [1]}', "an object of job files"),
        ('{"job_list": 1}', "KeyError: 'jobs'"),
        ('["job_list"]', "a JSON object is allowed"),
        ('{"job_list" 1}', "is not JSON"),
    ],
)
def test_a_list_that_is_none_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "list.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"list.json.*{message}"), job_files([str(path)]):
        pass


def test_other_files_are_left_to_their_readers(tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_text('{"job": 2, "note": "\\"job_list\\""}')
    with job_files([str(job), "-", "absent.json"]) as files:
        assert files == [str(job), "-", "absent.json"]
