"""Prompts as tokens, and which prompts an iteration uses: pure functions of seed and iteration."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from tokenizers import Tokenizer

from lineage.artifact.store import Artifact
from post_training.environments.prompt import Prompt, Split
from post_training.environments.table import read_prompts
from serving.tokenization import read_tokenizer
from trainer.inference import TOKENIZER_FILE


@dataclass(frozen=True)
class Words:
    """A tokenizer and the token that starts and ends texts."""

    tokenizer: Tokenizer
    stop: int
    data_version: str

    @staticmethod
    def of(artifact: Artifact) -> "Words":
        """Open a tokenizer. Raises: ValueError if the artifact is not a tokenizer that we trained."""
        facts = artifact.manifest.extra.get("tokenizer")
        if facts is None or facts.get("eos") is None:
            raise ValueError(f"{artifact.name} is not a tokenizer with an end of text; give an artifact of datakit.tokenizer")
        return Words(read_tokenizer(artifact.file(TOKENIZER_FILE)), int(facts["eos"]), artifact.data_version)

    def prompt(self, text: str) -> list[int]:
        """Return the tokens of a prompt. A prompt starts a document, as in training."""
        return [self.stop, *self.tokenizer.encode(text, add_special_tokens=False).ids]

    def answer(self, text: str) -> list[int]:
        """Return the tokens of a completion with the end of text."""
        return [*self.tokenizer.encode(text, add_special_tokens=False).ids, self.stop]

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of a completion, without the end of text."""
        return self.tokenizer.decode([token for token in tokens if token != self.stop], skip_special_tokens=False)


@dataclass(frozen=True)
class EncodedPrompts:
    """The prompts of a split as tokens. Prompts that leave no room for a completion are dropped and counted."""

    prompts: tuple[Prompt, ...]
    tokens: tuple[tuple[int, ...], ...]
    too_long: int

    @staticmethod
    def of(environment: Artifact, split: Split, words: Words, longest: int) -> "EncodedPrompts":
        """Read the prompts of a split. Raises: ValueError if every prompt is longer than `longest` tokens."""
        prompts = read_prompts(environment, split)
        encoded = [tuple(words.prompt(prompt.text)) for prompt in prompts]
        fits = [len(each) <= longest for each in encoded]
        if not any(fits):
            shortest = min(map(len, encoded))
            raise ValueError(
                f"every {split} prompt of {environment.name} is too long: the shortest has {shortest} tokens, {longest} fit "
                "before a completion; raise run.seq_len or lower sampling.max_new_tokens"
            )
        kept = [place for place, fit in enumerate(fits) if fit]
        return EncodedPrompts(tuple(prompts[at] for at in kept), tuple(encoded[at] for at in kept), fits.count(False))

    def rows(self, places: Sequence[int], seq_len: int, stop: int) -> tuple[Int[np.ndarray, "R S"], Int[np.ndarray, " R"]]:
        """(prompts padded to the sequence, their lengths)."""
        tokens = np.full((len(places), seq_len), stop, np.int32)
        for row, place in enumerate(places):
            tokens[row, : len(self.tokens[place])] = self.tokens[place]
        return tokens, np.array([len(self.tokens[place]) for place in places], np.int32)


def chosen(count: int, wanted: int, iteration: int, seed: int) -> list[int]:
    """Return the indices of an iteration's prompts. They are consecutive in passes; a pass is a permutation of all prompts."""
    first = iteration * wanted
    passes, within = np.divmod(np.arange(first, first + wanted), count)
    permutations = {whole: _permutation(count, seed, whole) for whole in np.unique(passes).tolist()}
    return [int(permutations[whole][place]) for whole, place in zip(passes.tolist(), within.tolist(), strict=True)]


def _permutation(count: int, seed: int, whole: int) -> np.ndarray:
    return np.random.default_rng([seed, 1, whole]).permutation(count)
