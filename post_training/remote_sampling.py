"""Rollouts by workers behind a broker while the trainer updates: asynchronous, with a bound on staleness.

The groups of iteration i are asked for when iteration i - `max_staleness` has its own. Any worker may answer, with the policy
that it has then. An answer of a policy that is too old, or of none of this run, is dropped, counted, and asked for again under
another name. A group belongs to one iteration, and a table is committed once, so no answer is trained on twice.

A server of another kind may name no weights in its answers. Then nothing bounds their age, and the run stops, unless its spec
says `unnamed_weights="train"`: the importance weight still corrects what is known, the log-probabilities that the server sent.

These rollouts are no function of policy and seed: which policy answers depends on the speed of the workers. Given the committed
tables, the updates are, so a resume makes the same bits.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from lineage.artifact.store import Artifact
from lineage.jobs.job import Job
from post_training.policies import Policies
from post_training.rollout_requests import RolloutRequests
from post_training.rollouts import UNKNOWN_POLICY, Drawn, Origin
from post_training.sampling import Roller
from post_training.spec import RewardRunSpec
from serving.broker.client import ItemRequest, Recorded
from serving.samples import Sample, sample_request, samples_of
from serving.server.sampling import Sampling
from trainer.inference import TOKENIZER_FILE
from trainer.model.protocol import LanguageModel

log = logging.getLogger("post_training")
PAUSE_SECONDS = 0.2
"""Between two tries of a group whose answers are too old: the workers load the newest policy meanwhile."""


@dataclass
class RemoteRoller:
    """Makes the rollouts of any iteration of a run from the answers of its workers."""

    local: Roller
    policies: Policies
    requests: RolloutRequests
    run: str
    """Begin of the name of every request: no other run may use it."""
    drops: Counter[str] = field(default_factory=Counter)
    """Answers of this iteration that are not trained on, by reason."""

    @property
    def encoded(self):
        return self.local.encoded

    @property
    def words(self):
        return self.local.words

    @property
    def dropped(self) -> Mapping[str, int]:
        return {**self.local.dropped, **self.drops}

    def rollouts(
        self,
        policy: LanguageModel,
        step: int,
        iteration: int,
        alive: Callable[[str, int], None] = lambda phase, iteration: None,
    ) -> pl.DataFrame:
        """Publish the policy, take the answers of this iteration, and ask for those of a later one.

        Raises: RuntimeError if a worker refuses, or no answer is new enough within the patience.
        """
        spec = self.local.spec
        alive("rollout", iteration)
        self.requests.forget_before(iteration)
        self.policies.publish(iteration, step, policy)
        # A trainer that was killed had asked for these: the broker knows the names, and nothing is sampled again.
        self._ask_up_to(iteration, iteration + spec.max_staleness - 1)
        taken = self._taken(iteration)
        self._ask_up_to(iteration, iteration + spec.max_staleness)
        groups = self.local.groups(iteration)
        places = [place for place in groups for _ in range(spec.sampling.completions)]
        samples = [sample for _, of_group in taken for sample in of_group]
        origins = [origin for origin, of_group in taken for _ in of_group]
        return self.local.judged(policy, step, iteration, places, self._drawn(places, samples), alive, origins)

    def close(self) -> None:
        self.requests.close()

    def _ask_up_to(self, first: int, last: int) -> None:
        for iteration in range(first, min(last + 1, self.local.spec.iterations)):
            self.requests.send(iteration, [self._request(iteration, group, 0) for group in range(self._groups)])

    @property
    def _groups(self) -> int:
        return self.local.spec.sampling.prompts

    def _taken(self, iteration: int) -> list[tuple[Origin, list[Sample]]]:
        """Return origin and samples of each group, each from a policy that is new enough, or unknown where the run takes these.

        Raises: RuntimeError.
        """
        spec, end = self.local.spec, time.monotonic() + self.requests.patience
        tries, taken = dict.fromkeys(range(self._groups), 0), {}
        self.drops.clear()
        while left := [group for group in tries if group not in taken]:
            names = {group: self._name(iteration, group, tries[group]) for group in left}
            answers = self.requests.answers(iteration, list(names.values()))
            known = {policy.weights: policy for policy in self.policies.known().values()}
            for group, name in names.items():
                samples = self._samples(iteration, group, answers[name])
                seed, named = self._seed(iteration, group, tries[group]), samples[0].weights
                by = known.get(named or "")
                if named is None:
                    self._check_unnamed(answers[name])
                    taken[group] = Origin(UNKNOWN_POLICY, None, seed), samples
                elif by is not None and 0 <= iteration - by.version <= spec.max_staleness:
                    taken[group] = Origin(by.digest, by.step, seed), samples
                else:
                    self.drops["another policy" if by is None else "stale"] += len(samples)
                    tries[group] += 1
            late = [group for group in left if group not in taken]
            if late and time.monotonic() > end:
                raise RuntimeError(
                    f"{spec.run.name}, iteration {iteration}: after {self.requests.patience:g} s {len(late)} groups have only "
                    f"answers of policies that are too old or of other runs ({dict(self.drops)}); do the workers follow "
                    f"{self.policies.folder}?"
                )
            if late:
                time.sleep(PAUSE_SECONDS)
                self.requests.send(iteration, [self._request(iteration, group, tries[group]) for group in late])
        return [taken[group] for group in range(self._groups)]

    def _check_unnamed(self, recorded: Recorded) -> None:
        """Raises: RuntimeError for an answer without a name of its weights, unless the run trains on these."""
        spec = self.local.spec
        if spec.unnamed_weights == "refuse":
            stated = {name: recorded.answer.get(name) for name in ("model", "system_fingerprint")}
            raise RuntimeError(
                f"{spec.run.name}: an answer names no weights ({stated}), so its age is unknown and max_staleness "
                f"{spec.max_staleness} cannot be kept. Take workers that follow {self.policies.folder}, or start vLLM on a "
                "folder there with --fingerprint-mode custom --fingerprint-value DIGEST (newest.json has both), or declare "
                'unnamed_weights="train"'
            )

    def _name(self, iteration: int, group: int, attempt: int) -> str:
        return f"{self.run}/{iteration}/{group}" + (f"+{attempt}" if attempt else "")

    def _seed(self, iteration: int, group: int, attempt: int) -> int:
        parts = [self.local.spec.run.seed, 4, iteration, group, attempt]
        return int(np.random.default_rng(parts).integers(1 << 53))

    def _request(self, iteration: int, group: int, attempt: int) -> ItemRequest:
        sampling = self.local.spec.sampling
        place = self.local.groups(iteration)[group]
        return sample_request(
            self._name(iteration, group, attempt),
            self.local.spec.run.name,
            self.encoded.tokens[place],
            Sampling(sampling.temperature, sampling.top_p),
            count=sampling.completions,
            max_tokens=sampling.max_new_tokens,
            seed=self._seed(iteration, group, attempt),
            stop_token_ids=[self.words.stop],
            return_kept_token_ids=sampling.top_p < 1,
        )

    def _samples(self, iteration: int, group: int, recorded: Recorded) -> list[Sample]:
        """Read the answer of a group. Raises: ValueError for a refusal, or an answer that lacks what an update reads."""
        spec = self.local.spec
        # Where nothing is left out and the temperature is 1, the model's own distribution is the one that is sampled.
        whole = (spec.sampling.temperature, spec.sampling.top_p) == (1.0, 1.0)
        samples = samples_of(recorded, "processed_logprobs" if whole else "raw_logprobs")
        prompt = self.encoded.tokens[self.local.groups(iteration)[group]]
        complete = len(samples) == spec.sampling.completions and all(sample.prompt == prompt for sample in samples)
        read = all(sample.sampling_log_probs is not None for sample in samples)
        kept = spec.sampling.top_p == 1 or all(sample.kept_tokens is not None for sample in samples)
        if not (complete and read and kept):
            raise ValueError(
                f"{spec.run.name}, iteration {iteration}, group {group}: an answer lacks samples, the prompt's tokens, "
                "log-probabilities of the sampling distribution, or the kept set; the workers must be servers of this project, "
                "or at temperature 1 and top_p 1 servers with vLLM's fields"
            )
        return samples

    def _drawn(self, places: Sequence[int], samples: Sequence[Sample]) -> Drawn:
        """Return the samples as arrays, in the order of the rows."""
        spec, stop = self.local.spec, self.words.stop
        tokens, starts = self.encoded.rows(places, spec.run.seq_len, stop)
        lengths = starts + np.array([len(sample.tokens) for sample in samples], np.int32)
        log_probs = np.zeros((len(tokens), spec.sampling.max_new_tokens), np.float32)
        size = spec.run.model.vocab_size
        kept = None if spec.sampling.top_p == 1 else np.full((*log_probs.shape, -(-size // 8)), 255, np.uint8)
        for row, sample in enumerate(samples):
            tokens[row, starts[row] : lengths[row]] = sample.tokens
            log_probs[row, : len(sample.tokens)] = sample.sampling_log_probs
            for place, allowed in enumerate(sample.kept_tokens or () if kept is not None else ()):
                bits = np.zeros(size, bool)
                bits[list(allowed or range(size))] = True
                assert kept is not None
                kept[row, place] = np.packbits(bits)
        ended = np.array([sample.tokens[-1] == stop for sample in samples])
        return Drawn(tokens, starts, lengths, ended, log_probs, log_probs, np.zeros_like(log_probs), None, kept)


def check_broker(spec: RewardRunSpec, url: str) -> None:
    """Raises: ValueError if workers sample for the run and no broker is named."""
    if spec.max_staleness and not url:
        raise ValueError(
            f"run {spec.run.name} has max_staleness {spec.max_staleness}, so workers sample its rollouts: set MARIN_ROLLOUTS "
            "to the URL of their broker (docs/recipes/train_with_rewards.md)"
        )


def remote_roller(job: Job, run: str, local: Roller, url: str) -> RemoteRoller:
    """Open the asynchronous path of a run."""
    spec = local.spec
    folder, tokenizer = job.store.scratch / "policies" / spec.run.name / run, job.inputs["tokenizer"]
    assert isinstance(tokenizer, Artifact)
    policies = Policies(folder, spec.run.model, tokenizer.file(TOKENIZER_FILE), local.words.stop)
    log.info(
        "%s: rollouts come from %s; start workers: python -m serving.server %s --follow --name %s --broker %s",
        spec.run.name, url, folder, spec.run.name, url,
    )  # fmt: skip
    return RemoteRoller(local, policies, RolloutRequests(url, folder / "answers"), run)
