"""Check that a run and the checkpoint it starts from use the same tokenizer.

Two tokenizers of one size fit the same embedding; with the wrong one nothing fails, and the loss is high.
"""

import logging

from lineage.artifact.store import Artifact
from lineage.order.history import MIXTURE, is_imported
from trainer.spec.config import TOKENIZER, RunSpec

log = logging.getLogger("trainer")


def check_same_tokenizer(start: Artifact, mixture: Artifact, spec: RunSpec) -> None:
    """Raises: ValueError where the tokenizers of a run and of its start differ and the spec does not declare it."""
    here = tokenizer_of(mixture)
    if is_imported(start):
        log.info(
            "%s: %s is a published model; its tokenizer is assumed to be that of the mixture, %s", spec.name, start.name, here
        )
        return
    there = tokenizer_of(start.input(MIXTURE))
    if here != there and (spec.start is None or TOKENIZER not in spec.start.changed_fields):
        raise ValueError(
            f"run {spec.name}: the caches of {mixture.name} were made with the tokenizer of data version {here}, those of "
            f"{start.name}, which it starts from, with {there}: the same ids are other words. Give it a mixture of that "
            f"tokenizer; if this is intended (equal ids), name {TOKENIZER!r} in run.start.changed_fields"
        )


def tokenizer_of(mixture: Artifact) -> str:
    """Data version of the tokenizer of a mixture's caches; all caches of a mixture share one."""
    return mixture.store.parents(mixture)[0].manifest.extra["tokens"]["tokenizer"]
