"""Fields of a request: OpenAI's, and vLLM's `add_special_tokens`. No field is ignored.

A field that the server does not support is refused, unless its value has no effect (`n: 1`). So no client believes that such
a field worked. `serving.forms` parses requests and makes the errors.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from serving.forms import Strict
from serving.server.engine import MOST_LOGPROBS

MOST_STOPS = 16
MOST_PROMPTS = 256
NULLABLE = frozenset({"temperature", "top_p", "stream", "max_tokens", "echo", "logprobs", "top_logprobs"})
"""Fields that OpenAI's clients may send as null, which means their default."""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a string is allowed")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError("only complete Unicode characters are allowed, no half of a surrogate pair") from error
    return value


def _prompts(value: object) -> tuple[str | tuple[int, ...], ...]:
    """Convert any of the four forms to a tuple of prompts."""
    allowed = f"a string, a list of token ids, or a list of 1 to {MOST_PROMPTS} of these is allowed"
    if isinstance(value, str):
        return (_text(value),)
    if not isinstance(value, list) or not value:
        raise ValueError(allowed)
    if _are_ids(value):
        return (tuple(value),)
    if len(value) > MOST_PROMPTS:
        raise ValueError(f"{len(value)} prompts; at most {MOST_PROMPTS} are allowed")
    if not all(isinstance(one, str) or _are_ids(one) for one in value):
        raise ValueError(allowed)
    return tuple(_text(one) if isinstance(one, str) else tuple(one) for one in value)


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(token) is int for token in value)


def _stops(value: object) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MOST_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise ValueError(f"null, a string, or a list of at most {MOST_STOPS} strings is allowed, none empty")
    return tuple(_text(stop) for stop in stops)


def _only(*allowed: object) -> BeforeValidator:
    """Allow only the values of an unsupported field that have no effect."""

    def check(value: object) -> object:
        if isinstance(value, bool) or value not in allowed:
            raise ValueError(f"the server does not support this; allowed: {', '.join(map(repr, allowed))}")
        return None

    return BeforeValidator(check)


type Text = Annotated[str, BeforeValidator(_text)]


class StreamOptions(Strict):
    include_usage: bool = False


class Sampled(Strict):
    """Fields of both endpoints."""

    parts = {"stream_options": StreamOptions}  # noqa: RUF012 - a ClassVar of `Strict`
    model: str
    temperature: float = Field(1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0, le=1)
    stop: Annotated[tuple[str, ...], BeforeValidator(_stops)] = ()
    seed: int | None = Field(None, ge=0, lt=2**63)
    """Seed of the sampler; by default a new one for every request."""
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    n: Annotated[None, _only(1, None)] = None
    presence_penalty: Annotated[None, _only(0, None)] = None
    frequency_penalty: Annotated[None, _only(0, None)] = None
    logit_bias: Annotated[None, _only({}, None)] = None

    @model_validator(mode="before")
    @classmethod
    def _null_is_the_default(cls, document: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in document.items() if value is not None or name not in NULLABLE}


class CompletionRequest(Sampled):
    """`POST /v1/completions`."""

    prompt: Annotated[tuple[str | tuple[int, ...], ...], BeforeValidator(_prompts)]
    max_tokens: int = Field(16, ge=0)
    logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS)
    echo: bool = False
    add_special_tokens: bool = False
    """Put the token that opens a document before a text prompt. An empty text always gets it."""
    best_of: Annotated[None, _only(1, None)] = None
    suffix: Annotated[None, _only("", None)] = None


def _content(value: object) -> str:
    """Read a text, or join several text parts by newlines, as vLLM does."""
    if not isinstance(value, list):
        return _text(value)
    texts = [part.get("text") for part in value if isinstance(part, dict) and part.keys() == {"type", "text"}]
    if not value or len(texts) < len(value) or any(part["type"] != "text" for part in value):
        raise ValueError('a string is allowed, or a list of {"type": "text", "text": ...}')
    return "\n".join(map(_text, texts))


class Message(Strict):
    role: Text
    content: Annotated[str, BeforeValidator(_content)]


class ChatRequest(Sampled):
    """`POST /v1/chat/completions`."""

    parts = {**Sampled.parts, "messages": Message}  # noqa: RUF012 - a ClassVar of `Strict`
    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    """Default: all that fits."""
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=MOST_LOGPROBS)


class TokenizeRequest(Strict):
    """`POST /tokenize`, as lm-eval's remote tokenizer sends it."""

    prompt: Text
    add_special_tokens: bool = False
    model: str | None = None


class DetokenizeRequest(Strict):
    """`POST /detokenize`."""

    tokens: list[int]
    model: str | None = None
