"""What a module's syntax says that it may read or run besides its imports: files that it names, scripts, computed modules.

Names are matched against files that exist, so a string that is no file's name costs nothing. What is left out and why:
docs/design/drift.md.
"""

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from lineage.names import PART_BYTES

PATH_CHARS = 4096
"""Longest path that Linux accepts."""
_PLACE = re.compile(r"\0+")
"""Replaces the computed part of a text."""
IMPORTERS = frozenset({"import_module", "__import__", "run_module"})
_BY_NAME = IMPORTERS | {"run_path", "find_spec", "spec_from_file_location", "modules"}
"""Functions that find a module by its name as text. A file that uses one may give it any text of the file."""
_OPTION = re.compile(r"(?:^|\s)-m\s+([\w.]+)")
_LEAST_KNOWN = 3
"""Characters of a name that must be known before its computed rest is taken for anything."""


type Nodes = Mapping[type[ast.AST], Sequence[Any]]
"""Nodes of a tree by their type, so that a question about a few types does not look at all nodes."""


def nodes_of(tree: ast.Module) -> Nodes:
    """Return every node of a tree except contexts (`ast.Load`)."""
    nodes, pending = defaultdict[type[ast.AST], list[Any]](list), list[ast.AST]([tree])
    while pending:
        node = pending.pop()
        kind = type(node)
        nodes[kind].append(node)
        for name in kind._fields:
            value = getattr(node, name, None)
            if type(value) is list:
                pending += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                pending.append(value)
    return nodes


def of_types(nodes: Nodes, *types: type[ast.AST]) -> Iterator[Any]:
    """Yield the nodes of exactly these types."""
    return itertools.chain.from_iterable(nodes.get(each, ()) for each in types)


def text_of(node: ast.expr, constants: Mapping[str, str]) -> str | None:
    """Return a text with `\\0` for what is computed: of a constant, an f-string, a sum, or a name in `constants`; else None."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part, constants) or "\0" for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return text_of(node.value, constants) or "\0"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        left, right = text_of(node.left, constants), text_of(node.right, constants)
        if left is None and right is None:
            return None
        if isinstance(node.op, ast.Mod):
            return None if left is None else re.sub(r"%\w", "\0", left)
        return (left or "\0") + (right or "\0")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _text_of_method(node.func, node.args, constants)
    return None


def _text_of_method(function: ast.Attribute, arguments: list[ast.expr], constants: Mapping[str, str]) -> str | None:
    """Return the text of `"a.{}".format(...)` and of `".".join([...])`."""
    text = text_of(function.value, constants)
    if text is None:
        return None
    if function.attr == "format":
        return re.sub(r"\{[^{}]*\}", "\0", text)
    if function.attr == "join" and len(arguments) == 1 and isinstance(arguments[0], ast.List | ast.Tuple):
        return text.join(text_of(part, constants) or "\0" for part in arguments[0].elts)
    return None


def texts_at_the_top(tree: ast.Module) -> dict[str, str]:
    """Return the names that are bound to a text at the top level."""
    texts = {}
    for statement in tree.body:
        value = getattr(statement, "value", None)
        if (
            isinstance(statement, ast.Assign | ast.AnnAssign)
            and isinstance(value, ast.Constant)
            and isinstance(value.value, str)
        ):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            texts |= {target.id: value.value for target in targets if isinstance(target, ast.Name)}
    return texts


def called_modules(nodes: Nodes, constants: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of modules that are imported or run by name: `import_module(...)`, and `-m NAME` in a command."""
    for node in of_types(nodes, ast.Call):
        if node.args:
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in IMPORTERS and (text := text_of(node.args[0], constants)) is not None:
                yield text
    for node in of_types(nodes, ast.List, ast.Tuple):
        texts = [text_of(element, constants) for element in node.elts]
        yield from (name for option, name in itertools.pairwise(texts) if option == "-m" and name is not None)


def module_texts(nodes: Nodes, constants: Mapping[str, str]) -> Iterator[str]:
    """Yield texts that may be a module's name and reach what imports it in another way: by a keyword, a name, a table, a
    default, or as a part of a command. Those that name no module of the project mean nothing."""
    for node in of_types(nodes, ast.Constant):
        if isinstance(node.value, str) and "-m" in node.value:
            yield from _OPTION.findall(node.value)
    if _mentions_importers(nodes):
        expressions = (node for kind, each in nodes.items() if issubclass(kind, ast.expr) for node in each)
        texts = (text_of(node, constants) for node in expressions)
        yield from (text for text in texts if text and _is_dotted(text))


def _mentions_importers(nodes: Nodes) -> bool:
    """Whether a node names what finds a module by a text, under any name that it gets."""
    return (
        any(node.id in _BY_NAME for node in of_types(nodes, ast.Name))
        or any(node.attr in _BY_NAME for node in of_types(nodes, ast.Attribute))
        or any(node.name.rpartition(".")[2] in _BY_NAME for node in of_types(nodes, ast.alias))
    )


def _is_dotted(text: str) -> bool:
    return "." in text and all(part.replace("\0", "x").isidentifier() for part in text.lstrip(".").split("."))


def named_files(nodes: Nodes, constants: Mapping[str, str]) -> frozenset[str]:
    """Return every text that may be the name of a file or a path, computed parts as `\\0`."""
    texts = {text_of(node, constants) for node in of_types(nodes, ast.Constant, ast.JoinedStr, ast.BinOp, ast.Call)}
    lines = [text for text in texts if text and "\n" not in text]
    scripts = [part for text in lines for part in text.split() if part.endswith((".py", ".sh"))]  # of a command in one text
    return frozenset(text for text in (*lines, *scripts) if len(_PLACE.sub("", text)) >= _LEAST_KNOWN)


@lru_cache(maxsize=1024)
def matching_files(path: Path, texts: frozenset[str], repository: Path) -> tuple[Path, ...]:
    """Return the files that a module may mean: beside it or below its folder, below `data/` if it names that folder, or a path
    from the repository's root."""
    index = dict(_below(path.parent))
    if any(text == "data" or text.startswith("data/") for text in texts):
        index |= _below(repository / "data")
    matches = set()
    for text in texts:
        name = text.rsplit("/", 1)[-1]
        if "\0" in name:
            if len(_PLACE.sub("", name)) >= _LEAST_KNOWN:
                pattern = re.compile(".*".join(map(re.escape, _PLACE.split(name))))
                matches |= {each for other, paths in index.items() if pattern.fullmatch(other) for each in paths}
        else:
            matches |= set(index.get(name, ()))
        if "/" in text and "\0" not in text and not text.startswith("/") and ".." not in text and _could_be_path(text):
            whole = repository / text
            matches |= {whole} if whole.is_file() else set()
    return tuple(sorted(matches - {path}))


def _could_be_path(text: str) -> bool:
    """Whether Linux takes a text as a path: a pattern or a sentence in the code may be longer than any file's name."""
    return len(text) < PATH_CHARS and all(len(part.encode(errors="replace")) <= PART_BYTES for part in text.split("/"))


def matching_modules(name: str, repository: Path) -> list[str]:
    """Return the project's modules whose name fits one with computed parts, if its package is known."""
    if "\0" not in name:
        return [name]
    top = name.partition(".")[0]
    if "\0" in top or not (repository / top).is_dir():
        return []
    pattern = re.compile(".*".join(map(re.escape, _PLACE.split(name))))
    names = (".".join(path.relative_to(repository).with_suffix("").parts) for path in (repository / top).rglob("*.py"))
    return sorted(each for each in names if pattern.fullmatch(each))


@lru_cache(maxsize=512)
def _below(folder: Path) -> Mapping[str, tuple[Path, ...]]:
    """Files below a folder by name, without caches. Python files count beside the module only: others are found by import."""
    by_name: dict[str, tuple[Path, ...]] = {}
    for path in sorted(folder.rglob("*")):
        if "__pycache__" in path.parts or (path.suffix in (".py", ".pyc") and path.parent != folder) or not path.is_file():
            continue
        if path.suffix != ".pyc" and path.name != "__init__.py":
            by_name[path.name] = (*by_name.get(path.name, ()), path)
    return by_name
