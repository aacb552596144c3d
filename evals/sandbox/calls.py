"""Two interpreters behind the walls of one sandbox: the program's, and that of the tests which judge it.

The tests call the program over a socket, a line of JSON a message: plain data go by value, whatever else the program makes
stays with it under a number. So the program never holds the tests, what they expect, or the place where the verdict goes; all
that it can do is to answer. Standard library only, and imported by no name (`evals/sandbox/child.py` loads it by its path).
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
"""Integers from here on are written in hexadecimal: decimal digits beyond 4,300 are refused."""
CHANGED = (UnicodeError, StopIteration, StopAsyncIteration)
"""Exceptions that become a RuntimeError: the first cannot be made from a text, the others end loops silently."""
CONTAINERS: dict[str, Callable[[list], Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}

type Wire = Any
"""JSON: null, booleans, numbers and strings are themselves, all else is a list that begins with the name of its kind."""


class GoneError(Exception):
    """The other side has closed the connection."""


def encode(value: Any, keep: Callable[[Any], Wire]) -> Wire:
    """Plain data by value, classes derived from them as what they derive from; `keep` says what stands for all else."""
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
    """The value again; `find` gives what a name or a number stands for. Raises: ValueError for what is no message of ours."""
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
    raise ValueError(f"{str(wire)[:80]} is no value; allowed: plain data, names, and numbers of objects")


def send(stream: BinaryIO, message: Wire) -> None:
    try:
        stream.write(json.dumps(message).encode() + b"\n")
        stream.flush()
    except (BrokenPipeError, ConnectionResetError) as error:
        raise GoneError from error


def receive(stream: BinaryIO) -> Wire:
    """The next message. Raises: GoneError at the end, a cut-off line included."""
    try:
        line = stream.readline()
    except ConnectionResetError as error:
        raise GoneError from error
    if not line.endswith(b"\n"):
        raise GoneError
    return json.loads(line)


def serve(stream: BinaryIO, source: str) -> None:
    """The program's side: run its text when told to, then answer calls until nobody asks any more."""
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
                exec(compile(source, "program", "exec"), namespace)  # the whole point, behind walls
                return None
            case ["call", target, arguments, named]:
                return decode(target, find)(*decode(arguments, find), **decode(named, find))
            case ["get", target, name]:
                return getattr(decode(target, find), name)
            case ["set", target, name, value]:
                return setattr(decode(target, find), name, decode(value, find))
            case ["iterate", target]:
                return list(decode(target, find))
        raise ValueError(f"{str(message)[:80]} cannot be asked of a program")

    with contextlib.suppress(GoneError):  # the tests have ended, and with them what this process is for
        while True:
            message = receive(stream)
            try:
                reply = {"value": encode(carry_out(message), keep)}
            except BaseException as error:  # whatever a program raises, SystemExit too, is its answer
                said = shown(error) if message == ["load"] else str(error)[-SHOWN_CHARACTERS:]
                reply = {"raised": _builtin_name(error), "text": said}
            if os.getpid() != itself:
                os._exit(0)  # a child that it forked came to the end of the text
            send(stream, reply)


def shown(error: BaseException) -> str:
    """Its traceback through the program or the tests; lines of ours would tell where this machine keeps its files."""
    told = traceback.TracebackException.from_exception(error)
    told.stack = traceback.StackSummary.from_list([each for each in told.stack if each.filename in ("program", "tests")])
    return "".join(told.format(chain=False))[-SHOWN_CHARACTERS:]


def _builtin_name(error: BaseException) -> str:
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


class Calls:
    """The tests' side of the connection."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.known: dict[int, Remote] = {}

    def ask(self, *message: Wire) -> Any:
        """Raises: what the program raised, where that is an `Exception` of Python's own; RuntimeError for any other.

        StopIteration is not passed on: it would end a loop of the tests over `map(f, ...)` before it judges anything.
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
    """What the tests hold of the program's: a global by its name, or an object by its number. Equal to itself alone."""

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
    """The tests' globals: what they do not define, and Python does not, is the program's; so is `own`, whatever Python has."""

    def __init__(self, calls: Calls, own: frozenset[str]) -> None:
        super().__init__(__name__="__tests__")
        self.calls, self.own = calls, own

    def __missing__(self, name: str) -> Remote:
        if name.startswith("__") or (hasattr(builtins, name) and name not in self.own):
            raise KeyError(name)
        return Remote(self.calls, ["name", name])


def judge(stream: BinaryIO, tests: str, own: frozenset[str]) -> dict[str, Any]:
    """Have the program run its text, then run the tests; `{"passed": True}` only at the end of theirs.

    A list of booleans that the tests call `results` goes along.
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
    except BaseException as error:  # an assert, or any other way not to come to the end
        return {"raised": shown(error) if loaded else "".join(map(str, error.args))}
    results = dict.get(names, "results")
    is_list = type(results) is list and all(type(each) is bool for each in results)
    return {"passed": True, "results": results if is_list else None}
