"""Answers: the objects of OpenAI's API, complete or as the events of a stream."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tokenizers import Tokenizer

from serving.server.sequence import Delta, GenerationRequest, TokenScore
from serving.server.text import TextStream, token_text
from serving.server.versions import UNKNOWN, WeightsVersion

type Kind = Literal["completion", "chat"]
_OBJECTS = {
    ("completion", False): "text_completion",
    ("completion", True): "text_completion",
    ("chat", False): "chat.completion",
    ("chat", True): "chat.completion.chunk",
}


@dataclass
class Choice:
    """The answer of one sequence, built from its deltas."""

    kind: Kind
    index: int
    ask: GenerationRequest
    tokenizer: Tokenizer
    text: str = ""
    scores: list[TokenScore] = field(default_factory=list)
    generated: int = 0
    reused_tokens: int = 0
    finish: str | None = None
    weights: WeightsVersion = UNKNOWN
    offset: int = 0
    events: int = 0
    offsets: TextStream = field(init=False)

    def __post_init__(self) -> None:
        self.offsets = TextStream(self.tokenizer, self.ask.before)

    def take(self, delta: Delta) -> None:
        self.text += delta.text
        self.scores += delta.scores
        self.generated += delta.generated
        self.reused_tokens = delta.reused_tokens
        self.finish = delta.finish
        self.weights = delta.weights

    def complete(self) -> dict[str, Any]:
        """Return the choice object of an answer that is not streamed."""
        if self.kind == "completion":
            return self._choice({"text": self.text}, self.scores, first=True)
        return self._choice({"message": {"role": "assistant", "content": self.text}}, self.scores, first=True)

    def event(self, delta: Delta) -> dict[str, Any]:
        """Return the choice object of one event of a stream, after `take`."""
        self.events += 1
        first = self.events == 1
        if self.kind == "completion":
            return self._choice({"text": delta.text}, delta.scores, first)
        role = {"role": "assistant"} if first else {}
        return self._choice({"delta": {**role, "content": delta.text}}, delta.scores, first)

    def _choice(self, content: dict[str, Any], scores: Sequence[TokenScore], first: bool) -> dict[str, Any]:
        choice = {"index": self.index, **content, "logprobs": self._log_probs(scores), "finish_reason": self.finish}
        drawn = [score for score in scores if score.drawn is not None]
        if self.ask.reported.token_ids:
            choice |= {"prompt_token_ids": self.ask.prompt} if first and self.kind == "completion" else {}
            choice["token_ids"] = [score.token for score in drawn]
        if self.ask.reported.sampling:
            choice["sampling"] = self._sampling(drawn)
        return choice

    def _sampling(self, drawn: Sequence[TokenScore]) -> dict[str, Any]:
        """How the tokens were drawn: arrays with one entry for each generated token."""
        distributions = [score.drawn for score in drawn if score.drawn is not None]
        facts = {
            "seed": self.ask.seed,
            "sample": self.ask.sample,
            "raw_logprobs": [score.log_prob for score in drawn],
            "processed_logprobs": [each.log_prob for each in distributions],
            "kept_mass": [each.mass for each in distributions],
        }
        kept = {"kept_token_ids": [each.kept for each in distributions]} if self.ask.reported.kept_token_ids else {}
        return facts | kept

    def _shown(self, score: TokenScore) -> float | None:
        """Return the log-probability that `logprobs` shows."""
        return score.drawn.log_prob if self.ask.reported.processed and score.drawn is not None else score.log_prob

    def _log_probs(self, scores: Iterable[TokenScore]) -> dict[str, Any] | None:
        """Return the log-probabilities of every generated token, with those after a stop string and the end token.

        lm-eval expects the end token and drops it.
        """
        if self.ask.top is None:
            return None
        if self.kind == "chat":
            return {"content": [self._chat_score(score) for score in scores]}
        columns: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for score in scores:
            name = token_text(self.tokenizer, score.token)
            best = {
                token_text(self.tokenizer, token): log_prob for token, log_prob in reversed(score.top)
            }  # of equal texts the likeliest counts
            columns["tokens"].append(name)
            log_prob = self._shown(score)
            columns["token_logprobs"].append(log_prob)
            columns["top_logprobs"].append(None if log_prob is None else {name: log_prob} | best)
            columns["text_offset"].append(self.offset)
            self.offset += len(self.offsets.push(score.token))
        return columns

    def _chat_score(self, score: TokenScore) -> dict[str, Any]:
        top = [self._named(token, log_prob) for token, log_prob in score.top]
        return {**self._named(score.token, self._shown(score)), "top_logprobs": top}

    def _named(self, token: int, log_prob: float | None) -> dict[str, Any]:
        name = token_text(self.tokenizer, token)
        raw = None if name.startswith("token_id:") else list(name.encode())
        return {"token": name, "logprob": log_prob, "bytes": raw}


def answer(
    kind: Kind, head: dict[str, Any], choices: list[dict[str, Any]], weights: WeightsVersion, stream: bool
) -> dict[str, Any]:
    """Build the object around choices; `head` has `id`, `created` and `model`."""
    return {**head, **weights.fields(), "object": _OBJECTS[kind, stream], "choices": choices}


def prompt_of(kind: Kind, choices: list[Choice]) -> dict[str, Any]:
    """Return the prompt's tokens, which a chat has beside its choices (as in vLLM), if the client wants tokens."""
    ask = choices[0].ask
    return {"prompt_token_ids": ask.prompt} if kind == "chat" and ask.reported.token_ids else {}


def usage(choices: Iterable[Choice]) -> dict[str, Any]:
    """Count prompt tokens, generated tokens, and prompt tokens that came from the prefix cache.

    A prompt with several answers counts once.
    """
    choices = list(choices)
    prompts = [choice for choice in choices if choice.ask.sample == 0]
    read, generated = sum(len(c.ask.prompt) for c in prompts), sum(c.generated for c in choices)
    cached = {"cached_tokens": sum(c.reused_tokens for c in prompts)}
    return {
        "prompt_tokens": read,
        "completion_tokens": generated,
        "total_tokens": read + generated,
        "prompt_tokens_details": cached,
    }
