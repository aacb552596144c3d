"""What a request may hold: OpenAI's fields, vLLM's `add_special_tokens`, and nothing that would be ignored.

A field that the server does not carry out is refused unless it has the value that asks for nothing (`n: 1`), so no client
believes that it had an effect. Errors name the field, its value and what is allowed.
"""

import json
import reprlib
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from evals.serve.engine import MOST_LOGPROBS
from evals.serve.refusals import RequestError

MOST_STOPS = 16
MOST_PROMPTS = 256


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a string is allowed")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError("only whole Unicode characters are allowed, no half of a surrogate pair") from error
    return value


def _prompts(value: object) -> tuple[str | tuple[int, ...], ...]:
    """Any of the four forms as a tuple of prompts."""
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
    """The values that ask for nothing, of a field that is not carried out."""

    def check(value: object) -> object:
        if isinstance(value, bool) or value not in allowed:
            raise ValueError(f"the server does not do this; allowed: {', '.join(map(repr, allowed))}")
        return None

    return BeforeValidator(check)


type Text = Annotated[str, BeforeValidator(_text)]


class Strict(BaseModel):
    """No conversions, no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class StreamOptions(Strict):
    include_usage: bool = False


class Sampled(Strict):
    """What both endpoints take."""

    model: str
    temperature: float = Field(1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0, le=1)
    stop: Annotated[tuple[str, ...], BeforeValidator(_stops)] = ()
    seed: int | None = Field(None, ge=0, lt=2**63)
    """Of the sampler; by default another one for every request."""
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    n: Annotated[None, _only(1, None)] = None
    presence_penalty: Annotated[None, _only(0, None)] = None
    frequency_penalty: Annotated[None, _only(0, None)] = None
    logit_bias: Annotated[None, _only({}, None)] = None


class CompletionRequest(Sampled):
    """`POST /v1/completions`."""

    prompt: Annotated[tuple[str | tuple[int, ...], ...], BeforeValidator(_prompts)]
    max_tokens: int = Field(16, ge=0)
    logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS)
    echo: bool = False
    add_special_tokens: bool = False
    """Put the token that opens a document before a text prompt. An empty text has it always."""
    best_of: Annotated[None, _only(1, None)] = None
    suffix: Annotated[None, _only("", None)] = None


class Message(Strict):
    role: Text
    content: Text


class ChatRequest(Sampled):
    """`POST /v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    """By default all that fits."""
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=MOST_LOGPROBS)


class TokenizeRequest(Strict):
    """`POST /tokenize`, as lm-eval's remote tokenizer asks it."""

    prompt: Text
    add_special_tokens: bool = False
    model: str | None = None


class DetokenizeRequest(Strict):
    """`POST /detokenize`."""

    tokens: list[int]
    model: str | None = None


def parse[R: Strict](kind: type[R], body: bytes) -> R:
    """A request's body as its type. Raises: RequestError, 400."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body is no JSON document: {error}") from error
    if not isinstance(document, dict):
        raise RequestError(400, f"the body is {reprlib.repr(document)}; a JSON object is allowed")
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise _refusal(kind, error) from error


def _refusal(kind: type[Strict], error: ValidationError) -> RequestError:
    """The first thing that is wrong; a field that is not known before all, for it is often a misspelled one."""
    problems = sorted(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
    first = problems[0]
    field = ".".join(map(str, first["loc"]))
    value = reprlib.repr(first["input"])
    if first["type"] == "extra_forbidden":
        inside = {"stream_options": StreamOptions, "messages": Message}
        holder = kind if len(first["loc"]) == 1 else inside[str(first["loc"][0])]
        message = f"field {field!r} (value {value}) is not known; allowed: {', '.join(holder.model_fields)}"
    elif first["type"] == "missing":
        message = f"field {field!r} is missing"
    else:
        message = f"{field} is {value}; {first['msg'].removeprefix('Value error, ')}"
    return RequestError(400, message, field)
