"""The protocol between two interpreters in one sandbox: one runs the program, the other runs its tests.

The tests call the program over a socket, with one line of JSON a message. Plain data are sent by value; every other object
stays in the program's process and is sent as a number. So the program never sees the tests, the expected values or the
verdict's pipe: it can only answer calls. Imports the standard library only; `evals/sandbox/child.py` loads this file by path.
"""

import builtins
import contextlib
import json
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

SHOWN_CHARACTERS = 2_000
SMALL = 1 << 63
"""Larger integers are sent in hexadecimal, because Python refuses more than 4,300 decimal digits."""
CHANGED = (UnicodeError, StopIteration, StopAsyncIteration)
"""Exceptions that are sent as RuntimeError: the first needs more than a text, the others end loops silently."""
CONTAINERS: dict[str, Callable[[list], Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}

type Wire = Any
"""JSON: null, booleans, numbers and strings stand for themselves; other values are a list that starts with a kind."""


class GoneError(Exception):
    """The other side has closed the connection."""


def encode(value: Any, keep: Callable[[Any], Wire]) -> Wire:
    """Encode plain data by value, subclasses as their base class; `keep` encodes every other object."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int(value)
        return number if abs(number) < SMALL else ["int", hex(number)]
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    if isinstance(value, bytes | bytearray):
        return ["bytes" if isinstance(value, bytes) else "bytearray", value.decode("latin-1")]
    if isinstance(value, dict):
        return ["dict", [[encode(key, keep), encode(held, keep)] for key, held in value.items()]]
    for name, kind in (("list", list), ("tuple", tuple), ("set", set), ("frozenset", frozenset)):
        if isinstance(value, kind):
            return [name, [encode(each, keep) for each in value]]
    return keep(value)


def decode(wire: Wire, find: Callable[[str, Any], Any]) -> Any:
    """Decode a value; `find` returns the object of a name or number. Raises: ValueError for an invalid message."""
    if not isinstance(wire, list | dict):
        return wire
    match wire:
        case ["int", str(text)]:
            return int(text, 16)
        case ["complex", float() | int() as real, float() | int() as imaginary]:
            return complex(real, imaginary)
        case ["bytes", str(text)]:
            return text.encode("latin-1")
        case ["bytearray", str(text)]:
            return bytearray(text.encode("latin-1"))
        case ["dict", list(pairs)]:
            return {decode(key, find): decode(held, find) for key, held in pairs}
        case [str(name), list(held)] if name in CONTAINERS:
            return CONTAINERS[name]([decode(each, find) for each in held])
        case ["name" | "object" as kind, held]:
            return find(kind, held)
    raise ValueError(f"{str(wire)[:80]} is not a value; allowed: plain data, names, and numbers of objects")


def send(stream: BinaryIO, message: Wire) -> None:
    """Write a message as a line of JSON. Raises: GoneError if the other process has ended."""
    try:
        stream.write(json.dumps(message).encode() + b"\n")
        stream.flush()
    except (BrokenPipeError, ConnectionResetError) as error:
        raise GoneError from error


def receive(stream: BinaryIO) -> Wire:
    """Read the next message. Raises: GoneError at the end of the stream, also after an incomplete line."""
    try:
        line = stream.readline()
    except ConnectionResetError as error:
        raise GoneError from error
    if not line.endswith(b"\n"):
        raise GoneError
    return json.loads(line)


def serve(stream: BinaryIO, source: str) -> None:
    """Serve the program: run its text on request, then answer calls until the connection closes."""
    itself, namespace = os.getpid(), {"__name__": "__main__"}
    objects: list[Any] = []
    numbers: dict[int, int] = {}

    def keep(value: Any) -> Wire:
        if id(value) not in numbers:
            numbers[id(value)] = len(objects)
            objects.append(value)
        return ["object", numbers[id(value)]]

    def find(kind: str, held: Any) -> Any:
        if kind == "object":
            return objects[held]
        if held not in namespace:
            raise NameError(f"the program defines no {held!r}")
        return namespace[held]

    def carry_out(message: Wire) -> Any:
        match message:
            case ["load"]:
                exec(compile(source, "program", "exec"), namespace)  # runs inside the sandbox only
                return None
            case ["call", target, arguments, named]:
                return decode(target, find)(*decode(arguments, find), **decode(named, find))
            case ["get", target, name]:
                return getattr(decode(target, find), name)
            case ["set", target, name, value]:
                return setattr(decode(target, find), name, decode(value, find))
            case ["iterate", target]:
                return list(decode(target, find))
        raise ValueError(f"{str(message)[:80]} is not a request to a program")

    with contextlib.suppress(GoneError):  # the tests have ended, so this process ends too
        while True:
            message = receive(stream)
            try:
                reply = {"value": encode(carry_out(message), keep)}
            except BaseException as error:  # every exception of the program is an answer, SystemExit too
                raised = shown(error) if message == ["load"] else str(error)[-SHOWN_CHARACTERS:]
                reply = {"raised": _builtin_name(error), "text": raised}
            if os.getpid() != itself:
                os._exit(0)  # a forked child reached the end of the text
            send(stream, reply)


def shown(error: BaseException) -> str:
    """Format the traceback through the program or the tests only, because our own lines would show paths of this machine."""
    trace = traceback.TracebackException.from_exception(error)
    trace.stack = traceback.StackSummary.from_list([each for each in trace.stack if each.filename in ("program", "tests")])
    return "".join(trace.format(chain=False))[-SHOWN_CHARACTERS:]


def _builtin_name(error: BaseException) -> str:
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


class Calls:
    """The connection, as the tests use it."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.known: dict[int, Remote] = {}

    def ask(self, *message: Wire) -> Any:
        """Call the program. Raises: the program's exception if its class is a builtin `Exception`, else RuntimeError.

        StopIteration becomes RuntimeError, because it would silently end a loop of the tests over `map(f, ...)`.
        """
        send(self.stream, message)
        reply = receive(self.stream)
        if "raised" in reply:
            kind = getattr(builtins, str(reply["raised"]), RuntimeError)
            sound = isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, CHANGED)
            raise (kind if sound else RuntimeError)(str(reply["text"]))
        if "value" not in reply:
            raise ValueError(f"the program answered {str(reply)[:80]}; a value or what it raised is allowed")
        return decode(reply["value"], self._find)

    def _find(self, kind: str, held: Any) -> "Remote":
        if kind != "object" or type(held) is not int:
            raise ValueError(f"the program answered with the {kind} {held!r}; plain data and numbers of objects are allowed")
        return self.known.setdefault(held, Remote(self, ["object", held]))


class Remote:
    """A proxy in the tests for a global (by name) or an object (by number) of the program. Equal to itself only."""

    def __init__(self, calls: Calls, wire: Wire) -> None:
        object.__setattr__(self, "_calls", calls)
        object.__setattr__(self, "_wire", wire)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._calls.ask("call", self._wire, encode(arguments, _handed), encode(named, _handed))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"an object of the program has no {name} here")
        return self._calls.ask("get", self._wire, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._calls.ask("set", self._wire, name, encode(value, _handed))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._calls.ask("iterate", self._wire))


def _handed(value: Any) -> Wire:
    if isinstance(value, Remote):
        return value._wire
    raise TypeError(f"tests hand a {type(value).__name__} to the program; plain data and its own objects are allowed")


class Names(dict):
    """Globals of the tests. A name that neither the tests nor Python define is the program's; names in `own` always are."""

    def __init__(self, calls: Calls, own: frozenset[str]) -> None:
        super().__init__(__name__="__tests__")
        self.calls, self.own = calls, own

    def __missing__(self, name: str) -> Remote:
        if name.startswith("__") or (hasattr(builtins, name) and name not in self.own):
            raise KeyError(name)
        return Remote(self.calls, ["name", name])


def judge(stream: BinaryIO, tests: str, own: frozenset[str]) -> dict[str, Any]:
    """Run the program, then the tests; returns `{"passed": True}` only if the tests reach their end.

    A list of booleans that the tests name `results` is returned too.
    """
    calls, loaded = Calls(stream), False
    names = Names(calls, own)
    try:
        calls.ask("load")
        loaded = True
        exec(compile(tests, "tests", "exec"), names)
    except GoneError:
        return {"raised": "the program ended before its tests did"}
    except MemoryError:
        return {"raised": "MemoryError", "memory": True}
    except BaseException as error:  # a failed assert, or any other early end
        return {"raised": shown(error) if loaded else "".join(map(str, error.args))}
    results = dict.get(names, "results")
    is_list = type(results) is list and all(type(each) is bool for each in results)
    return {"passed": True, "results": results if is_list else None}
