"""Convert configs to JSON and back, strictly: for identities, and for jobs.

In the program a config is a frozen dataclass whose `__post_init__` refuses bad values by name. Outside it is plain JSON.

A sum type is a union of dataclasses with a tag: a field `kind: Literal["lion"] = "lion"`. One member may lack the tag, the one
that existed before there was a choice; a record without `kind` is that member. If no member has a tag, the fields decide.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

TAG = "kind"


def to_jsonable(value: object, where: str = "config") -> Any:
    """Turn nested frozen dataclasses, tuples and mappings into plain JSON values.

    A dataclass field marked `metadata={"identity": False}` (a path, a worker count) is left out. A field marked
    `metadata={"added_later": True}` is left out while it has its default, so that artifacts made before the field existed keep
    their identity and address. Its default must mean what the code did before.

    Raises: TypeError naming the place of a value that has no stable JSON form.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            name: to_jsonable(getattr(value, name), f"{where}.{name}")
            for name, added_later, default in _identity_fields(type(value))
            if not (added_later and getattr(value, name) == default)
        }
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_jsonable(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise TypeError(
        f"{where} is a {type(value).__name__} ({value!r}), which has no stable JSON form; "
        "use str, int, float, bool, None, tuples, mappings or frozen dataclasses of them"
    )


@cache
def _identity_fields(kind: Any) -> tuple[tuple[str, bool, object], ...]:
    """Return the name of each field that is part of an identity, whether it was added later, and its default."""
    fields = [field for field in dataclasses.fields(kind) if field.metadata.get("identity", True)]
    return tuple((field.name, bool(field.metadata.get("added_later")), field.default) for field in fields)


def from_jsonable[T](kind: type[T], value: object, where: str = "config") -> T:
    """Rebuild a dataclass (nested ones, tuples, mappings and optionals included) from what `to_jsonable` made.

    The way back is exact: `to_jsonable` of the result gives the same JSON text, so an identity survives it.

    Raises: ValueError naming the field, the value found and what is allowed.
    """
    return typing.cast(T, _decode(kind, value, where))


def _decode(kind: Any, value: object, where: str) -> Any:
    if isinstance(kind, typing.TypeAliasType):
        kind = kind.__value__
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _decode_union(arguments, value, where)
    if origin is tuple and isinstance(value, list):
        kinds = (arguments[0],) * len(value) if arguments[-1] is Ellipsis else arguments
        if len(kinds) != len(value):
            raise ValueError(f"{where} has {len(value)} items ({value!r}); {len(kinds)} are expected")
        return tuple(_decode(k, item, f"{where}[{i}]") for i, (k, item) in enumerate(zip(kinds, value, strict=True)))
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {key: _decode(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin is typing.Literal:
        if value not in arguments:
            raise ValueError(f"{where} is {value!r}; allowed: {', '.join(map(repr, arguments))}")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return value  # as a float it would be written `1.0`, another identity than the declared `1`
    if isinstance(kind, type) and isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise ValueError(f"{where} is {value!r}; it must be {getattr(kind, '__name__', kind)}")


def _decode_dataclass(kind: Any, value: object, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {value!r}; it must be an object with the fields of {kind.__name__}")
    fields = _init_fields(kind)
    if unknown := sorted(value.keys() - fields):
        raise ValueError(f"{where} has no field {unknown[0]!r}; {kind.__name__} allows: {', '.join(sorted(fields))}")
    if missing := sorted(_required(kind) - value.keys()):
        raise ValueError(f"{where} lacks the field {missing[0]!r} of {kind.__name__}")
    hints = _hints(kind)
    return kind(**{name: _decode(hints[name], item, f"{where}.{name}") for name, item in value.items()})


def _decode_union(kinds: tuple[Any, ...], value: object, where: str) -> Any:
    """Read the dataclass that the tag names, or the first member that fits."""
    if value is None and type(None) in kinds:
        return None
    candidates = _flattened(kinds)
    records = [kind for kind in candidates if dataclasses.is_dataclass(kind)]
    if len(records) > 1 and isinstance(value, dict):
        return _decode(_tagged(records, value, where), value, where)
    failures = []
    for kind in candidates:
        try:
            return _decode(kind, value, where)
        except ValueError as error:
            failures.append(str(error))
    raise ValueError("; or ".join(failures))


def _tagged(records: list[Any], value: Mapping, where: str) -> Any:
    by_tag = {_tag(kind): kind for kind in records}
    if by_tag.keys() == {None}:
        return _by_fields(records, value, where)
    if len(by_tag) < len(records):
        names = ", ".join(kind.__name__ for kind in records)
        raise TypeError(f"{where}: of {names} two have the same {TAG!r} or none; JSON could not tell them apart")
    if value.get(TAG) not in by_tag:
        allowed = [f"{tag!r} ({kind.__name__})" if tag else f"no {TAG} ({kind.__name__})" for tag, kind in by_tag.items()]
        raise ValueError(f"{where}.{TAG} is {value.get(TAG)!r}; allowed: {', '.join(allowed)}")
    return by_tag[value.get(TAG)]


def _by_fields(records: list[Any], value: Mapping, where: str) -> Any:
    """Return the one member of a union without tags that has every recorded field, and whose required fields are all
    recorded."""
    fits = [kind for kind in records if _required(kind) <= set(value) <= {f.name for f in dataclasses.fields(kind)}]
    names = ", ".join(kind.__name__ for kind in fits or records)
    if len(fits) > 1:
        raise TypeError(f"{where}: of {names} two have the same fields and no {TAG!r}; JSON could not tell them apart")
    if not fits:
        raise ValueError(f"{where} has the fields {', '.join(sorted(value))}, which are those of none of {names}")
    return fits[0]


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    """Return the resolved types of a dataclass's fields. Resolving took half of the time of decoding a large record."""
    return typing.get_type_hints(kind)


@cache
def _init_fields(kind: Any) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(kind) if field.init)


@cache
def _required(kind: Any) -> frozenset[str]:
    return frozenset(
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )


def _tag(kind: Any) -> str | None:
    """Return the tag of a member of a sum type: the one value of its `kind`, or None if it has no such field."""
    hint = _hints(kind).get(TAG)
    values = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    return values[0] if len(values) == 1 else None


def _flattened(kinds: tuple[Any, ...]) -> list[Any]:
    """Return the members of a union without None; aliases of unions are resolved."""
    flat: list[Any] = []
    for kind in kinds:
        resolved = kind.__value__ if isinstance(kind, typing.TypeAliasType) else kind
        if typing.get_origin(resolved) in (types.UnionType, typing.Union):
            flat += _flattened(typing.get_args(resolved))
        elif resolved is not type(None):
            flat.append(resolved)
    return flat
