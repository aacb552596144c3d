"""Fields of a request: OpenAI's, and some of vLLM's under its names. No field is ignored.

A field that the server does not support is refused, unless its value has no effect (`best_of: 1`). So no client believes that
such a field worked. `serving.forms` parses requests and makes the errors.
"""

from typing import Annotated, Any, Literal, TypeGuard

from pydantic import BeforeValidator, Field, model_validator

from serving.forms import Strict
from serving.server.engine import MOST_LOGPROBS

MOST_STOPS = 16
MOST_PROMPTS = 256
MOST_SAMPLES = 128
MOST_ANSWERS = 1024
MOST_STOP_TOKENS = 128
SAMPLERS = ("temperature", "top_p", "top_k", "min_p", "n", "logprobs_mode", "stop_token_ids")
NULLABLE = frozenset({*SAMPLERS, "stream", "max_tokens", "echo", "logprobs", "top_logprobs"})
"""Fields that OpenAI's clients may send as null, which means their default."""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a string is allowed")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError("only complete Unicode characters are allowed, not half of a surrogate pair") from error
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


def _are_ids(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(token) is int for token in value)


def _stops(value: object) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MOST_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise ValueError(f"null, a string, or a list of at most {MOST_STOPS} strings is allowed, none empty")
    return tuple(_text(stop) for stop in stops)


def _stop_tokens(value: object) -> tuple[int, ...]:
    if not _are_ids(value) or len(value) > MOST_STOP_TOKENS:
        raise ValueError(f"a list of at most {MOST_STOP_TOKENS} token ids is allowed")
    return tuple(value)


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


class JsonSchema(Strict):
    """OpenAI's `json_schema`. A description changes nothing; every schema is followed strictly."""

    name: str = ""
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    """The form of an answer: any text, any JSON object, or JSON of a schema."""

    parts = {"json_schema": JsonSchema}  # noqa: RUF012 - a ClassVar of `Strict`
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Sampled(Strict):
    """Fields of both endpoints."""

    parts = {"stream_options": StreamOptions, "response_format": ResponseFormat}  # noqa: RUF012 - a ClassVar of `Strict`
    model: str
    temperature: float = Field(1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=-1)
    """Number of likeliest tokens to keep; 0 and -1 keep all."""
    min_p: float = Field(0.0, ge=0, le=1)
    n: int = Field(1, ge=1, le=MOST_SAMPLES)
    """Answers to each prompt."""
    stop: Annotated[tuple[str, ...], BeforeValidator(_stops)] = ()
    seed: int | None = Field(None, ge=0, lt=2**63)
    """Seed of the sampler; by default a new one for every prompt. `sampling.uniform` says what it decides."""
    stop_token_ids: Annotated[tuple[int, ...], BeforeValidator(_stop_tokens)] = ()
    """Tokens that end an answer, in addition to the model's own."""
    ignore_eos: bool = False
    """Whether an answer continues after the model's own end tokens."""
    logprobs_mode: Literal["raw_logprobs", "processed_logprobs"] = "raw_logprobs"
    """Whether `logprobs` are the model's own or those of the sampling distribution (in vLLM an option of the server)."""
    return_token_ids: bool = False
    """Choices get `prompt_token_ids` and `token_ids`."""
    return_sampling: bool = False
    """Choices get `sampling`, an object of arrays with one entry for each generated token."""
    return_kept_token_ids: bool = False
    """`sampling` lists the tokens that a cut kept."""
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    response_format: ResponseFormat | None = None
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
