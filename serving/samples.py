"""Samples of prompts by token ids, from a server of OpenAI's API: ours, vLLM, or a broker before either.

`sample_request` makes the request of one prompt, and `samples_of` reads its answer. Send both through `serving.broker.client`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from serving.answer_versions import named_weights
from serving.broker.client import ItemRequest, Recorded
from serving.server.sampling import Sampling

type LogProbsMode = Literal["raw_logprobs", "processed_logprobs"]


@dataclass(frozen=True)
class Sample:
    """One answer to a prompt. Arrays have one entry for each of `tokens`, None where the server does not report them."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    """All generated tokens, with the one that ended the answer."""
    text: str
    finish: str
    log_probs: tuple[float, ...] | None
    """Nats, temperature 1, no token left out."""
    sampling_log_probs: tuple[float, ...] | None
    """Nats, under the distribution that the tokens were drawn from."""
    kept_mass: tuple[float, ...] | None
    kept_tokens: tuple[tuple[int, ...] | None, ...] | None
    weights: str | None
    """What the answer names its weights (`named_weights`); None if it names none."""
    step: int | None


def sample_request(
    item: str, model: str, prompt: Sequence[int], sampling: Sampling, *, count: int, max_tokens: int, seed: int, **more: Any
) -> ItemRequest:
    """Return the request of `count` samples of a prompt; `item` is its id, under which a broker answers it once.

    `more`: further fields of the body, such as `stop_token_ids`. vLLM ignores the fields that only our server knows.
    """
    settings = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k, "min_p": sampling.min_p}
    reported = {"logprobs": 0, "return_token_ids": True, "return_sampling": True}
    body = {"model": model, "prompt": list(prompt), "n": count, "max_tokens": max_tokens, "seed": seed}
    return ItemRequest(item, "/v1/completions", {**body, **settings, **reported, **more}, once=True)


def samples_of(recorded: Recorded, mode: LogProbsMode = "raw_logprobs") -> list[Sample]:
    """Return the samples of an answer, in order. `mode`: what `logprobs` hold where the server sends no `sampling` (vLLM's
    `--logprobs-mode`).

    Raises: ValueError for a refused request, and for an answer without token ids or with arrays of another length.
    """
    answer = recorded.answer
    if recorded.status != 200:
        raise ValueError(f"the server refuses the request ({recorded.status}): {answer}")
    step = (answer.get("weights_version") or {}).get("step")
    choices = sorted(answer["choices"], key=lambda choice: choice["index"])
    return [_sample(choice, mode, named_weights(answer), step) for choice in choices]


def _sample(choice: dict[str, Any], mode: LogProbsMode, version: str | None, step: int | None) -> Sample:
    tokens, prompt = choice.get("token_ids"), choice.get("prompt_token_ids")
    if tokens is None or prompt is None:
        raise ValueError(
            f"choice {choice['index']} has no token_ids or no prompt_token_ids; the server must support return_token_ids "
            "(our server, vLLM 0.10.2 and later)"
        )
    stated = (choice.get("logprobs") or {}).get("token_logprobs")
    reported = choice.get("sampling") or {mode: stated}
    kept = reported.get("kept_token_ids")
    arrays = {name: reported.get(name) for name in ("raw_logprobs", "processed_logprobs", "kept_mass")}
    for name, values in {**arrays, "kept_token_ids": kept}.items():
        if values is not None and len(values) != len(tokens):
            raise ValueError(
                f"choice {choice['index']} has {len(tokens)} token_ids and {len(values)} {name}; they must be equal"
            )
    raw, processed, mass = (None if values is None else tuple(map(float, values)) for values in arrays.values())
    sets = None if kept is None else tuple(None if one is None else tuple(one) for one in kept)
    return Sample(
        tuple(prompt), tuple(tokens), choice["text"], choice["finish_reason"], raw, processed, mass, sets, version, step
    )
