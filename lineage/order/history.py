"""The history of a checkpoint as legs: each stretch of training on one mixture, back to fresh parameters.

A run that starts from another run's checkpoint has read everything that run had read. So a question about what a
checkpoint has seen must ask every leg.
"""

from dataclasses import dataclass

from lineage.artifact.store import Artifact
from lineage.order.batches import BatchSchedule

MIXTURE, START, REFERENCE = "mixture", "start", "reference"
"""Inputs of a checkpoint. A reference is what the start gives the pairs of this mixture: nothing more was read for it."""


@dataclass(frozen=True)
class TrainingSegment:
    """Steps 0 to `num_steps` of one run. `checkpoint` ends the leg, whatever the run did afterwards."""

    checkpoint: Artifact
    mixture: Artifact
    seq_len: int
    batches: BatchSchedule
    num_steps: int


def is_imported(checkpoint: Artifact) -> bool:
    """Whether a checkpoint is a published model: what it has read is not known here."""
    return "imported" in checkpoint.manifest.extra.get("checkpoint", {})


def imported_start(checkpoint: Artifact) -> Artifact | None:
    """Return the published model at the beginning of a checkpoint's history, if there is one."""
    current: Artifact | None = checkpoint
    while current is not None and not is_imported(current):
        current = current.input(START) if START in {ref.name for ref in current.spec.inputs} else None
    return current


def batches_read(checkpoint: Artifact) -> BatchSchedule:
    """Return which global sequences of its mixture each step of a checkpoint's run reads."""
    facts = checkpoint.manifest.extra["checkpoint"]
    return BatchSchedule.from_record(facts["batch_size"], facts.get("first_sequence", 0))


def training_legs(checkpoint: Artifact) -> list[TrainingSegment]:
    """Return every leg of training in this lab that led to a checkpoint, the oldest first. A published model has none.

    Raises: ValueError for a checkpoint with inputs of another name, because their data cannot be followed; what
    `Store.parents` raises.
    """
    legs: list[TrainingSegment] = []
    current: Artifact | None = checkpoint
    while current is not None and not is_imported(current):
        names = {ref.name for ref in current.spec.inputs}
        if MIXTURE not in names or names - {MIXTURE, START, REFERENCE}:
            raise ValueError(
                f"{current.name} was made from {', '.join(sorted(names)) or 'nothing'}; what a checkpoint has read is followed "
                f"through its inputs {MIXTURE!r} and {START!r} alone"
            )
        facts = current.manifest.extra["checkpoint"]
        legs.append(TrainingSegment(current, current.input(MIXTURE), facts["seq_len"], batches_read(current), facts["step"]))
        current = current.input(START) if START in names else None
    return legs[::-1]
