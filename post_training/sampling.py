"""The rollouts of one iteration: a pure function of the policy, the seed and the iteration."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jaxtyping import Array

from post_training.asking import EncodedPrompts, Words, chosen
from post_training.environments.prompt import graded
from post_training.environments.verify import Verifier, verify
from post_training.log_probs import token_log_probs
from post_training.rollouts import Drawn, Origin, policy_digest, rollout_table
from post_training.rows import filled, rounded
from post_training.sampler import Sampler, compiled_sampler
from post_training.spec import Imitate, RewardRunSpec
from trainer.model.protocol import LanguageModel
from trainer.spec.compute import Compute

type Scores = tuple[Array, Array]
"""Log-probabilities and entropies of some rows."""


@dataclass(frozen=True)
class Roller:
    """Makes the rollouts of any iteration of a run."""

    spec: RewardRunSpec
    encoded: EncodedPrompts
    words: Words
    judge: Verifier
    reference: LanguageModel | None
    compute: Compute

    @cached_property
    def sampler(self) -> Sampler:
        return compiled_sampler(self.spec.sampling, self.spec.run.seq_len, self.words.stop)

    @cached_property
    def log_probs(self) -> Callable:
        """(model, tokens, prompt lengths, completions' tokens, kept) -> log-probabilities and entropies."""
        heat, compute = self.spec.sampling.temperature, self.compute

        def of_rows(model: LanguageModel, tokens: Array, starts: Array, width: int, kept: Array | None) -> tuple[Array, Array]:
            return token_log_probs(model, tokens, starts, width, compute, heat, kept)

        return jax.jit(of_rows, static_argnums=3)

    def rollouts(
        self,
        policy: LanguageModel,
        step: int,
        iteration: int,
        alive: Callable[[str, int], None] = lambda phase, iteration: None,
    ) -> pl.DataFrame:
        """Sample, compute log-probabilities, judge, and compute advantages. `alive` is called at the start of each phase."""
        places = [place for place in self.groups(iteration) for _ in range(self.spec.sampling.completions)]
        alive("rollout", iteration)
        imitates = isinstance(self.spec.advantage, Imitate)
        drawn = self._answers(places) if imitates else self._sampled(policy, iteration)
        return self.judged(policy, step, iteration, places, drawn, alive)

    def groups(self, iteration: int) -> list[int]:
        """Return the prompts of an iteration, one for each group, by their place in `encoded`."""
        return chosen(len(self.encoded.prompts), self.spec.sampling.prompts, iteration, self.spec.run.seed)

    def close(self) -> None:
        """Nothing is left open."""

    @property
    def dropped(self) -> Mapping[str, int]:
        """What is in no table, by reason."""
        return {"prompt too long": self.encoded.too_long}

    def judged(
        self,
        policy: LanguageModel,
        step: int,
        iteration: int,
        places: Sequence[int],
        drawn: Drawn,
        alive: Callable[[str, int], None],
        origins: Sequence[Origin] | None = None,
    ) -> pl.DataFrame:
        """Compute log-probabilities of sampled rows, judge them, and return the table (`rollout_table`)."""
        prompts = [self.encoded.prompts[place] for place in places]
        drawn = drawn.shortened(self.spec.run.seq_len)
        before = self._started(policy, drawn)
        # JAX computes what one thread starts in order. A second thread gives the second core the reference, while texts are
        # judged.
        with ThreadPoolExecutor(1, thread_name_prefix="reference") as thread:
            reference = thread.submit(self._of_reference, drawn)
            ends = zip(drawn.tokens, drawn.prompt_lengths, drawn.lengths, strict=True)
            texts = [self.words.text(row[start:end].tolist()) for row, start, end in ends]
            alive("reward", iteration)
            if isinstance(self.spec.advantage, Imitate):
                verdicts = [graded(True, "the environment's answer") for _ in texts]
            else:
                verdicts = verify(self.judge, prompts, texts)
            scored = self._scored(drawn, before, reference.result())
        trained = policy_digest(policy), step
        return rollout_table(self.spec, iteration, trained, prompts, scored, texts, verdicts, origins)

    def _sampled(self, policy: LanguageModel, iteration: int) -> Drawn:
        seq_len, count = self.spec.run.seq_len, self.spec.sampling.completions
        tokens, lengths = self.encoded.rows(self.groups(iteration), seq_len, self.words.stop)
        prompt_tokens = tokens[:, : rounded(int(lengths.max()), seq_len)]
        key = jax.random.fold_in(jax.random.PRNGKey(self.spec.run.seed), iteration)
        rows = jax.tree.map(np.asarray, self.sampler(policy, jnp.asarray(prompt_tokens), jnp.asarray(lengths), key))
        starts = np.repeat(lengths, count)
        ends = starts + rows.lengths
        whole = filled(np.repeat(tokens, count, axis=0), starts, rows.tokens, ends)
        return Drawn(whole, starts, ends, rows.ended, rows.log_probs, rows.log_probs, rows.entropy, None, rows.kept)

    def _answers(self, places: list[int]) -> Drawn:
        """Return the environment's answers instead of samples. Raises: ValueError for a prompt without an answer."""
        tokens, starts = self.encoded.rows(places, self.spec.run.seq_len, self.words.stop)
        lengths = starts.copy()
        for row, place in enumerate(places):
            prompt = self.encoded.prompts[place]
            answer = self.words.answer(prompt.answer)
            if not prompt.answer or len(answer) > self.spec.sampling.max_new_tokens:
                raise ValueError(
                    f"prompt {prompt.prompt_id!r} has an answer of {len(answer) - 1} tokens; imitation needs one of 1 to "
                    f"{self.spec.sampling.max_new_tokens - 1}"
                )
            lengths[row] += len(answer)
            tokens[row, starts[row] : lengths[row]] = answer
        zeros = np.zeros((len(places), self.spec.sampling.max_new_tokens), np.float32)
        return Drawn(tokens, starts, lengths, np.ones(len(places), bool), zeros, zeros, zeros)

    def _started(self, model: LanguageModel, drawn: Drawn) -> list[Scores]:
        """Start to compute the trainer's log-probabilities of a model, for as many rows at once as an update reads."""
        rows, size = len(drawn.tokens), self.spec.run.microbatch_size or self.spec.run.batches.size(0)
        parts = [slice(first, first + size) for first in range(0, rows, size)]
        return [
            self.log_probs(
                model, drawn.tokens[at], drawn.prompt_lengths[at], drawn.mask.shape[1],
                None if drawn.kept is None else drawn.kept[at],
            )
            for at in parts
        ]  # fmt: skip

    def _of_reference(self, drawn: Drawn) -> np.ndarray | None:
        """Return the log-probabilities of the reference, if there is one."""
        return None if self.reference is None else read_scores(self._started(self.reference, drawn), drawn)[0]

    def _scored(self, drawn: Drawn, started: list[Scores], reference: np.ndarray | None) -> Drawn:
        """Wait for the policy's log-probabilities, and add them and those of the reference."""
        before, entropy = read_scores(started, drawn)
        sampler = before if isinstance(self.spec.advantage, Imitate) else drawn.log_probs
        return replace(drawn, log_probs=sampler, before=before, entropy=entropy, reference=reference)


def read_scores(started: list[Scores], drawn: Drawn) -> tuple[np.ndarray, np.ndarray]:
    """Wait for log-probabilities and entropies of all rows; 0 beyond the end of a completion."""
    log_probs, entropy = (np.concatenate(each) * drawn.mask for each in zip(*started, strict=True))
    return log_probs, entropy
