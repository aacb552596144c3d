"""Answers: the objects of OpenAI's API, complete or as the events of a stream."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from tokenizers import Tokenizer

from serving.server.sequence import Delta, GenerationRequest, TokenScore
from serving.server.text import TextStream, token_text

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
    offset: int = 0
    offsets: TextStream = field(init=False)

    def __post_init__(self) -> None:
        self.offsets = TextStream(self.tokenizer, self.ask.before)

    def take(self, delta: Delta) -> None:
        self.text += delta.text
        self.scores += delta.scores
        self.generated += delta.generated
        self.reused_tokens = delta.reused_tokens
        self.finish = delta.finish

    def complete(self) -> dict[str, Any]:
        """The choice object of an answer that is not streamed."""
        if self.kind == "completion":
            return self._choice(self.text, self.scores)
        message = {"role": "assistant", "content": self.text}
        return {"index": self.index, "message": message, "logprobs": self._log_probs(self.scores), "finish_reason": self.finish}

    def event(self, delta: Delta) -> dict[str, Any]:
        """The choice object of one event of a stream."""
        if self.kind == "completion":
            return self._choice(delta.text, delta.scores)
        first = {"role": "assistant"} if self.generated == delta.generated else {}
        log_probs = self._log_probs(delta.scores)
        content = {**first, "content": delta.text}
        return {"index": self.index, "delta": content, "logprobs": log_probs, "finish_reason": delta.finish}

    def _choice(self, text: str, scores: Iterable[TokenScore]) -> dict[str, Any]:
        return {"index": self.index, "text": text, "logprobs": self._log_probs(scores), "finish_reason": self.finish}

    def _log_probs(self, scores: Iterable[TokenScore]) -> dict[str, Any] | None:
        """Log-probabilities of every generated token, with those after a stop string and the end token.

        lm-eval expects the end token and drops it.
        """
        if self.ask.top is None:
            return None
        if self.kind == "chat":
            return {"content": [self._chat_score(score) for score in scores]}
        made: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for score in scores:
            name = token_text(self.tokenizer, score.token)
            best = {
                token_text(self.tokenizer, token): log_prob for token, log_prob in reversed(score.top)
            }  # of equal texts the likeliest counts
            made["tokens"].append(name)
            made["token_logprobs"].append(score.log_prob)
            made["top_logprobs"].append(None if score.log_prob is None else {name: score.log_prob} | best)
            made["text_offset"].append(self.offset)
            self.offset += len(self.offsets.push(score.token))
        return made

    def _chat_score(self, score: TokenScore) -> dict[str, Any]:
        top = [self._named(token, log_prob) for token, log_prob in score.top]
        return {**self._named(score.token, score.log_prob), "top_logprobs": top}

    def _named(self, token: int, log_prob: float | None) -> dict[str, Any]:
        name = token_text(self.tokenizer, token)
        raw = None if name.startswith("token_id:") else list(name.encode())
        return {"token": name, "logprob": log_prob, "bytes": raw}


def answer(kind: Kind, head: dict[str, Any], choices: list[dict[str, Any]], stream: bool) -> dict[str, Any]:
    """Build the object around choices; `head` holds `id`, `created` and `model`."""
    return {**head, "object": _OBJECTS[kind, stream], "choices": choices}


def usage(choices: Iterable[Choice]) -> dict[str, Any]:
    """Count prompt tokens, generated tokens, and prompt tokens that came from the prefix cache."""
    choices = list(choices)
    read, made = sum(len(c.ask.prompt) for c in choices), sum(c.generated for c in choices)
    cached = {"cached_tokens": sum(c.reused_tokens for c in choices)}
    return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made, "prompt_tokens_details": cached}
