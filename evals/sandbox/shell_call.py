"""One call of a command of the read-only shell: its arguments, its input, and where its errors go.

Imports the standard library only.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from evals.sandbox.shell_folder import Folder
from evals.sandbox.shell_parser import CommandError


@dataclass
class Result:
    """What a command or a pipeline printed, its errors, and its status."""

    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    status: int = 0


@dataclass
class Call:
    """A command that is being run. `piped`: lines of the command before it in the pipe; None for the first command."""

    folder: Folder
    arguments: list[str]
    piped: list[str] | None
    result: Result

    def inputs(self, paths: list[str]) -> Iterator[tuple[str, list[str]]]:
        """Yield (path, lines) of operands or of the pipe. A path that cannot be read is an error; the others follow."""
        if not paths:
            if self.piped is None:
                raise CommandError("give a file")
            yield "-", self.piped
        for path in paths:
            try:
                yield path, self.folder.read(path)
            except CommandError as error:
                self.result.errors.append(str(error))
                self.result.status = 1


type Command = Callable[[Call], Iterator[str]]
"""Yields the lines that a command prints."""


def split_options(arguments: list[str], allowed: str, valued: str = "") -> tuple[dict[str, str], list[str]]:
    """Split short options from operands; a valued option takes the rest of its word or the next word. Raises: CommandError."""
    options: dict[str, str] = {}
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
                options[letter] = rest or arguments[at]
                at += not rest
                rest = ""
            elif letter in allowed:
                options[letter] = ""
            else:
                raise CommandError(f"option -{letter} is not available")
    return options, operands


def line_count(text: str) -> int:
    """Return a number of lines. Raises: CommandError."""
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise CommandError(f"{text!r} is not a number of lines")
    return int(text)
