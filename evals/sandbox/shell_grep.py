"""`grep` of the read-only shell. Imports the standard library only."""
# The paths of a shell are text, as its user wrote them.
# ruff: noqa: PTH112, PTH114, PTH119, PTH123

import os
import re
import stat
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from evals.sandbox.shell_call import Call, line_count, split_options
from evals.sandbox.shell_parser import CommandError
from evals.sandbox.shell_patterns import python_pattern


def grep(call: Call) -> Iterator[str]:
    """Yield the lines that match a pattern, or what the options ask for."""
    long = [word for word in call.arguments if re.match(r"--(include|exclude|exclude-dir)=", word)]
    unknown = [w for w in call.arguments if w.startswith("--") and w not in long and not w.startswith("--color") and w != "--"]
    if unknown:
        raise CommandError(f"option {unknown[0]} is not available")
    short = [word for word in call.arguments if word not in long and not word.startswith("--color")]
    flags, rest = split_options(short, "rRnilLcvwEFPohHsqxI", "eABCm")
    if "e" not in flags and not rest:
        raise CommandError("give a pattern")
    pattern, paths = (flags["e"], rest) if "e" in flags else (rest[0], rest[1:])
    matches = _matcher(pattern, flags)
    recursive = "r" in flags or "R" in flags
    names = _files(call, paths or (["."] if recursive else []), long, recursive=recursive)
    named = "h" not in flags and (recursive or len(paths) > 1 or "H" in flags)
    is_any = False
    for path, lines in names if paths or recursive else [("(standard input)", call.piped or [])]:
        hits = [number for number, line in enumerate(lines) if matches(line) != ("v" in flags)]
        hits = hits[: line_count(flags["m"])] if "m" in flags else hits
        is_any |= bool(hits)
        if "q" not in flags:
            yield from _hits(path if named else "", path, lines, hits, flags, pattern)
    call.result.status = call.result.status or (0 if is_any else 1)


def _matcher(pattern: str, flags: dict[str, str]) -> Callable[[str], bool]:
    return lambda line: _compiled(pattern, flags).search(line) is not None


def _compiled(pattern: str, flags: dict[str, str]) -> re.Pattern[str]:
    text = re.escape(pattern) if "F" in flags else pattern if "P" in flags else python_pattern(pattern, "E" in flags)
    text = rf"\b(?:{text})\b" if "w" in flags else rf"^(?:{text})$" if "x" in flags else text
    return re.compile(text, re.IGNORECASE if "i" in flags else 0)


def _files(call: Call, paths: list[str], long: list[str], *, recursive: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield (path, lines) of each file to search. Files with a NUL at their beginning are left out of a walk."""
    rules = [(word[2:].partition("=")[0], word.partition("=")[2]) for word in long]
    include = [value for name, value in rules if name == "include"]
    for path in paths:
        if not recursive or not os.path.isdir(call.folder.inside(path)):
            yield from call.inputs([path])
            continue
        for name, place, is_folder in call.folder.walk(path):
            if is_folder or os.path.islink(place) or not stat.S_ISREG(os.lstat(place).st_mode):
                continue
            base, folders = os.path.basename(name), name.split("/")[:-1]
            if include and not any(fnmatchcase(base, value) for value in include):
                continue
            if any(kind == "exclude" and fnmatchcase(base, value) for kind, value in rules):
                continue
            if any(kind == "exclude-dir" and any(fnmatchcase(f, value) for f in folders) for kind, value in rules):
                continue
            with open(place, "rb") as file:
                if b"\0" in file.read(4096):
                    continue
            yield name, call.folder.read(call.folder.shown(place, absolute=True))


def _hits(label: str, path: str, lines: list[str], hits: list[int], flags: dict[str, str], pattern: str) -> Iterator[str]:
    if "l" in flags or "L" in flags:
        yield from [path] if bool(hits) == ("l" in flags) else []
        return
    prefix = f"{label}:" if label else ""
    if "c" in flags:
        yield f"{prefix}{len(hits)}"
        return
    if "o" in flags:
        for number in hits:
            for match in _compiled(pattern, flags).finditer(lines[number]):
                if match[0]:
                    yield prefix + (f"{number + 1}:" if "n" in flags else "") + match[0]
        return
    yield from _with_context(label, lines, hits, flags)


def _with_context(label: str, lines: list[str], hits: list[int], flags: dict[str, str]) -> Iterator[str]:
    """Yield the matching lines with those before and after them; `--` separates groups that do not touch."""
    before, after = (line_count(flags.get(name, flags.get("C", "0"))) for name in "BA")
    last = -1
    for number in hits:
        start = max(last + 1, number - before)
        if (before or after) and last >= 0 and start > last + 1:
            yield "--"
        for at in range(start, min(len(lines), number + after + 1)):
            mark = ":" if at in hits else "-"
            yield (f"{label}{mark}" if label else "") + (f"{at + 1}{mark}" if "n" in flags else "") + lines[at]
            last = at
