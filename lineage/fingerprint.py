"""Code fingerprint of a stage: its module and every project module that it imports, formatting and comments aside.

The stage version says what a person meant; the fingerprint says what the code was. When the second changes without the
first, a reuse is reported as *drift* (DESIGN, section 3) instead of silently trusted or silently recomputed.
"""

import ast
import hashlib
import importlib.util
from functools import lru_cache
from pathlib import Path

from lineage.digests import DIGEST_CHARS

PROJECT_PACKAGES = frozenset(
    {"lineage", "datakit", "trainer", "evals", "recipes", "marin_assets", "resources", "sensors", "jobs", "partitions"}
)


def code_fingerprint(module_name: str) -> str:
    """Digest over the syntax trees of `module_name` and its project imports, docstrings removed, 32 hex characters."""
    state = hashlib.sha256()
    for name in sorted(_project_closure(module_name)):
        state.update(f"{name}\n{_syntax(_module_path(name))}\n".encode())
    return state.hexdigest()[:DIGEST_CHARS]


def _project_closure(module_name: str) -> set[str]:
    found: set[str] = set()
    pending = [module_name]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += _project_imports(_module_path(name))
    return found


@lru_cache(maxsize=1024)
def _module_path(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ValueError(f"module {name!r} has no source file to fingerprint")
    return Path(spec.origin)


@lru_cache(maxsize=1024)
def _project_imports(path: Path) -> tuple[str, ...]:
    """Absolute project modules that a file imports (the project has no relative imports)."""
    names: list[str] = []
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            names += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            names.append(statement.module)
            names += [f"{statement.module}.{alias.name}" for alias in statement.names]
    return tuple(name for name in names if name.split(".")[0] in PROJECT_PACKAGES and _is_module(name))


@lru_cache(maxsize=4096)
def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # `package.module.attribute`: its parent is a module, not a package
        return False


@lru_cache(maxsize=1024)
def _syntax(path: Path) -> str:
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and node.body and _is_docstring(node.body[0]):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
    )
