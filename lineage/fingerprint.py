"""Code fingerprint of a stage: its module and every project module that it imports, formatting and comments aside.

The stage version says what a person meant; the fingerprint says what the code was. When the second changes without the
first, a reuse is reported as *drift* (DESIGN, section 3) instead of silently trusted or silently recomputed.
"""

import ast
import hashlib
import sys
from functools import lru_cache
from pathlib import Path

from lineage.digests import DIGEST_CHARS

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT_PACKAGES = frozenset(
    {"lineage", "datakit", "trainer", "evals", "recipes", "marin_assets", "resources", "sensors", "jobs", "partitions"}
)


def code_fingerprint(module_name: str) -> str:
    """Digest over the syntax trees of `module_name` and its project imports, docstrings removed, 32 hex characters.

    Modules are found as files, never imported: asking the import system about `trainer.train.train` would import JAX.
    """
    state = hashlib.sha256()
    for name, path in sorted(_project_closure(module_name).items()):
        state.update(f"{name}\n{_syntax(path)}\n".encode())
    return state.hexdigest()[:DIGEST_CHARS]


def _project_closure(module_name: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    pending = [module_name]
    while pending:
        name = pending.pop()
        if name not in found:
            path = _module_path(name)
            if path is None:
                raise ValueError(f"module {name!r} has no source file to fingerprint")
            found[name] = path
            pending += _project_imports(path)
    return found


@lru_cache(maxsize=4096)
def _module_path(name: str) -> Path | None:
    """Source file of a module, or None when the name is none (a function inside a module, say)."""
    if name.split(".")[0] in PROJECT_PACKAGES:
        base = REPOSITORY.joinpath(*name.split("."))
        return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)
    loaded = sys.modules.get(name)
    return Path(loaded.__file__) if loaded is not None and loaded.__file__ else None


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
    return tuple(n for n in names if n.split(".")[0] in PROJECT_PACKAGES and _module_path(n) is not None)


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
