"""The promises that chaos must not break, checked by what is left: checkpoints, jobs, every pod's life and log."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kubelet import Kubelet
from pod_process import PodProcess
from rich.table import Table

from resources.manifests import ATTEMPT
from trainer.spec.stage import step_partition

SAVED = re.compile(r"(\S+) .*trainer: saved step (\d+)")
RESUMED = re.compile(r"(\S+) .*trainer: resuming \S+ at step (\d+)")
RANK = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class Ended:
    """A disturbed run after its end."""

    wanted: dict[int, str]
    """Data versions of the undisturbed run's checkpoints, by step."""
    versions: dict[int, str]
    jobsets: dict[str, int]
    """Attempt of every job that existed, by uid."""
    pods: list[PodProcess]
    logs: list[list[bytes]]
    reported: list[str]
    launches: int
    unanswered: dict[str, int]
    """Failed looks of this script, by message; only dead servers may cause them."""
    undisturbed_seconds: float
    seconds: float

    def table(self) -> Table:
        table = Table(title="what came of it", title_style="bold", pad_edge=False, show_header=False)
        for name in ("what", "number"):
            table.add_column(name)
        equal = sum(self.versions.get(step) == version for step, version in self.wanted.items())
        started = sum(len(pod.lived) > 0 for pod in self.pods)
        rows = {
            "checkpoints equal to the undisturbed run's": f"{equal} of {len(self.wanted)}",
            "data version of the last": f"{self.versions[max(self.versions)]} (undisturbed {self.wanted[max(self.wanted)]})",
            "attempts, each one JobSet": f"{len(set(self.jobsets.values()))}, {len(self.jobsets)} JobSets",
            "processes of hosts started": str(started),
            "starts that resumed, lost saves": f"{len(resumes(self.logs))}, {len(lost_saves(self.logs))}",
            "launches of the asset by a person": str(self.launches),
            "checkpoints that the sensor reported": f"{len(self.reported)}, {len(set(self.reported))} different",
            "our own looks that a dead server did not answer": str(sum(self.unanswered.values())),
            "seconds, undisturbed": f"{self.seconds:.0f}, {self.undisturbed_seconds:.0f}",
        }
        for row in rows.items():
            table.add_row(*row)
        return table


def broken(ended: Ended) -> list[str]:
    """Return the promises that were broken."""
    steps = [step for step, version in ended.wanted.items() if ended.versions.get(step) != version]
    wrong = [f"the checkpoint of step {step} is not the undisturbed run's" for step in steps]
    wrong += [f"step {step} was saved, and a later start went on from step {at}" for step, at in lost_saves(ended.logs)]
    wrong += [f"{one} and {other} ran at the same time" for one, other in at_once(ended.pods)]
    if len(set(ended.jobsets.values())) != len(ended.jobsets):
        wrong.append(f"two jobs have one attempt: {sorted(ended.jobsets.values())}")
    if ended.reported != [step_partition(step) for step in sorted(ended.wanted)]:
        wrong.append(f"the sensor reported {ended.reported}, which is not every checkpoint once")
    return wrong


def at_once(pods: list[PodProcess]) -> Iterator[tuple[str, str]]:
    """Yield pairs of pods of one rank that had a process at the same time.

    This is stronger evidence that no job existed twice. Two objects cannot have one name at one time, so equal attempts would
    only show a lost record, and not two jobs that trained.
    """
    for one, other in itertools.combinations((pod for pod in pods if len(pod.lived) == 2), 2):
        same_rank = one.raw["metadata"]["annotations"][RANK] == other.raw["metadata"]["annotations"][RANK]
        if same_rank and max(one.lived[0], other.lived[0]) < min(one.lived[1], other.lived[1]):
            yield _words(one), _words(other)


def resumes(logs: list[list[bytes]]) -> list[tuple[str, int]]:
    """Return when each process resumed, and from which step."""
    return sorted((match[1], int(match[2])) for match in _matches(RESUMED, logs))


def lost_saves(logs: list[list[bytes]]) -> list[tuple[int, int]]:
    """Return saves that a process reported and a later start did not use: (saved, resumed from)."""
    saved = [(match[1], int(match[2])) for match in _matches(SAVED, logs)]
    lost = []
    for moment, at in resumes(logs):
        newest = max((step for when, step in saved if when < moment), default=0)
        if newest > at:
            lost.append((newest, at))
    return lost


def saved_steps(kubelet: Kubelet) -> list[int]:
    """Return the steps that a process has reported as saved so far."""
    return [int(match[2]) for match in _matches(SAVED, [pod.log_lines("", 0) or [] for pod in list(kubelet.history)])]


def _matches(pattern: re.Pattern[str], logs: list[list[bytes]]) -> Iterator[re.Match[str]]:
    for line in itertools.chain.from_iterable(logs):
        if match := pattern.match(line.decode(errors="replace")):
            yield match


def _words(pod: PodProcess) -> str:
    return f"{pod.name} (attempt {pod.raw['metadata']['labels'][ATTEMPT]})"
