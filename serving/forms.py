"""A request's body as a declared form: no conversions, no unknown fields, and the first thing that is wrong by its name.

Needs no model, so that the broker reads its requests in the same way.
"""

import json
import reprlib
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from serving.refusals import RequestError


class Strict(BaseModel):
    """No conversions, no unknown fields. `parts`: the forms inside this one, by their field."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    parts: ClassVar[dict[str, type["Strict"]]] = {}


def parse_object(body: bytes) -> dict[str, Any]:
    """A JSON object. Raises: RequestError, 400."""
    try:
        document = json.loads(body.decode())  # bytes would be tried as UTF-16 too, which nobody behind us may read
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body is no JSON document: {error}") from error
    if not isinstance(document, dict):
        raise RequestError(400, f"the body is {reprlib.repr(document)}; a JSON object is allowed")
    return document


def parse[R: Strict](kind: type[R], body: bytes) -> R:
    """A request's body as its type. Raises: RequestError, 400."""
    document = parse_object(body)
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
        holder = kind if len(first["loc"]) == 1 else kind.parts[str(first["loc"][0])]
        message = f"field {field!r} (value {value}) is not known; allowed: {', '.join(holder.model_fields)}"
    elif first["type"] == "missing":
        message = f"field {field!r} is missing"
    else:
        message = f"{field} is {value}; {first['msg'].removeprefix('Value error, ')}"
    return RequestError(400, message, field)
