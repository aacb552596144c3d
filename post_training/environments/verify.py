"""The table of verifiers by stage, and the function that calls them: an error is a failed verdict, never a reward of 0."""

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from evals.sandbox.run import NoSandboxError
from lineage.artifact.store import Artifact
from post_training.environments import arithmetic, benchmark, gym, rephrase, repository
from post_training.environments.prompt import Prompt, Verdict

log = logging.getLogger("post_training")

type Verifier = Callable[[Sequence[Prompt], Sequence[str]], list[Verdict]]

VERIFIERS: Mapping[str, Verifier] = MappingProxyType(
    {
        arithmetic.ADDITION.name: arithmetic.judge,
        benchmark.BENCHMARK.name: benchmark.judge,
        gym.GYM.name: gym.judge,
        rephrase.REPHRASE.name: rephrase.judge,
        repository.REPOSITORY.name: repository.judge,
    }
)
SECOND_VERIFIERS: Mapping[str, Verifier] = MappingProxyType({arithmetic.ADDITION.name: arithmetic.judge_by_value})
"""A verifier of another kind, which judges a sample of completions again."""


def verifier_of(environment: Artifact) -> Verifier:
    """Return the verifier of an environment. Raises: ValueError naming the stages that have one."""
    stage = environment.spec.stage
    if stage not in VERIFIERS:
        raise ValueError(
            f"{environment.name} was made by {stage}, which has no verifier; those with one: {', '.join(VERIFIERS)}"
        )
    return VERIFIERS[stage]


def verify(judge: Verifier, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
    """Judge all completions. If the verifier raises, each is judged alone, so one bad completion fails only itself.

    Raises: NoSandboxError, because then no completion can be judged.
    """
    try:
        return _checked(judge, prompts, texts)
    except NoSandboxError:
        raise
    except Exception:
        log.exception("the verifier raised; judging %d completions one by one", len(texts))
    return [_alone(judge, prompt, text) for prompt, text in zip(prompts, texts, strict=True)]


def _alone(judge: Verifier, prompt: Prompt, text: str) -> Verdict:
    try:
        return _checked(judge, [prompt], [text])[0]
    except NoSandboxError:
        raise
    except Exception as error:
        return Verdict("failed", {}, f"{type(error).__name__}: {error}")


def _checked(judge: Verifier, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
    verdicts = judge(prompts, texts)
    if len(verdicts) != len(texts):
        raise ValueError(f"the verifier gave {len(verdicts)} verdicts for {len(texts)} completions")
    return verdicts
