"""Where metrics go besides the checkpoint: JSON lines always, TensorBoard and W&B when asked. None can stop or change a run.

Every attempt is its own run to a tracker, with a new id, and they share a group: W&B's `resume="allow"` gave the hosts of one
job different histories and stopped Marin's restarts (#5319). Only the first process writes.
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
    """Takes numbers by step. Names have `/` between their words."""

    def log(self, step: int, values: Values) -> None: ...

    def finish(self) -> None: ...


@dataclass
class JsonLines:
    """`metrics.jsonl`: a line that says what the attempt is, then a line a step. The last line of a killed one may be cut."""

    path: Path
    attempt: str
    config: Mapping[str, Any]
    stream: Any = field(init=False)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        cut = self.path.exists() and self.path.stat().st_size > 0 and not self.path.read_bytes().endswith(b"\n")
        self.stream = self.path.open("a", buffering=1)  # a line at a time, so a kill costs one line at most
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
    """A W&B run of this attempt, in its job's group. `WANDB_MODE=offline` writes below the job's folder and calls nobody."""

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
    """All trackers of an attempt. One that fails is said once and left; the run goes on."""

    members: list[Tracker]

    def log(self, step: int, values: Values) -> None:
        for tracker in tuple(self.members):
            try:
                tracker.log(step, values)
            except Exception as error:  # a metrics service is no reason to lose a step
                log.error("%s failed at step %d and is left: %s", type(tracker).__name__, step, error)
                self.members.remove(tracker)

    def finish(self) -> None:
        for tracker in self.members:
            try:
                tracker.finish()
            except Exception as error:  # nor to fail a run that is done
                log.error("%s could not finish: %s; what it holds may lack the last steps", type(tracker).__name__, error)


def open_trackers(
    names: Sequence[str], folder: Path, run: str, group: str, attempt: str, config: Mapping[str, Any]
) -> Trackers:
    """The trackers of an attempt below a job's folder. A service that refuses is said and left (`metrics.jsonl` has it all).

    Raises: ImportError naming the group of packages that is missing.
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
    """A tracker that asks a service first: none where that is away, or knows no such key."""
    try:
        return [connect()]
    except ImportError:
        raise
    except Exception as error:  # a metrics service is no reason not to train
        log.error("wandb could not begin and is left: %s; WANDB_MODE=offline needs no service", error)
        return []


def attempts_of(path: Path) -> Iterable[Mapping[str, Any]]:
    """Records of a `metrics.jsonl`; a line that a kill cut is passed over."""
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            log.warning("%s: a cut line of %d characters is passed over", path, len(line))
