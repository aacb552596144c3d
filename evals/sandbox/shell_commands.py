"""The commands of the read-only shell: ls, cat, head, tail, wc, sed -n, cd, pwd, echo, and the table of all.

Imports the standard library only.
"""
# The paths of a shell are text, as its user wrote them.
# ruff: noqa: PTH112, PTH118, PTH208

import os
import re
import stat
from collections.abc import Callable, Iterator

from evals.sandbox.shell_call import Call, Command, line_count, split_options
from evals.sandbox.shell_find import find
from evals.sandbox.shell_folder import NAME
from evals.sandbox.shell_grep import grep
from evals.sandbox.shell_parser import CommandError
from evals.sandbox.shell_patterns import python_pattern


def _ls(call: Call) -> Iterator[str]:
    flags, operands = split_options(call.arguments, "laA1RhpF")
    paths = operands or ["."]
    several = len(paths) > 1 or "R" in flags
    for path in paths:
        place = call.folder.inside(path)
        if not os.path.isdir(place):
            yield _listed(path, place, flags)
            continue
        folders = [(p, q) for p, q, is_folder in call.folder.walk(path) if is_folder] if "R" in flags else [(path, place)]
        for number, (name, folder) in enumerate(folders):
            if several:
                yield from ([""] if number else [])
                yield f"{name}:"
            for entry in sorted(os.listdir(folder)):
                if not entry.startswith(".") or "a" in flags or "A" in flags:
                    yield _listed(entry, os.path.join(folder, entry), flags)


def _listed(name: str, place: str, flags: dict[str, str]) -> str:
    facts = os.lstat(place)
    mark = "/" if stat.S_ISDIR(facts.st_mode) and ("p" in flags or "F" in flags) else ""
    if "l" not in flags:
        return name + mark
    kind = "d" if stat.S_ISDIR(facts.st_mode) else "l" if stat.S_ISLNK(facts.st_mode) else "-"
    return f"{kind}r--r--r-- {facts.st_size:>9} {name}{mark}"


def _cat(call: Call) -> Iterator[str]:
    flags, paths = split_options(call.arguments, "n")
    number = 0
    for _, lines in call.inputs(paths):
        for line in lines:
            number += 1
            yield f"{number:6d}\t{line}" if "n" in flags else line


def _end(first: bool) -> Command:
    def run(call: Call) -> Iterator[str]:
        short = [f"-n{word[1:]}" if re.fullmatch(r"-[0-9]+", word) else word for word in call.arguments]
        flags, paths = split_options(short, "q", "n")
        wanted = flags.get("n", "10")
        from_start = wanted.startswith("+") and not first
        count = line_count(wanted.lstrip("+"))
        for place, (path, lines) in enumerate(call.inputs(paths)):
            if len(paths) > 1 and "q" not in flags:
                yield from ([""] if place else [])
                yield f"==> {path} <=="
            yield from (
                lines[:count] if first else lines[max(0, count - 1) :] if from_start else lines[max(0, len(lines) - count) :]
            )

    return run


def _wc(call: Call) -> Iterator[str]:
    flags, paths = split_options(call.arguments, "lwc")
    for path, lines in call.inputs(paths):
        counts = {
            "l": len(lines),
            "w": sum(len(line.split()) for line in lines),
            "c": sum(len(line.encode()) + 1 for line in lines),
        }
        wanted = [str(counts[name]) for name in "lwc" if name in flags or not flags]
        yield " ".join(wanted + ([path] if path != "-" else []))


def _sed(call: Call) -> Iterator[str]:
    """`sed -n` with addresses and `p`: `5p`, `5,9p`, `5,$p`, `/words/p`, several with `;`."""
    flags, rest = split_options(call.arguments, "nE", "e")
    script, paths = (flags["e"], rest) if "e" in flags else (rest[0] if rest else "", rest[1:])
    if "n" not in flags or not script:
        raise CommandError("only `sed -n 'FIRST,LASTp' FILE` is available")
    rules = [_rule(part.strip(), "E" in flags) for part in script.split(";") if part.strip()]
    for _, lines in call.inputs(paths):
        for number, line in enumerate(lines, 1):
            for rule in rules:
                if rule(number, line, len(lines)):
                    yield line


def _rule(text: str, extended: bool) -> Callable[[int, str, int], bool]:
    lines = re.fullmatch(r"(\d+|\$)(?:\s*,\s*(\d+|\$))?\s*p", text)
    if lines:
        first, last = lines[1], lines[2] or lines[1]
        value = lambda bound, count: count if bound == "$" else int(bound)  # noqa: E731
        return lambda number, line, count: value(first, count) <= number <= value(last, count)
    words = re.fullmatch(r"/((?:[^/\\]|\\.)*)/\s*p", text)
    if words:
        pattern = re.compile(python_pattern(words[1].replace("\\/", "/"), extended))
        return lambda number, line, count: bool(pattern.search(line))
    raise CommandError(f"{text!r}: only addresses with p are available, such as 5,9p or /words/p")


def _cd(call: Call) -> Iterator[str]:
    place = call.folder.inside(call.arguments[0] if call.arguments else NAME)
    if not os.path.isdir(place):
        raise CommandError(f"{call.arguments[0]}: Not a directory")
    call.folder.current = place
    yield from ()


def _pwd(call: Call) -> Iterator[str]:
    yield call.folder.shown(call.folder.current, absolute=True)


def _echo(call: Call) -> Iterator[str]:
    yield " ".join(call.arguments)


COMMANDS: dict[str, Command] = {
    "ls": _ls, "cat": _cat, "grep": grep, "sed": _sed, "find": find, "head": _end(True), "tail": _end(False), "wc": _wc,
    "cd": _cd, "pwd": _pwd, "echo": _echo,
}  # fmt: skip
