"""Whether the tokens of a run mean what they meant to the checkpoint that it starts from.

Two tokenizers of one size fit the same embedding, and the loss of a model that reads the other's ids is just high.
"""

import logging

from lineage.history import MIXTURE, is_imported
from lineage.store import Artifact
from trainer.config import TOKENIZER, RunSpec

log = logging.getLogger("trainer")


def check_same_tokenizer(start: Artifact, mixture: Artifact, spec: RunSpec) -> None:
    """Raises: ValueError where the caches of a run and of its start were made with tokenizers of other bytes, undeclared."""
    here = tokenizer_of(mixture)
    if is_imported(start):
        log.info(
            "%s: %s is a published model; its tokenizer is taken to be that of the mixture, %s", spec.name, start.name, here
        )
        return
    there = tokenizer_of(start.input(MIXTURE))
    if here != there and (spec.start is None or TOKENIZER not in spec.start.changed_fields):
        raise ValueError(
            f"run {spec.name}: the caches of {mixture.name} were made with the tokenizer of data version {here}, those of "
            f"{start.name}, which it starts from, with {there}: the same ids are other words. Give it a mixture of that "
            f"tokenizer; if it is meant (equal ids), name {TOKENIZER!r} in run.start.changed_fields"
        )


def tokenizer_of(mixture: Artifact) -> str:
    """Data version of the tokenizer of a mixture's caches, which all have one."""
    return mixture.store.parents(mixture)[0].manifest.extra["tokens"]["tokenizer"]
