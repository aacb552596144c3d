"""The constants of a module: names that have one plain value however the module is run (`lineage.trust.fingerprint`)."""

import ast
from collections import Counter
from collections.abc import Iterator

from lineage.trust.code_files import Nodes, of_types

_NAMESPACES = frozenset({"globals", "locals", "vars", "exec", "eval", "setattr", "__dict__", "__setattr__"})
"""What can bind a name that does not occur in the syntax."""


def plain_constants(tree: ast.Module, nodes: Nodes) -> dict[str, str]:
    """Return the names that can have one value only, however the module is run.

    A module that does something when it is imported (a bare call, an assignment to another object's attribute), or that can
    reach its names by their text, has none, so it counts whole. A name that is bound anywhere else, in an `if`, a `try`, a
    tuple, a loop, by a definition or an import, has several values.
    """
    if any(_acts(statement) for statement in tree.body) or _reaches_names(nodes):
        return {}
    stored = Counter(_bound(nodes))
    dumps: dict[str, list[str]] = {}
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        value = getattr(statement, "value", None)
        plain = value is not None and all(isinstance(n, ast.Constant | ast.Tuple | ast.Load) for n in ast.walk(value))
        for target in targets:
            if isinstance(target, ast.Name):
                dumps.setdefault(target.id, []).append(ast.dump(value) if plain and value is not None else "")
    return {name: values[0] for name, values in dumps.items() if len(values) == 1 and values[0] and stored[name] == 1}


def _bound(nodes: Nodes) -> Iterator[str]:
    """Yield each name that a node binds, at any depth, as often as it is bound."""
    yield from (node.id for node in of_types(nodes, ast.Name) if not isinstance(node.ctx, ast.Load))
    yield from (node.asname or node.name.split(".")[0] for node in of_types(nodes, ast.alias))
    yield from (node.rest for node in of_types(nodes, ast.MatchMapping) if node.rest)
    binds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
    yield from (node.name for node in of_types(nodes, *binds) if node.name)


def _reaches_names(nodes: Nodes) -> bool:
    """Whether a node may bind a name of its module by its text, or by all names of another module."""
    return (
        any(node.id in _NAMESPACES for node in of_types(nodes, ast.Name))
        or any(node.attr in _NAMESPACES for node in of_types(nodes, ast.Attribute))
        or any(node.name == "*" for node in of_types(nodes, ast.alias))
    )


def _acts(statement: ast.stmt) -> bool:
    """Whether a top-level statement, or one in its blocks, may do more than bind names of its own module."""
    if isinstance(statement, ast.If | ast.Assert) and any(isinstance(node, ast.Call) for node in ast.walk(statement.test)):
        return True
    if isinstance(statement, ast.If | ast.Try | ast.TryStar | ast.Match | ast.ClassDef):
        blocks = [getattr(statement, field, []) for field in ("body", "orelse", "finalbody")]
        within = [*(part.body for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", []))), *blocks]
        return any(_acts(each) for block in within for each in block)
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return any(isinstance(node, ast.Attribute | ast.Subscript) for target in targets for node in ast.walk(target))
    return isinstance(statement, ast.For | ast.While | ast.With | ast.Delete)
