"""How edits are applied to a checkout: an operation changes one file, and refuses when it finds nothing to change."""

import ast
from collections.abc import Callable
from pathlib import Path

type Operation = Callable[[Path], None]
"""Given the root of a checkout."""


def swap(path: str, old: str, new: str) -> Operation:
    """Replace a text that occurs exactly once."""

    def apply(root: Path) -> None:
        text = (root / path).read_text()
        if text.count(old) != 1:
            raise ValueError(f"{path} has {old!r} {text.count(old)} times; the edit needs it once")
        (root / path).write_text(text.replace(old, new))

    return apply


def append(path: str, text: str) -> Operation:
    """Add text at the end; the file may be new."""

    def apply(root: Path) -> None:
        before = (root / path).read_text() if (root / path).exists() else ""
        (root / path).write_text(before + text)

    return apply


def reformat(path: str) -> Operation:
    """Write the file as `ast.unparse` would: other line breaks, other quotes, no comment left."""
    return lambda root: _write_changed(root / path, ast.unparse(ast.parse((root / path).read_text())) + "\n")


def reword(path: str) -> Operation:
    """Change the words of the module's docstring."""
    return lambda root: _write_changed(root / path, (root / path).read_text().replace('"""', '"""Reworded: ', 1))


def to_the_end(path: str, function: str) -> Operation:
    """Move a top-level function to the end of its file."""

    def apply(root: Path) -> None:
        lines = (root / path).read_text().splitlines(keepends=True)
        tree = ast.parse("".join(lines))
        node = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)
        assert node.end_lineno is not None
        start, end = node.lineno - 1, node.end_lineno
        _write_changed(root / path, "".join([*lines[:start], *lines[end:], "\n\n", *lines[start:end]]))

    return apply


def _write_changed(path: Path, text: str) -> None:
    if path.read_text() == text:
        raise ValueError(f"{path} would not change")
    path.write_text(text)
