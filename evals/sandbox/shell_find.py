"""`find` of the read-only shell. Imports the standard library only."""
# The paths of a shell are text, as its user wrote them.
# ruff: noqa: PTH114, PTH119

import os
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase

from evals.sandbox.shell_call import Call, line_count
from evals.sandbox.shell_folder import MOST_DEPTH
from evals.sandbox.shell_parser import CommandError


def find(call: Call) -> Iterator[str]:
    """Yield the paths below some folders that pass all tests of a group; `-o` begins another group."""
    first = next(
        (at for at, word in enumerate(call.arguments) if word.startswith("-") or word in ("!", "(")), len(call.arguments)
    )
    paths, tests = call.arguments[:first] or ["."], _tests(call.arguments[first:])
    least, most = 0, MOST_DEPTH
    checks: list[list[Callable[[str, str, bool], bool]]] = [[]]
    for name, value, negated in tests:
        if name == "maxdepth":
            most = line_count(value)
        elif name == "mindepth":
            least = line_count(value)
        elif name == "o":
            checks.append([])
        else:
            checks[-1].append(_check(name, value, negated))
    for path in paths:
        depth = path.rstrip("/").count("/")
        for name, place, is_folder in call.folder.walk(path):
            at = 0 if name == path else name.count("/") - depth
            if least <= at <= most and any(all(test(name, place, is_folder) for test in group) for group in checks):
                yield name


def _tests(words: Iterable[str]) -> list[tuple[str, str, bool]]:
    tests, rest, negated = [], list(words), False
    while rest:
        word = rest.pop(0)
        if word in ("!", "-not"):
            negated = True
            continue
        name = word.lstrip("-")
        if word in ("-o", "-or", "-print", "-a", "-and"):
            tests += [("o", "", False)] if name in ("o", "or") else []
            continue
        if name not in ("name", "iname", "path", "type", "maxdepth", "mindepth") or not rest:
            raise CommandError(f"{word}: not available, or without its value; there are -name, -iname, -path, -type, -maxdepth")
        tests.append((name, rest.pop(0), negated))
        negated = False
    return tests


def _check(name: str, value: str, negated: bool) -> Callable[[str, str, bool], bool]:
    def holds(path: str, place: str, is_folder: bool) -> bool:
        base = os.path.basename(path.rstrip("/")) or path
        if name == "type":
            return value == ("l" if os.path.islink(place) else "d" if is_folder else "f")
        if name == "iname":
            return fnmatchcase(base.lower(), value.lower())
        return fnmatchcase(base if name == "name" else path, value)

    return lambda path, place, is_folder: holds(path, place, is_folder) != negated
