"""A model behind a URL as evaluations see one: a server of OpenAI's API, ours or another's, or a broker before many of
them.

Prompts are sent as token ids, so the in-process scorer would score the same. The server must echo a prompt's
log-probabilities (`max_tokens: 0, echo: true, logprobs: 1`), as ours does, and vLLM and SGLang by their documentation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import requests
from tokenizers import Tokenizer

from evals.tasks.generator import Generated
from serving.broker.client import ItemRequest, Record, ask_all
from serving.server.sampling import Sampling
from trainer.api import Weights

COMPLETIONS = "/v1/completions"
PROBE = "In 1789 the café held 12,345 people; naïve?\n\tdef f(x): return x ** 2"
"""Text that tokenizers of different models split differently."""


@dataclass(frozen=True)
class Endpoint:
    """Where the model is, how it is asked, and the file that holds its answers so far."""

    url: str
    model: str
    record: Record
    key: str | None = None
    concurrency: int = 32
    patience: float = 600.0

    def ask(self, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the only choice of every answer, in the order of the bodies, with its `usage`. Raises: as `answers`."""
        answers = self.answers(bodies)
        return [{**answer["choices"][0], "usage": answer.get("usage") or {}} for answer in answers]

    def answers(self, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return every answer, in the order of the bodies; equal bodies are sent once.

        Raises: ValueError for a request that the server refuses, RuntimeError if it is away for `patience` seconds.
        """
        item_requests = [ItemRequest("", COMPLETIONS, {"model": self.model, "temperature": 0, **body}) for body in bodies]
        unique = {one.digest: replace(one, item=one.digest) for one in item_requests}
        options = {"concurrency": self.concurrency, "key": self.key, "patience": self.patience}
        recorded_answers = ask_all(self.url, unique.values(), self.record, **options)
        for recorded in recorded_answers.values():
            if recorded.status != 200:
                raise ValueError(f"{self.url} refuses a request of the evaluation ({recorded.status}): {recorded.answer}")
        return [recorded_answers[one.digest].answer for one in item_requests]


@dataclass(frozen=True)
class RemoteScorer:
    """`evals.tasks.scorer.TokenScorer` over HTTP, by the log-probabilities of echoed prompts."""

    endpoint: Endpoint
    max_seq_len: int

    def token_nll(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the nats of tokens 1.. of each sequence, float32. Raises: ValueError for a sequence that does not fit."""
        for index, sequence in enumerate(sequences):
            if not 2 <= len(sequence) <= self.max_seq_len:
                raise ValueError(f"sequence {index} has {len(sequence)} tokens; 2 to {self.max_seq_len} can be scored")
        return [-token_log_probs for token_log_probs, _ in self._echoed(sequences)]

    def tail_nll(self, sequences: Sequence[np.ndarray], tails: Sequence[int]) -> list[np.ndarray]:
        """Return the nats of the last `tails[i]` tokens; the server's prefix cache handles shared beginnings."""
        return [
            -token_log_probs[len(token_log_probs) - tail :]
            for (token_log_probs, _), tail in zip(self._echoed(sequences), tails, strict=True)
        ]

    def tail_is_greedy(self, sequences: Sequence[np.ndarray], tails: Sequence[int]) -> list[bool]:
        """Return whether each of the last `tails[i]` tokens is as likely as the likeliest, by the requests of
        `tail_nll`.
        """
        echoed = zip(self._echoed(sequences), tails, strict=True)
        return [
            bool((token_log_probs[len(token_log_probs) - tail :] >= best[len(best) - tail :]).all())
            for (token_log_probs, best), tail in echoed
        ]

    def _echoed(self, sequences: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the log-probabilities of tokens 1.. of each sequence and of the likeliest ones in their places, float32."""
        prompts = [[int(token) for token in sequence] for sequence in sequences]
        bodies = [{"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 1} for prompt in prompts]
        return [self._read(choice, len(prompt)) for choice, prompt in zip(self.endpoint.ask(bodies), prompts, strict=True)]

    def _read(self, choice: dict[str, Any], count: int) -> tuple[np.ndarray, np.ndarray]:
        log_probs = choice.get("logprobs") or {}
        token_log_probs, best = log_probs.get("token_logprobs") or [], log_probs.get("top_logprobs") or []
        if min(len(token_log_probs), len(best)) < count or None in token_log_probs[1:count]:
            raise ValueError(
                f"{self.endpoint.url} returned {len(token_log_probs)} log-probabilities for {count} prompt tokens; "
                "a server must echo them all (echo: true, logprobs: 1)"
            )
        tops = [max(top.values()) for top in best[1:count]]
        return np.array(token_log_probs[1:count], np.float32), np.array(tops, np.float32)


@dataclass(frozen=True)
class RemoteGenerator:
    """`evals.tasks.generator.TextGenerator` over HTTP: greedy, and prompts cut on the left as the in-process one cuts them."""

    endpoint: Endpoint
    max_seq_len: int
    tokenizer: Tokenizer
    start_token: int

    def generate(self, prompts: Sequence[str], stops: Sequence[str], max_tokens: int) -> list[Generated]:
        """Generate. Raises: ValueError if `max_tokens` leaves no room for a prompt, or an answer ends otherwise than
        greedy ones do.
        """
        bodies, cut = self._bodies(prompts, stops, max_tokens)
        return [self._read(choice, lost) for choice, lost in zip(self.endpoint.ask(bodies), cut, strict=True)]

    def sample(
        self,
        prompts: Sequence[str],
        stops: Sequence[str],
        max_tokens: int,
        sampling: Sampling,
        count: int,
        seeds: Sequence[int],
    ) -> list[list[Generated]]:
        """Sample. Raises: as `generate`; ValueError if the server returns no token ids, which count a sample's tokens."""
        bodies, cut = self._bodies(prompts, stops, max_tokens)
        drawn = {"temperature": sampling.temperature, "top_p": sampling.top_p, "n": count, "return_token_ids": True}
        bodies = [{**body, **drawn, "seed": seed} for body, seed in zip(bodies, seeds, strict=True)]
        samples = []
        for answer, lost in zip(self.endpoint.answers(bodies), cut, strict=True):
            choices = sorted(answer["choices"], key=lambda choice: choice["index"])
            if len(choices) != count or any(choice.get("token_ids") is None for choice in choices):
                raise ValueError(f"{self.endpoint.url} answered {len(choices)} of {count} samples, or without token_ids")
            counted = [{**choice, "usage": {"completion_tokens": len(choice["token_ids"])}} for choice in choices]
            samples.append([self._read(choice, lost) for choice in counted])
        return samples

    def _bodies(self, prompts: Sequence[str], stops: Sequence[str], max_tokens: int) -> tuple[list[dict[str, Any]], list[int]]:
        """Return the requests, and how many tokens of each prompt do not fit."""
        room = self.max_seq_len + 1 - max_tokens
        if room < 2:
            raise ValueError(f"max_new_tokens is {max_tokens}; a context of {self.max_seq_len} leaves no room for a prompt")
        bodies, cut = [], []
        for encoded in self.tokenizer.encode_batch_fast(list(prompts), add_special_tokens=False):
            kept = encoded.ids[max(0, len(encoded.ids) - (room - 1)) :]
            cut.append(len(encoded.ids) - len(kept))
            bodies.append({"prompt": [self.start_token, *kept], "max_tokens": max_tokens, "stop": list(stops)})
        return bodies, cut

    def _read(self, choice: dict[str, Any], cut: int) -> Generated:
        finish, num_tokens = choice.get("finish_reason"), choice["usage"].get("completion_tokens")
        if finish not in ("stop", "length") or not isinstance(num_tokens, int):
            raise ValueError(
                f"{self.endpoint.url} ended a text with {finish!r} and {num_tokens!r} tokens; "
                "'stop' or 'length' and a number are due"
            )
        return Generated(choice["text"], finish, num_tokens, cut)


@dataclass(frozen=True)
class RemoteModel:
    """`evals.tasks.run_task.OpenModel` over HTTP. A server has one set of weights."""

    scoring: RemoteScorer
    generating: RemoteGenerator

    def scorer(self, weights: Weights) -> RemoteScorer:
        if weights != "raw":
            raise ValueError(f"weights is {weights!r}; of a server only 'raw' can be asked: what it serves")
        return self.scoring

    def generator(self) -> RemoteGenerator:
        return self.generating


def model_card(url: str, model: str, key: str | None) -> dict[str, Any]:
    """Return what the server says of a model. Raises: ValueError naming the models it has."""
    answer = requests.get(f"{url}/v1/models", headers=_headers(key), timeout=60)
    answer.raise_for_status()
    cards = cast(list[dict[str, Any]], answer.json()["data"])
    for card in cards:
        if card["id"] == model:
            return card
    raise ValueError(f"{url} serves no model {model!r}; it serves: {', '.join(repr(card['id']) for card in cards)}")


def check_tokenizer(url: str, model: str, key: str | None, tokenizer: Tokenizer) -> bool:
    """Check that the server splits text as we do; return False if it does not say. Raises: ValueError if it does not."""
    body = {"prompt": PROBE, "model": model, "add_special_tokens": False}
    answer = requests.post(f"{url}/tokenize", json=body, headers=_headers(key), timeout=60)
    if answer.status_code in (404, 405):
        return False
    answer.raise_for_status()
    theirs, ours = answer.json()["tokens"], tokenizer.encode(PROBE, add_special_tokens=False).ids
    if theirs != ours:
        raise ValueError(
            f"{url} splits {PROBE!r} into {theirs[:8]}..., the given tokenizer into {ours[:8]}...; give the model's own"
        )
    return True


def _headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}
