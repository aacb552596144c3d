"""Translate regular expressions of POSIX, which grep and sed use, into Python's. Imports the standard library only."""

import re


def python_pattern(text: str, extended: bool) -> str:
    """Translate a POSIX regular expression, basic or extended, into Python's."""
    classes = {"space": r"\s", "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z",
               "punct": r"!-/:-@\[-`{-~", "blank": r" \t", "word": r"\w"}  # fmt: skip
    text = re.sub(r"\[:(\w+):\]", lambda named: classes.get(named[1], named[0]), text)
    if extended:
        return text.replace(r"\<", r"\b").replace(r"\>", r"\b")
    parts, at, in_set = [], 0, False
    while at < len(text):
        letter = text[at]
        if in_set:
            in_set = letter != "]" or parts[-1] in ("[", "[^")
            parts.append("\\\\" if letter == "\\" and text[at : at + 2] not in (r"\s", r"\t", r"\w", r"\[") else letter)
        elif letter == "\\" and at + 1 < len(text):
            at += 1
            parts.append({"<": r"\b", ">": r"\b"}.get(text[at], text[at] if text[at] in "(){}|+?" else "\\" + text[at]))
        elif letter == "[":
            in_set = True
            parts.append("[^" if text[at + 1 : at + 2] == "^" else "[")
            at += text[at + 1 : at + 2] == "^"
        elif letter == "*" and not parts:
            parts.append(r"\*")
        else:
            parts.append("\\" + letter if letter in "(){}|+?" else letter)
        at += 1
    return "".join(parts)
