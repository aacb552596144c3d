"""A shell that only reads: ls, cat, grep, sed -n, find, head, tail, wc, cd, pwd and echo, below one folder.

It is an interpreter of its own, so that no program is started: nothing can be executed, and a machine that allows no new
processes can run it. Pipes and the connectives `&&`, `||` and `;` work; `2>/dev/null` and `2>&1` are understood; every other
redirection, every expansion and every other command is refused with its name. A path must lie below the folder after all links
are followed. `evals/sandbox/shell_child.py` loads this file behind the walls. Imports the standard library only.
"""
# The paths of a shell are text, as its user wrote them.
# ruff: noqa: PTH207

import glob
import os
import re
from dataclasses import dataclass

from evals.sandbox.shell_call import Call, Result
from evals.sandbox.shell_commands import COMMANDS
from evals.sandbox.shell_folder import Folder
from evals.sandbox.shell_parser import CommandError, Token, Word, tokens

MOST_OUTPUT = 1 << 20
"""Characters of output that a line may collect; the rest is left out."""


@dataclass
class Shell:
    """The interpreter over one folder. `written`: characters of output so far."""

    folder: Folder
    written: int = 0

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
                printed = self._pipeline(pipeline)
                result.lines += printed.lines
                result.errors += printed.errors
                result.status = printed.status
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
        piped: list[str] | None = None
        errors: list[str] = []
        last = Result()
        for command in commands:
            last = self._command(command, piped)
            piped = last.lines
            errors += last.errors
        return Result(last.lines, errors, last.status)

    def _command(self, parts: list[Token], piped: list[str] | None) -> Result:
        words = [part for part in parts if isinstance(part, Word)]
        operators = [part for part in parts if isinstance(part, str)]
        if not words:
            return Result(errors=["an empty command"], status=2)
        result = Result()
        try:
            self._collect(words, piped, result)
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

    def _collect(self, words: list[Word], piped: list[str] | None, result: Result) -> None:
        """Run one command and collect its lines, at most `MOST_OUTPUT` characters in all."""
        name = words[0].text
        if name not in COMMANDS:
            raise CommandError(f"{name}: not available; there are {', '.join(COMMANDS)}")
        arguments = [expanded for word in words[1:] for expanded in self._expanded(word)]
        for line in COMMANDS[name](Call(self.folder, arguments, piped, result)):
            self.written += len(line) + 1
            if self.written > MOST_OUTPUT:
                result.errors.append("the output is too long; the rest is left out")
                break
            result.lines.append(line)

    def _expanded(self, word: Word) -> list[str]:
        """Return the paths that a wildcard matches, or the word itself if none does."""
        if word.pattern is None:
            return [word.text]
        pattern = self.folder.placed(word.pattern)
        matches = sorted(path for path in glob.iglob(pattern) if self.folder.is_inside(os.path.realpath(path)))
        shown = [self.folder.shown(path, absolute=word.text.startswith("/")) for path in matches]
        return shown or [word.text]
