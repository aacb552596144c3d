"""Parse a request's body into a declared form: no conversions, no unknown fields; errors name the field.

This module needs no model, so that the broker can use it too.
"""

import json
import reprlib
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from serving.refusals import RequestError


class Strict(BaseModel):
    """A form without conversions and unknown fields. `parts`: the forms inside this one, by field."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    parts: ClassVar[dict[str, type["Strict"]]] = {}


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises: RequestError, 400."""
    try:
        document = json.loads(body.decode())  # json.loads would also accept UTF-16 bytes, which other readers refuse
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise RequestError(400, f"the body is {reprlib.repr(document)}; a JSON object is allowed")
    return document


def parse[R: Strict](kind: type[R], body: bytes) -> R:
    """Parse a request's body as `kind`. Raises: RequestError, 400."""
    document = parse_object(body)
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise _refusal(kind, error) from error


def _refusal(kind: type[Strict], error: ValidationError) -> RequestError:
    """Return the first error, but an unknown field before others, because it is often a misspelt one."""
    problems = sorted(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
    first = problems[0]
    field = ".".join(map(str, first["loc"]))
    value = reprlib.repr(first["input"])
    if first["type"] == "extra_forbidden":
        holder = kind if len(first["loc"]) == 1 else kind.parts[str(first["loc"][0])]
        message = f"field {field!r} (value {value}) is not known; allowed: {', '.join(holder.model_fields)}"
    elif first["type"] == "missing":
        message = f"field {field!r} is missing"
    else:
        message = f"{field} is {value}; {first['msg'].removeprefix('Value error, ')}"
    return RequestError(400, message, field)
