"""Split a line of the read-only shell into words and operators.

The shell only reads, so a redirection, a variable or a substitution is refused here. Imports the standard library only.
"""

import glob
import re
from dataclasses import dataclass


class CommandError(Exception):
    """A command that cannot be run; its text is what the shell prints."""


@dataclass
class Word:
    """One word of a command; `pattern` is its text as a glob with quoted characters escaped, or None without a wildcard."""

    text: str
    pattern: str | None = None


type Token = Word | str


def tokens(line: str) -> list[Token]:
    """Split a line into words and operators (`|`, `&&`, `||`, `;`, `2>/dev/null`, `2>&1`). Raises: CommandError."""
    parts: list[Token] = []
    at = 0
    while at < len(line):
        if line[at] in " \t":
            at += 1
        elif line[at] == "\n":
            parts.append(";")
            at += 1
        elif line[at] == "#":
            at = (line + "\n").index("\n", at)
        elif operator := re.match(r"2> ?/dev/null|2>&1|&&|\|\||[|;]", line[at:]):
            parts.append(operator[0].replace(" ", ""))
            at += operator.end()
        else:
            word, at = _word(line, at)
            parts.append(word)
    return parts


def _word(line: str, at: int) -> tuple[Word, int]:
    """Return the word that begins at a place, and the place after it."""
    text, pattern, wild = [], [], False
    while at < len(line) and line[at] not in " \t\n|;":
        letter = line[at]
        if letter in "<>&()`":
            raise CommandError(f"{letter!r} is not available: this shell only reads; use pipes, &&, || and ;")
        if letter == "$" and re.match(r"\$[\w({]", line[at:]):
            raise CommandError("variables and substitutions are not available")
        if letter in "'\"":
            quoted, at = _quoted(line, at)
        elif letter == "\\" and at + 1 < len(line):
            quoted, at = line[at + 1], at + 2
        else:
            wild |= letter in "*?["
            text.append(letter)
            pattern.append(letter)
            at += 1
            continue
        text.append(quoted)
        pattern.append(glob.escape(quoted))
    return Word("".join(text), "".join(pattern) if wild else None), at


def _quoted(line: str, at: int) -> tuple[str, int]:
    """Return the text between the quote at a place and its end, and the place after it."""
    quote = line[at]
    end = line.find(quote, at + 1)
    while quote == '"' and end > 0 and line[end - 1] == "\\":
        end = line.find(quote, end + 1)
    if end < 0:
        raise CommandError(f"the quote {quote} is not closed")
    inside = line[at + 1 : end]
    if quote == '"':
        if re.search(r"`|\$[\w({]", inside):
            raise CommandError("variables and substitutions are not available")
        inside = re.sub(r'\\(["\\$`])', r"\1", inside)
    return inside, end + 1
