"""Mutate seeds deterministically from a random generator: as bytes, or as values if a seed is JSON."""

import json
import random
from typing import Any

WORDS = [
    b"../", b"..\\", b"/etc/passwd", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"-1", b"1e999", b"NaN", b"null", b"true", b"[]",
    b"{}", b'"', b"[" * 200, b'{"a":' * 200, b"9" * 400, b"\r\n", b"\xf0\x9f\x98\x80", b"%s%n", b"{{", b"}}", b"{%", b"%}",
    b"18446744073709551616", b"-9223372036854775809", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\xff\xff\xff\xff",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, float("inf"), float("nan"), "", "..", ".",
    "/", "/etc/passwd", "../../../escaped", "a/../../escaped", "C:\\x", "\x00", "\ud800", "x" * 10_000, "é", [], {}, [[]],
    {"": None},     [None] * 50, "1", "true", -0.0, [1, [2, [3, [4]]]], {"a": {"b": {"c": {}}}},
]  # fmt: skip
MOST_BYTES, MOST_JSON_BYTES = 1 << 16, 1 << 20
"""Longest input. Longer ones test the machine and not the reader: repeated nested lists came to 100 MB."""
DEEP = 3_000


def mutated(seeds: list[bytes], draw: random.Random) -> bytes:
    """Return one mutated input."""
    data = draw.choice(seeds)
    if draw.random() < 0.6:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            pass
        else:
            hostile = _hostile_json(document, draw)
            return hostile if len(hostile) <= MOST_JSON_BYTES else data
    for _ in range(draw.choice([1, 1, 2, 4, 16])):
        data = _changed(data, seeds, draw)
    return data[:MOST_BYTES]


def _changed(data: bytes, seeds: list[bytes], draw: random.Random) -> bytes:
    first, second = sorted((draw.randint(0, len(data)), draw.randint(0, len(data))))
    match draw.randrange(8):
        case 0:
            return data[:first] + bytes([draw.randrange(256)]) + data[first + 1 :]
        case 1:
            return data[:first] + draw.choice(WORDS) + data[first:]
        case 2:
            return data[:first] + draw.choice(WORDS) + data[second:]
        case 3:
            return data[:first]
        case 4:
            return data[:first] + data[second:]
        case 5:
            return data[:second] + data[first:second] * draw.choice([1, 2, 50]) + data[second:]
        case 6:
            other = draw.choice(seeds)
            return data[:first] + other[draw.randint(0, len(other)) :]
        case _:
            return data[:first] + draw.randbytes(draw.randint(1, 16)) + data[first:]


def _hostile_json(document: Any, draw: random.Random) -> bytes:
    for _ in range(draw.choice([1, 1, 1, 2, 5])):
        document = _replaced(document, draw)
    if draw.random() < 0.01:
        return b'{"a":' * DEEP + b"1" + b"}" * DEEP
    return json.dumps(document).encode("utf-8", "surrogatepass")


def _replaced(value: Any, draw: random.Random) -> Any:
    """Return the value with one change somewhere inside."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        change = draw.randrange(10)
        if change == 0:
            return {name: held for name, held in value.items() if name != key}
        if change == 1:
            return value | {str(draw.choice(VALUES))[:50]: draw.choice(VALUES)}
        return value | {key: _replaced(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        place = draw.randrange(len(value))
        if draw.random() < 0.1:
            return value * draw.choice([0, 2, 100])
        return [*value[:place], _replaced(value[place], draw), *value[place + 1 :]]
    if isinstance(value, str) and draw.random() < 0.4:
        place = draw.randint(0, len(value))
        word = draw.choice(WORDS).decode("utf-8", "replace")
        return value[:place] + word + value[draw.randint(place, len(value)) :]
    return draw.choice(VALUES)
