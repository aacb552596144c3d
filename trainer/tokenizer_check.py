"""Check that a run and the checkpoint it starts from use the same tokenizer, or one that extends it.

Two tokenizers of one size fit the same embedding; with the wrong one nothing fails, and the loss is high.
"""

import logging

from lineage.artifact.store import Artifact
from lineage.order.history import MIXTURE, is_imported
from lineage.order.mixture import caches_of
from trainer.spec.config import TOKENIZER, RunSpec

log = logging.getLogger("trainer")


def check_same_tokenizer(start: Artifact, mixture: Artifact, spec: RunSpec) -> None:
    """Raises: ValueError where the tokenizers of a run and of its start differ and the spec does not declare it."""
    here = tokenizer_of(mixture)
    if spec.start is not None and spec.start.new_rows != "none":
        _check_extends(start, mixture, spec)
        return
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


def _check_extends(start: Artifact, mixture: Artifact, spec: RunSpec) -> None:
    """Raises: ValueError unless the tokenizer of a run extends that of its start, so that every old id has its old row."""
    here, cache = tokenizer_of(mixture), caches_of(mixture)[0]
    tokenizer = cache.input(TOKENIZER) if any(ref.name == TOKENIZER for ref in cache.spec.inputs) else None
    base = None if tokenizer is None else tokenizer.manifest.extra.get(TOKENIZER, {}).get("extends")
    if base is None or tokenizer is None:
        raise ValueError(
            f"run {spec.name}: run.start.new_rows is {spec.start and spec.start.new_rows!r}, and the tokenizer {here} of "
            f"{mixture.name} extends none; give the mixture a recipes.records.tokens.ExtendedTokenizer, or leave new_rows out"
        )
    own = tokenizer.input(TOKENIZER)
    if is_imported(start):
        there = own.data_version if any(ref.data_version == start.data_version for ref in own.spec.inputs) else "another"
    else:
        there = tokenizer_of(start.input(MIXTURE))
    if base != there:
        raise ValueError(
            f"run {spec.name}: the tokenizer {here} of {mixture.name} extends {base}, and {start.name}, which the run starts "
            f"from, has {there}: the same ids are other words; extend the tokenizer of the start"
        )


def tokenizer_of(mixture: Artifact) -> str:
    """Data version of the tokenizer of a mixture's caches; all caches of a mixture share one."""
    return caches_of(mixture)[0].manifest.extra["tokens"]["tokenizer"]
