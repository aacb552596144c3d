"""A shell that only reads: ls, cat, grep, sed -n, find, head, tail, wc, cd, pwd and echo, below one folder.

It is an interpreter of its own, so that no program is started: nothing can be executed, and a machine that allows no new
processes can run it. Pipes and the connectives `&&`, `||` and `;` work; `2>/dev/null` and `2>&1` are understood; every other
redirection, every expansion and every other command is refused with its name. A path must lie below the folder after all links
are followed. `evals/sandbox/shell_child.py` loads this file by its path, behind the walls. Imports the standard library only.
"""
# The paths of a shell are text, as its user wrote them.
# ruff: noqa: PTH110, PTH112, PTH114, PTH116, PTH118, PTH119, PTH123, PTH207, PTH208

import glob
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

MOST_OUTPUT = 1 << 20
"""Bytes of output that a command may collect; the rest is left out."""
MOST_DEPTH = 40
NAME = "/repo"
"""The folder's name for who uses the shell; absolute paths begin with it."""


class CommandError(Exception):
    """A command that cannot be run; its text is what the shell prints."""


@dataclass
class Result:
    """What a pipeline printed, its errors, and its status."""

    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    status: int = 0


@dataclass
class Word:
    """One word of a command; `pattern` is its text as a glob with quoted characters escaped, or None without a wildcard."""

    text: str
    pattern: str | None = None


type Token = Word | str


def tokens(line: str) -> list[Token]:
    """Split a line into words and operators (`|`, `&&`, `||`, `;`, `2>/dev/null`, `2>&1`). Raises: CommandError."""
    found: list[Token] = []
    at = 0
    while at < len(line):
        if line[at] in " \t":
            at += 1
        elif line[at] == "\n":
            found.append(";")
            at += 1
        elif line[at] == "#":
            at = (line + "\n").index("\n", at)
        elif operator := re.match(r"2> ?/dev/null|2>&1|&&|\|\||[|;]", line[at:]):
            found.append(operator[0].replace(" ", ""))
            at += operator.end()
        else:
            word, at = _word(line, at)
            found.append(word)
    return found


def _word(line: str, at: int) -> tuple[Word, int]:
    text, pattern, wild = [], [], False
    while at < len(line) and line[at] not in " \t\n|;":
        letter = line[at]
        if letter in "<>&()`":
            raise CommandError(f"{letter!r} is not available: this shell only reads; use pipes, &&, || and ;")
        if letter == "$" and re.match(r"\$[\w({]", line[at:]):
            raise CommandError("variables and substitutions are not available")
        if letter in "'\"":
            end = line.find(letter, at + 1)
            while letter == '"' and end > 0 and line[end - 1] == "\\":
                end = line.find(letter, end + 1)
            if end < 0:
                raise CommandError(f"the quote {letter} is not closed")
            inside = line[at + 1 : end]
            if letter == '"':
                if re.search(r"`|\$[\w({]", inside):
                    raise CommandError("variables and substitutions are not available")
                inside = re.sub(r'\\(["\\$`])', r"\1", inside)
            text.append(inside)
            pattern.append(glob.escape(inside))
            at = end + 1
            continue
        if letter == "\\" and at + 1 < len(line):
            text.append(line[at + 1])
            pattern.append(glob.escape(line[at + 1]))
            at += 2
            continue
        wild |= letter in "*?["
        text.append(letter)
        pattern.append(letter)
        at += 1
    return Word("".join(text), "".join(pattern) if wild else None), at


@dataclass
class Shell:
    """The interpreter over one folder; `folder` is as it lies behind the walls."""

    root: str
    folder: str = ""
    written: int = 0

    def __post_init__(self) -> None:
        self.root = os.path.realpath(self.root)
        self.folder = self.root

    def run(self, line: str) -> Result:
        """Run a line. Errors are part of the result."""
        result = Result()
        try:
            parts = tokens(line)
        except CommandError as error:
            return Result(errors=[str(error)], status=2)
        pipeline: list[Token] = []
        skip = False
        for token in [*parts, ";"]:
            if token not in ("&&", "||", ";"):
                pipeline.append(token)
                continue
            if pipeline and not skip:
                made = self._pipeline(pipeline)
                result.lines += made.lines
                result.errors += made.errors
                result.status = made.status
            pipeline = []
            skip = (token == "&&" and result.status != 0) or (token == "||" and result.status == 0)
        return result

    def _pipeline(self, parts: list[Token]) -> Result:
        commands: list[list[Token]] = [[]]
        for token in parts:
            if token == "|":
                commands.append([])
            else:
                commands[-1].append(token)
        given: list[str] | None = None
        errors: list[str] = []
        made = Result()
        for command in commands:
            made = self._command(command, given)
            given = made.lines
            errors += made.errors
        return Result(made.lines, errors, made.status)

    def _command(self, parts: list[Token], given: list[str] | None) -> Result:
        words = [part for part in parts if isinstance(part, Word)]
        operators = [part for part in parts if isinstance(part, str)]
        if not words:
            return Result(errors=["an empty command"], status=2)
        result = Result()
        try:
            name = words[0].text
            if name not in COMMANDS:
                raise CommandError(f"{name}: not available; there are {', '.join(COMMANDS)}")
            arguments = [expanded for word in words[1:] for expanded in self._expanded(word)]
            for line in COMMANDS[name](self, arguments, given, result):
                self.written += len(line) + 1
                if self.written > MOST_OUTPUT:
                    result.errors.append("the output is too long; the rest is left out")
                    break
                result.lines.append(line)
        except CommandError as error:
            result.errors.append(f"{words[0].text}: {error}")
            result.status = 2
        except (OSError, ValueError, re.error, RecursionError) as error:
            result.errors.append(f"{words[0].text}: {type(error).__name__}: {getattr(error, 'strerror', None) or error}")
            result.status = 2
        if "2>&1" in operators:
            result.lines += result.errors
            result.errors = []
        elif "2>/dev/null" in operators:
            result.errors = []
        return result

    def _expanded(self, word: Word) -> list[str]:
        """Return the paths that a wildcard matches, or the word itself if none does."""
        if word.pattern is None:
            return [word.text]
        place = self.placed(word.pattern)
        found = sorted(path for path in glob.iglob(place) if self._is_inside(os.path.realpath(path)))
        shown = [self.shown(path, absolute=word.text.startswith("/")) for path in found]
        return shown or [word.text]

    def placed(self, path: str) -> str:
        """Return where a path lies, before links are followed. Raises: CommandError for an absolute path of another root."""
        if "\0" in path:
            raise CommandError("a path holds no NUL")
        if not path.startswith("/"):
            return os.path.join(self.folder, path)
        if path == NAME or path.startswith(f"{NAME}/"):
            return self.root + path[len(NAME) :]
        raise CommandError(f"{path}: outside the repository, which is {NAME}")

    def inside(self, path: str) -> str:
        """Return the real place of a path. Raises: CommandError if it is outside, or does not exist."""
        place = os.path.realpath(self.placed(path))
        if not self._is_inside(place):
            raise CommandError(f"{path}: outside the repository, which is {NAME}")
        if not os.path.exists(place):
            raise CommandError(f"{path}: No such file or directory")
        return place

    def _is_inside(self, place: str) -> bool:
        return place == self.root or place.startswith(self.root.rstrip("/") + "/")

    def shown(self, place: str, *, absolute: bool = False) -> str:
        return NAME + place[len(self.root) :] if absolute else os.path.relpath(place, self.folder)

    def read(self, path: str) -> list[str]:
        """Return the lines of a regular file. Raises: CommandError for anything else."""
        place = self.inside(path)
        if not stat.S_ISREG(os.stat(place).st_mode):
            raise CommandError(f"{path}: {'Is a directory' if os.path.isdir(place) else 'not a regular file'}")
        with open(place, encoding="utf-8", errors="replace", newline="\n") as file:
            return lines_of(file.read(8 * MOST_OUTPUT))

    def walk(self, path: str) -> Iterator[tuple[str, str, bool]]:
        """Yield (path as the user wrote it, place, whether it is a folder) below a path; links are not followed."""
        place = self.inside(path)
        yield path, place, os.path.isdir(place)
        if os.path.isdir(place):
            yield from self._below(path, place, 0)

    def _below(self, path: str, place: str, depth: int) -> Iterator[tuple[str, str, bool]]:
        if depth > MOST_DEPTH:
            return
        for entry in sorted(os.scandir(place), key=lambda entry: entry.name):
            name = f"{path.rstrip('/')}/{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            yield name, entry.path, is_folder
            if is_folder:
                yield from self._below(name, entry.path, depth + 1)


def lines_of(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def _flags(arguments: list[str], allowed: str, valued: str = "") -> tuple[dict[str, str], list[str]]:
    """Split short options from operands; a valued option takes the rest of its word or the next word."""
    found: dict[str, str] = {}
    operands = []
    at = 0
    while at < len(arguments):
        word = arguments[at]
        at += 1
        if word == "--":
            operands += arguments[at:]
            break
        if not word.startswith("-") or word == "-" or word.startswith("--"):
            operands.append(word)
            continue
        rest = word[1:]
        while rest:
            letter, rest = rest[0], rest[1:]
            if letter in valued:
                if not rest and at == len(arguments):
                    raise CommandError(f"option -{letter} needs a value")
                found[letter] = rest or arguments[at]
                at += not rest
                rest = ""
            elif letter in allowed:
                found[letter] = ""
            else:
                raise CommandError(f"option -{letter} is not available")
    return found, operands


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise CommandError(f"{text!r} is not a number of lines")
    return int(text)


def _ls(shell: Shell, arguments: list[str], given: list[str] | None, result: Result) -> Iterator[str]:
    flags, operands = _flags(arguments, "laA1RhpF")
    paths = operands or ["."]
    several = len(paths) > 1 or "R" in flags
    for path in paths:
        place = shell.inside(path)
        if not os.path.isdir(place):
            yield _listed(path, place, flags)
            continue
        folders = [(p, q) for p, q, is_folder in shell.walk(path) if is_folder] if "R" in flags else [(path, place)]
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


def _inputs(shell: Shell, paths: list[str], given: list[str] | None, result: Result) -> Iterator[tuple[str, list[str]]]:
    """Yield (path, lines) of operands or of the pipe. A path that cannot be read is an error; the others follow."""
    if not paths:
        if given is None:
            raise CommandError("give a file")
        yield "-", given
    for path in paths:
        try:
            yield path, shell.read(path)
        except CommandError as error:
            result.errors.append(str(error))
            result.status = 1


def _cat(shell: Shell, arguments: list[str], given: list[str] | None, result: Result) -> Iterator[str]:
    flags, paths = _flags(arguments, "n")
    number = 0
    for _, lines in _inputs(shell, paths, given, result):
        for line in lines:
            number += 1
            yield f"{number:6d}\t{line}" if "n" in flags else line


def _end(first: bool) -> Callable[[Shell, list[str], list[str] | None, Result], Iterator[str]]:
    def run(shell: Shell, arguments: list[str], given: list[str] | None, result: Result) -> Iterator[str]:
        short = [f"-n{word[1:]}" if re.fullmatch(r"-[0-9]+", word) else word for word in arguments]
        flags, paths = _flags(short, "q", "n")
        asked = flags.get("n", "10")
        from_start = asked.startswith("+") and not first
        count = _count(asked.lstrip("+"))
        for place, (path, lines) in enumerate(_inputs(shell, paths, given, result)):
            if len(paths) > 1 and "q" not in flags:
                yield from ([""] if place else [])
                yield f"==> {path} <=="
            yield from (
                lines[:count] if first else lines[max(0, count - 1) :] if from_start else lines[max(0, len(lines) - count) :]
            )

    return run


def _wc(shell: Shell, arguments: list[str], given: list[str] | None, result: Result) -> Iterator[str]:
    flags, paths = _flags(arguments, "lwc")
    for path, lines in _inputs(shell, paths, given, result):
        counts = {
            "l": len(lines),
            "w": sum(len(line.split()) for line in lines),
            "c": sum(len(line.encode()) + 1 for line in lines),
        }
        wanted = [str(counts[name]) for name in "lwc" if name in flags or not flags]
        yield " ".join(wanted + ([path] if path != "-" else []))


def _sed(shell: Shell, arguments: list[str], given: list[str] | None, result: Result) -> Iterator[str]:
    """`sed -n` with addresses and `p`: `5p`, `5,9p`, `5,$p`, `/words/p`, several with `;`."""
    flags, rest = _flags(arguments, "nE", "e")
    script, paths = (flags["e"], rest) if "e" in flags else (rest[0] if rest else "", rest[1:])
    if "n" not in flags or not script:
        raise CommandError("only `sed -n 'FIRST,LASTp' FILE` is available")
    rules = [_rule(part.strip(), "E" in flags) for part in script.split(";") if part.strip()]
    for _, lines in _inputs(shell, paths, given, result):
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
        pattern = re.compile(expression(words[1].replace("\\/", "/"), extended))
        return lambda number, line, count: bool(pattern.search(line))
    raise CommandError(f"{text!r}: only addresses with p are available, such as 5,9p or /words/p")


def expression(text: str, extended: bool) -> str:
    """Translate a POSIX regular expression, basic or extended, into Python's."""
    classes = {"space": r"\s", "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z",
               "punct": r"!-/:-@\[-`{-~", "blank": r" \t", "word": r"\w"}  # fmt: skip
    text = re.sub(r"\[:(\w+):\]", lambda found: classes.get(found[1], found[0]), text)
    if extended:
        return text.replace(r"\<", r"\b").replace(r"\>", r"\b")
    made, at, in_set = [], 0, False
    while at < len(text):
        letter = text[at]
        if in_set:
            in_set = letter != "]" or made[-1] in ("[", "[^")
            made.append("\\\\" if letter == "\\" and text[at : at + 2] not in (r"\s", r"\t", r"\w", r"\[") else letter)
        elif letter == "\\" and at + 1 < len(text):
            at += 1
            made.append({"<": r"\b", ">": r"\b"}.get(text[at], text[at] if text[at] in "(){}|+?" else "\\" + text[at]))
        elif letter == "[":
            in_set = True
            made.append("[^" if text[at + 1 : at + 2] == "^" else "[")
            at += text[at + 1 : at + 2] == "^"
        elif letter == "*" and not made:
            made.append(r"\*")
        else:
            made.append("\\" + letter if letter in "(){}|+?" else letter)
        at += 1
    return "".join(made)


def _grep(shell: Shell, arguments: list[str], given: list[str] | None, result: Result) -> Iterator[str]:
    long = [word for word in arguments if re.match(r"--(include|exclude|exclude-dir)=", word)]
    unknown = [w for w in arguments if w.startswith("--") and w not in long and not w.startswith("--color") and w != "--"]
    if unknown:
        raise CommandError(f"option {unknown[0]} is not available")
    short = [word for word in arguments if word not in long and not word.startswith("--color")]
    flags, rest = _flags(short, "rRnilLcvwEFPohHsqxI", "eABCm")
    if "e" not in flags and not rest:
        raise CommandError("give a pattern")
    pattern, paths = (flags["e"], rest) if "e" in flags else (rest[0], rest[1:])
    matches = _matcher(pattern, flags)
    recursive = "r" in flags or "R" in flags
    names = _grep_files(shell, paths or (["."] if recursive else []), long, recursive, result)
    named = "h" not in flags and (recursive or len(paths) > 1 or "H" in flags)
    found = False
    for path, lines in names if paths or recursive else [("(standard input)", given or [])]:
        hits = [number for number, line in enumerate(lines) if matches(line) != ("v" in flags)]
        hits = hits[: _count(flags["m"])] if "m" in flags else hits
        found |= bool(hits)
        if "q" not in flags:
            yield from _hits(path if named else "", path, lines, hits, flags, pattern)
    result.status = result.status or (0 if found else 1)


def _matcher(pattern: str, flags: dict[str, str]) -> Callable[[str], bool]:
    return lambda line: _compiled(pattern, flags).search(line) is not None


def _compiled(pattern: str, flags: dict[str, str]) -> re.Pattern[str]:
    text = re.escape(pattern) if "F" in flags else pattern if "P" in flags else expression(pattern, "E" in flags)
    text = rf"\b(?:{text})\b" if "w" in flags else rf"^(?:{text})$" if "x" in flags else text
    return re.compile(text, re.IGNORECASE if "i" in flags else 0)


def _grep_files(
    shell: Shell, paths: list[str], long: list[str], recursive: bool, result: Result
) -> Iterator[tuple[str, list[str]]]:
    rules = [(word[2:].partition("=")[0], word.partition("=")[2]) for word in long]
    include = [value for name, value in rules if name == "include"]
    for path in paths:
        if not recursive or not os.path.isdir(shell.inside(path)):
            yield from _inputs(shell, [path], None, result)
            continue
        for name, place, is_folder in shell.walk(path):
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
            yield name, shell.read(shell.shown(place, absolute=True))


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
            for found in _compiled(pattern, flags).finditer(lines[number]):
                if found[0]:
                    yield prefix + (f"{number + 1}:" if "n" in flags else "") + found[0]
        return
    before, after = (_count(flags.get(name, flags.get("C", "0"))) for name in "BA")
    last = -1
    for number in hits:
        start = max(last + 1, number - before)
        if (before or after) and last >= 0 and start > last + 1:
            yield "--"
        for at in range(start, min(len(lines), number + after + 1)):
            mark = ":" if at in hits else "-"
            yield (f"{label}{mark}" if label else "") + (f"{at + 1}{mark}" if "n" in flags else "") + lines[at]
            last = at


def _find(shell: Shell, arguments: list[str], given: list[str] | None, result: Result) -> Iterator[str]:
    first = next((at for at, word in enumerate(arguments) if word.startswith("-") or word in ("!", "(")), len(arguments))
    paths, tests = arguments[:first] or ["."], _tests(arguments[first:])
    least, most = 0, MOST_DEPTH
    checks: list[list[Callable[[str, str, bool], bool]]] = [[]]
    for name, value, negated in tests:
        if name == "maxdepth":
            most = _count(value)
        elif name == "mindepth":
            least = _count(value)
        elif name == "o":
            checks.append([])
        else:
            checks[-1].append(_check(name, value, negated))
    for path in paths:
        depth = path.rstrip("/").count("/")
        for name, place, is_folder in shell.walk(path):
            at = 0 if name == path else name.count("/") - depth
            if least <= at <= most and any(all(test(name, place, is_folder) for test in group) for group in checks):
                yield name


def _tests(words: Iterable[str]) -> list[tuple[str, str, bool]]:
    found, rest, negated = [], list(words), False
    while rest:
        word = rest.pop(0)
        if word in ("!", "-not"):
            negated = True
            continue
        name = word.lstrip("-")
        if word in ("-o", "-or", "-print", "-a", "-and"):
            found += [("o", "", False)] if name in ("o", "or") else []
            continue
        if name not in ("name", "iname", "path", "type", "maxdepth", "mindepth") or not rest:
            raise CommandError(f"{word}: not available, or without its value; there are -name, -iname, -path, -type, -maxdepth")
        found.append((name, rest.pop(0), negated))
        negated = False
    return found


def _check(name: str, value: str, negated: bool) -> Callable[[str, str, bool], bool]:
    def holds(path: str, place: str, is_folder: bool) -> bool:
        base = os.path.basename(path.rstrip("/")) or path
        if name == "type":
            return value == ("l" if os.path.islink(place) else "d" if is_folder else "f")
        if name == "iname":
            return fnmatchcase(base.lower(), value.lower())
        return fnmatchcase(base if name == "name" else path, value)

    return lambda path, place, is_folder: holds(path, place, is_folder) != negated


def _cd(shell: Shell, arguments: list[str], given: list[str] | None, result: Result) -> Iterator[str]:
    place = shell.inside(arguments[0] if arguments else NAME)
    if not os.path.isdir(place):
        raise CommandError(f"{arguments[0]}: Not a directory")
    shell.folder = place
    yield from ()


def _pwd(shell: Shell, arguments: list[str], given: list[str] | None, result: Result) -> Iterator[str]:
    yield shell.shown(shell.folder, absolute=True)


def _echo(shell: Shell, arguments: list[str], given: list[str] | None, result: Result) -> Iterator[str]:
    yield " ".join(arguments)


COMMANDS: dict[str, Callable[[Shell, list[str], list[str] | None, Result], Iterator[str]]] = {
    "ls": _ls, "cat": _cat, "grep": _grep, "sed": _sed, "find": _find, "head": _end(True), "tail": _end(False), "wc": _wc,
    "cd": _cd, "pwd": _pwd, "echo": _echo,
}  # fmt: skip
