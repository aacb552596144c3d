"""Send metrics to trackers: always JSON lines, TensorBoard and W&B on request. A tracker cannot stop or change a run.

Every attempt is a tracker run of its own with a new id, and the attempts of a job share a group: W&B's `resume="allow"`
gave the hosts of one job different histories and blocked Marin's restarts
(github.com/marin-community/marin/issues/5319). Only the first process writes.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

log = logging.getLogger("trainer")

KNOWN = ("tensorboard", "wandb")
type Values = Mapping[str, float]


class Tracker(Protocol):
    """Receives numbers by step. Names have `/` between their words."""

    def log(self, step: int, values: Values) -> None: ...

    def finish(self) -> None: ...


@dataclass
class JsonLines:
    """`metrics.jsonl`: one line that describes the attempt, then one line a step. A kill may truncate the last line."""

    path: Path
    attempt: str
    config: Mapping[str, Any]
    stream: Any = field(init=False)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        cut = self.path.exists() and self.path.stat().st_size > 0 and not self.path.read_bytes().endswith(b"\n")
        self.stream = self.path.open("a", buffering=1)  # line-buffered, so a kill costs one line at most
        if cut:
            self.stream.write("\n")
        self._write({"attempt": self.attempt, "started": time.time(), **self.config})

    def log(self, step: int, values: Values) -> None:
        self._write(
            {"attempt": self.attempt, "step": step, **{k: v if math.isfinite(v) else str(v) for k, v in values.items()}}
        )

    def finish(self) -> None:
        self.stream.close()

    def _write(self, record: Mapping[str, Any]) -> None:
        self.stream.write(json.dumps(record) + "\n")


@dataclass
class TensorBoard:
    """Event files, one folder an attempt: `tensorboard --logdir <job's folder>/tensorboard`."""

    folder: Path
    writer: Any = field(init=False)

    def __post_init__(self) -> None:
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(str(self.folder))

    def log(self, step: int, values: Values) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def finish(self) -> None:
        self.writer.close()


@dataclass
class WandB:
    """A W&B run for this attempt, in its job's group. `WANDB_MODE=offline` writes below the job's folder without network."""

    folder: Path
    name: str
    group: str
    attempt: str
    config: Mapping[str, Any]
    run: Any = field(init=False)

    def __post_init__(self) -> None:
        import wandb

        self.folder.mkdir(parents=True, exist_ok=True)
        self.run = wandb.init(
            project="marin", name=self.name, group=self.group, id=f"{self.group[:8]}-{self.attempt}", resume="never",
            dir=str(self.folder), config=dict(self.config),
        )  # fmt: skip

    def log(self, step: int, values: Values) -> None:
        self.run.log(dict(values), step=step)

    def finish(self) -> None:
        self.run.finish()


@dataclass
class Trackers:
    """All trackers of an attempt. A tracker that fails is logged once and disabled; the run continues."""

    members: list[Tracker]

    def log(self, step: int, values: Values) -> None:
        for tracker in tuple(self.members):
            try:
                tracker.log(step, values)
            except Exception as error:  # losing metrics must not stop training
                log.error("%s failed at step %d and is disabled: %s", type(tracker).__name__, step, error)
                self.members.remove(tracker)

    def finish(self) -> None:
        for tracker in self.members:
            try:
                tracker.finish()
            except Exception as error:  # nor fail a finished run
                log.error("%s could not finish: %s; it may lack the last steps", type(tracker).__name__, error)


def open_trackers(
    names: Sequence[str], folder: Path, run: str, group: str, attempt: str, config: Mapping[str, Any]
) -> Trackers:
    """The trackers of an attempt, below a job's folder. A service that refuses is logged and skipped; `metrics.jsonl` has all.

    Raises: ImportError naming the missing group of packages.
    """
    members: list[Tracker] = [JsonLines(folder / "metrics.jsonl", attempt, {"run": run, "group": group, **config})]
    try:
        if "tensorboard" in names:
            members.append(TensorBoard(folder / "tensorboard" / attempt))
        if "wandb" in names:
            members += _connected(lambda: WandB(folder / "wandb", run, group, attempt, config))
    except ImportError as error:
        raise ImportError(
            f"MARIN_TRACKERS names {', '.join(names)}, and {error.name} is not installed: pip install 'marin-lab[trackers]'"
        ) from error
    log.info("metrics: %s%s", folder / "metrics.jsonl", "".join(f", {name}" for name in names))
    return Trackers(members)


def _connected(connect: Callable[[], Tracker]) -> list[Tracker]:
    """The tracker of a service; an empty list if the service is unreachable or refuses the key."""
    try:
        return [connect()]
    except ImportError:
        raise
    except Exception as error:  # losing metrics must not stop training
        log.error("wandb could not start and is disabled: %s; WANDB_MODE=offline needs no service", error)
        return []


def attempts_of(path: Path) -> Iterable[Mapping[str, Any]]:
    """Records of a `metrics.jsonl`, without lines that a kill truncated."""
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            log.warning("%s: skipping a truncated line of %d characters", path, len(line))
