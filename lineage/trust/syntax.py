"""A module's syntax as text, without what cannot change the bytes of an artifact (`lineage.trust.fingerprint`)."""

import ast
from collections.abc import Callable

from lineage.project import PREFIX
from lineage.trust.code_files import IMPORTERS, Nodes, of_types

_ABSENT = object()
_BLOCKS = frozenset({"body", "orelse", "finalbody"})
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def syntax_text(tree: ast.Module, nodes: Nodes, is_ours: Callable[[object], bool]) -> str:
    """Return the syntax tree as text, and strip the tree in place of what decides nothing: docstrings, log lines, types of
    arguments and local names. Adjacent imports come in one order; those of the project are marked.
    """
    for node in of_types(nodes, ast.FunctionDef, ast.AsyncFunctionDef):
        _drop_annotations(node)
        _drop_local_annotations(node)
    for node in of_types(nodes, *_DOCUMENTED):
        if node.body and _is_docstring(node.body[0]):
            node.body = node.body[1:] or [ast.Pass()]
    for node in of_types(nodes, *(kind for kind in nodes if _BLOCKS.intersection(kind._fields))):
        for field in _BLOCKS.intersection(node._fields):
            if isinstance(body := getattr(node, field), list):
                body[:] = [one for one in body if not _is_log_line(one)] or ([ast.Pass()] if body else [])
                _normalize_imports(body, is_ours)
    for node in of_types(nodes, ast.Call):
        if (called := _called_module(node)) is not None:
            text = str(called.value)
            name = text.lstrip(".")
            if name != text or is_ours(name):
                called.value = f"§{len(text) - len(name)}§{name}§§"
    return dumped(tree)


def dumped(node: object) -> str:
    """Return what `ast.dump` returns, in two thirds of its time. Its text is part of every recorded fingerprint."""
    if isinstance(node, ast.AST):
        kind, parts = type(node), []
        for name in kind._fields:
            value = getattr(node, name, _ABSENT)
            if value is not _ABSENT and not (value is None and getattr(kind, name, _ABSENT) is None):
                parts.append(f"{name}={dumped(value)}")
        return f"{kind.__name__}({', '.join(parts)})"
    if type(node) is list:
        return f"[{', '.join(map(dumped, node))}]"
    return repr(node)


def _drop_annotations(function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Types of arguments decide nothing when code runs; those of a dataclass's fields do (`lineage.config` reads them)."""
    function.returns = None
    arguments = function.args
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if one is not None:
            one.annotation = None


def _drop_local_annotations(block: ast.AST) -> None:
    """Write `x: int = 3` in a function as `x = 3`, in place: types of local names are not even evaluated. Those in a class are
    its fields, and a bare `x: int` makes the name local, so both stay."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        if not isinstance(within := getattr(block, field, None), list):
            continue
        for at, one in enumerate(within):
            if isinstance(one, ast.AnnAssign) and one.simple and one.value is not None:
                within[at] = ast.Assign([one.target], one.value)
            elif not isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                _drop_local_annotations(one)


def _is_log_line(statement: object) -> bool:
    """Whether a statement is only `log.info(...)`: messages are no bytes of an artifact. One with a walrus, an await
    or a yield in it could do something, so it stays."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    is_log = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and _is_name(call.func.value, "log")
    acts = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
    return is_log and not any(isinstance(node, acts) for node in ast.walk(statement))  # pyrefly: ignore


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _normalize_imports(body: list[ast.stmt], is_ours: Callable[[object], bool]) -> None:
    """Write one statement per name and sort runs of them in place: the order changes nothing, and formatters choose theirs.

    Those of the project are sorted by the name that they bind, which a move of the module does not change.
    """
    if not any(isinstance(statement, (ast.Import, ast.ImportFrom)) for statement in body):
        return
    result: list[ast.stmt] = []
    run: list[tuple[str, ast.stmt]] = []
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            run += [_one_import(statement, alias, is_ours) for alias in statement.names]
            continue
        result += [one for _, one in sorted(run, key=lambda pair: pair[0])]
        result.append(statement)
        run = []
    body[:] = [*result, *(one for _, one in sorted(run, key=lambda pair: pair[0]))]


def _one_import(
    statement: ast.Import | ast.ImportFrom, alias: ast.alias, is_ours: Callable[[object], bool]
) -> tuple[str, ast.stmt]:
    """What it is sorted by, and the import of one name alone."""
    if isinstance(statement, ast.Import):
        one, dots, module, imported = ast.Import([alias]), 0, alias.name.removeprefix(PREFIX), ""
    else:
        one, dots = ast.ImportFrom(statement.module, [alias], statement.level), statement.level
        module = (statement.module or "").removeprefix(PREFIX)
        imported = alias.name
    if not dots and not is_ours(module):
        return ast.dump(one), one
    bound = alias.asname or imported or module.split(".")[0]
    return bound, ast.ImportFrom(f"§{dots}§{module}§{imported}§", [ast.alias("_", bound)], 0)


def _called_module(call: ast.Call) -> ast.Constant | None:
    """Return the `"a.b"` of `import_module("a.b")`, or the `".b"` of `import_module(".b", __package__)`."""
    first = call.args[0] if call.args else None
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    named = function in IMPORTERS and isinstance(first, ast.Constant) and isinstance(first.value, str)
    return first if named and isinstance(first, ast.Constant) else None


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
    )
