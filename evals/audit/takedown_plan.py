"""The cheapest plan that makes each holder of a takedown clean, and the whole takedown, with bytes, seconds and FLOPs.

Rules, cheapest first. An artifact that holds nothing else is deleted. A normalized set, corpus or cache is made again
from its inputs without the documents. A mixture is frozen again over its clean caches. A checkpoint that has read none
of it stays. A checkpoint that has is trained again on the clean mixture, from the latest saved step of its run that had
not, or from step 0. A checkpoint that started from such a checkpoint is trained again from the clean one, and exports
of either are exported again. Seconds and bytes are those that the manifests recorded; FLOPs are
`trainer.api.training_flops_per_token`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from evals.audit.takedown import ROLES, Copy, Role, TakedownScope
from lineage.artifact.manifest import Manifest
from lineage.order.batches import BatchSchedule
from trainer.api import training_flops_per_token

REPEATABLE: tuple[Role, ...] = ("mixture", "export")
"""Roles of what is made again over clean inputs as it is declared; a corpus needs another declaration first."""
type Action = Literal["keep", "delete", "rebuild", "train"]


RAW_KEPT = "files as fetched: what is made of it leaves the documents out; drop its source to be rid of it"


@dataclass(frozen=True)
class PlanStep:
    """One artifact and what happens to it. `wall_seconds` and `flops` are those of the work, `num_bytes` is what it
    writes.
    """

    address: str
    name: str
    stage: str
    action: Action
    start: str
    """From which inputs, or from which checkpoint."""
    num_bytes: int = 0
    wall_seconds: float = 0.0
    flops: float = 0.0
    first_step: int = 0
    """For training: the step from which it continues."""


@dataclass(frozen=True)
class Plan:
    """Steps in an order in which they can be done, inputs first."""

    steps: tuple[PlanStep, ...]

    @property
    def num_bytes(self) -> int:
        return sum(step.num_bytes for step in self.steps)

    @property
    def wall_seconds(self) -> float:
        return round(sum(step.wall_seconds for step in self.steps), 3)

    @property
    def flops(self) -> float:
        return sum(step.flops for step in self.steps)


@dataclass(frozen=True)
class TakedownPlan:
    """`each`: by address of a holder, what makes that one clean. `whole`: what makes all of them clean, with shared
    work once.
    """

    each: dict[str, Plan]
    whole: Plan


def plan_takedown(scope: TakedownScope) -> TakedownPlan:
    """Return the plans for everything that holds or read what is to be taken down."""
    by_address = {holder.artifact.spec.address: holder for holder in scope.holders}
    each = {address: Plan(_steps(holder, scope.holders)) for address, holder in by_address.items()}
    wanted: dict[str, PlanStep] = {}
    for holder in scope.holders:
        for step in each[holder.artifact.spec.address].steps:
            wanted.setdefault(step.address, step)
    return TakedownPlan(each, Plan(_shared_training(tuple(wanted.values()), by_address)))


def missing_features(plan: Plan) -> list[str]:
    """Describe what a plan needs that this checkout cannot do yet."""
    lines = []
    if any(step.action == "rebuild" and ROLES[step.stage] not in REPEATABLE for step in plan.steps):
        lines.append(
            "'rebuild' of a corpus and of what is below it: add the documents to the corpus's `removals` (Corpus, with "
            "filters.remove_listed). Raw files and normalized sets keep them until their source is dropped"
        )
    if any(step.action == "train" and step.first_step for step in plan.steps):
        lines.append(
            "a run cannot go on from another's step on another mixture yet (a warm start begins a schedule of its own): "
            "until it can, from step 0"
        )
    return lines


def training_flops(manifest: Manifest, from_step: int = 0) -> float:
    """Return FLOPs of training a checkpoint's run from a step to its own. Raises: ValueError for another kind of
    artifact.
    """
    if manifest.spec.stage not in ("trainer.checkpoint", "trainer.trial"):
        raise ValueError(
            f"{manifest.spec.name} was made by {manifest.spec.stage}; only trainer.checkpoint and trainer.trial have FLOPs"
        )
    run = manifest.spec.config["run"]
    return training_flops_per_token(run, f"{manifest.spec.name}.run") * _tokens_since(manifest, from_step)


def _tokens_since(manifest: Manifest, from_step: int) -> int:
    run, last = manifest.spec.config["run"], manifest.spec.config["step"]
    batches = BatchSchedule.from_record(run["batch_size"])
    return (batches.first(last) - batches.first(from_step)) * run["seq_len"]


def _steps(holder: Copy, holders: Sequence[Copy]) -> tuple[PlanStep, ...]:
    if holder.role == "checkpoint":
        if holder.is_clean:
            return (_step(holder, "keep", "it has read none of it"),)
        if holder.is_whole:
            return (_step(holder, "delete", "nothing else is left to train on"),)
        below = [h for h in (_input(holder, holders, "start"), _input(holder, holders, "mixture")) if h is not None]
        steps = tuple(step for h in below for step in _steps(h, holders))
        return (*steps, _training(holder, None if holder.inherited else _clean_start(holder, holders)))
    if holder.role == "export" and not holder.is_whole:
        checkpoint = _input(holder, holders, "checkpoint")
        assert checkpoint is not None  # An export holds it because its checkpoint does.
        return (
            *_steps(checkpoint, holders),
            _step(holder, "rebuild", "its checkpoint made clean; withdraw what was published"),
        )
    if holder.is_whole:
        return (_step(holder, "delete", "withdraw what was published" if holder.role == "export" else ""),)
    if holder.role == "raw":
        return (_step(holder, "keep", RAW_KEPT),)
    if holder.role == "mixture":
        bound = {ref.address for ref in holder.artifact.spec.inputs}
        caches = [h for h in holders if h.artifact.spec.address in bound and h.role == "cache"]
        below = tuple(step for cache in caches for step in _steps(cache, holders))
        without = ", ".join(c.artifact.manifest.extra["tokens"]["component"] for c in caches if c.is_whole)
        start = "its caches" + (f", without {without}" if without else "")
        return (*below, _step(holder, "rebuild", start))
    inputs = ", ".join(ref.name for ref in holder.artifact.spec.inputs)
    return (_step(holder, "rebuild", f"the inputs it had ({inputs})"),)


def _input(holder: Copy, holders: Sequence[Copy], name: str) -> Copy | None:
    """Return the holder that was an input under this name, if there was one and it holds or read the selection."""
    addresses = {ref.address for ref in holder.artifact.spec.inputs if ref.name == name}
    return next((h for h in holders if h.artifact.spec.address in addresses), None)


def _clean_start(holder: Copy, holders: Sequence[Copy]) -> Copy | None:
    """Return the latest checkpoint of the same run that had read none of it: saved after at most `steps[0]` steps."""
    process = holder.artifact.spec.process
    same_run = [h for h in holders if h.role == "checkpoint" and h.artifact.spec.process == process]
    clean = [h for h in same_run if _step_of(h) <= holder.steps[0]]
    return max(clean, key=_step_of, default=None)


def _step_of(holder: Copy) -> int:
    return int(holder.artifact.spec.config["step"])


def _training(holder: Copy, start: Copy | None) -> PlanStep:
    """Return seconds in proportion to the tokens that are trained on again."""
    manifest = holder.artifact.manifest
    first = 0 if start is None else _step_of(start)
    where = "step 0" if start is None else f"step {first} ({start.artifact.spec.address})"
    if holder.inherited is not None:
        where = f"step 0, from {holder.inherited} made clean"
    seconds = manifest.resources.wall_seconds * _tokens_since(manifest, first) / _tokens_since(manifest, 0)
    return replace(_step(holder, "train", where, seconds), flops=training_flops(manifest, first), first_step=first)


def _step(holder: Copy, action: Action, start: str, seconds: float | None = None) -> PlanStep:
    manifest = holder.artifact.manifest
    works = action in ("rebuild", "train")
    return PlanStep(
        address=manifest.spec.address,
        name=manifest.spec.name,
        stage=manifest.spec.stage,
        action=action,
        start=start,
        num_bytes=sum(entry.bytes for entry in manifest.files) if works else 0,
        wall_seconds=round(manifest.resources.wall_seconds if seconds is None else seconds, 3) if works else 0.0,
    )


def _shared_training(steps: tuple[PlanStep, ...], holders: dict[str, Copy]) -> tuple[PlanStep, ...]:
    """Checkpoints of one run come from one training: its longest counts seconds and FLOPs, the others their bytes."""
    longest: dict[str, PlanStep] = {}
    for step in steps:
        if step.action == "train":
            process = holders[step.address].artifact.spec.process
            longest[process] = max(longest.get(process, step), step, key=lambda s: s.flops)
    paid = {step.address for step in longest.values()}
    return tuple(
        step
        if step.action != "train" or step.address in paid
        else replace(step, start="on the way of its run", wall_seconds=0.0, flops=0.0)
        for step in steps
    )
