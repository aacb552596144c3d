"""A checkpoint's arrays with rows for new tokens: the vocabulary of a run that extends the tokenizer of its start.

Each new row of the embedding and of the head is the mean of the old rows. Then a new token begins no likelier than the old
ones are on average (Hewitt 2021, nlp.stanford.edu/~johnhew/vocab-expansion.html), while a fresh row, of smaller logits than
the trained ones, can take most of the probability. Old rows stay the same to the bit.
"""

from dataclasses import dataclass

import numpy as np

from trainer.array_files import ArrayFiles, Index
from trainer.spec.checks import require
from trainer.spec.models import ModelConfig

BY_TOKEN = (".embedding[", ".head[")
"""How the paths of the arrays begin whose first axis is the vocabulary."""


@dataclass(frozen=True)
class MoreRows:
    """The arrays of a model's checkpoint, with `new` rows in place of `old` where the first axis is the vocabulary."""

    files: ArrayFiles
    old: int
    new: int

    @property
    def where(self) -> str:
        return self.files.where

    @property
    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {
            name: ((self.new, *shape[1:]) if name.startswith(BY_TOKEN) else shape, dtype)
            for name, (shape, dtype) in self.files.shapes.items()
        }

    def read(self, name: str, index: Index | None = None) -> np.ndarray:
        """A slice of an array, or the whole array. The mean is taken in float64."""
        if not name.startswith(BY_TOKEN):
            return self.files.read(name, index)
        rows, *rest = index or (slice(None),) * len(self.shapes[name][0])
        first, last, _ = rows.indices(self.new)
        parts = [self.files.read(name, (slice(first, min(last, self.old)), *rest))] if first < self.old else []
        if last > self.old:
            every = self.files.read(name, (slice(None), *rest))
            mean = every.astype(np.float64).mean(axis=0, keepdims=True).astype(every.dtype)
            parts.append(np.repeat(mean, last - max(first, self.old), axis=0))
        return np.concatenate(parts)


def check_more_rows(there: ModelConfig, here: ModelConfig, where: str) -> None:
    """Raises: ValueError unless the run's vocabulary is larger than that of the checkpoint."""
    more = here.vocab_size > there.vocab_size
    allowed = f"more than the {there.vocab_size} of {where}, or leave run.start.new_rows out"
    require(more, "model.vocab_size", here.vocab_size, allowed)
