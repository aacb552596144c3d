"""Code fingerprint of a stage: its module and every project module that it imports, formatting and comments aside.

The stage version says what a person meant; the fingerprint says what the code was, and beside it stand the versions of the
third-party packages that this code imports. When one of them changes without the stage version, a reuse is reported as *drift*
(DESIGN, section 3) instead of silently trusted or silently recomputed. It errs to the safe side: whatever may change bytes
changes the fingerprint, and `marin verify` clears what did not (`docs/design/drift.md` says what neither of them sees).
"""

import ast
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from lineage.digests import DIGEST_CHARS, file_digest, identity_digest
from lineage.packages import distribution_of, installed_versions

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT_PACKAGES = frozenset(
    {"lineage", "datakit", "trainer", "evals", "recipes", "marin_assets", "resources", "sensors", "jobs", "partitions"}
)
DRAWING_PACKAGES = frozenset({"rich"})
"""They draw progress bars, in lineage/progress.py and datakit/download.py, and are no code that bytes come from."""

CODE_FINGERPRINT = "code_fingerprint"
"""What a fingerprint of code is called wherever a manifest tells one."""

WRITING = "lineage.writing"
"""Every artifact is written by it, though no stage imports it: it decides which of a stage's files are the artifact's."""

_FILE_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)+")
_IMPORTERS = frozenset({"import_module", "__import__", "run_module"})
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Code:
    """What a stage is made of today: the fingerprint of its own code, and versions of Python and the packages it imports."""

    fingerprint: str
    packages: Mapping[str, str]

    @property
    def id(self) -> str:
        """Digest of both, 32 hex characters: under it evidence is filed."""
        return identity_digest([self.fingerprint, dict(self.packages)])


def stage_code(module_name: str) -> Code:
    """The code of a stage by the name of its module (`Stage.module`), as this checkout and this Python have it.

    Files are read once a process, as Python reads them: what runs is what was there when it started.
    """
    return Code(code_fingerprint(module_name), installed_versions(imported_distributions(module_name)))


@cache
def code_fingerprint(module_name: str) -> str:
    """Digest over `code_closure`: syntax trees of Python, bytes of other files, imported constants; 32 hex characters."""
    closure = code_closure(module_name)
    state = hashlib.sha256()
    for name, path in sorted(closure.files.items()):
        state.update(f"{name}\n{_facts(path).syntax if path.suffix == '.py' else file_digest(path)}\n".encode())
    for name, value in sorted(closure.constants.items()):
        state.update(f"{name} = {value}\n".encode())
    return state.hexdigest()[:DIGEST_CHARS]


def imported_distributions(module_name: str) -> frozenset[str]:
    """Distributions of the third-party packages that a module's closure imports, inside functions too."""
    paths = [path for path in code_closure(module_name).files.values() if path.suffix == ".py"]
    names = {name for path in paths for name in _facts(path).third_party}
    return frozenset(distribution_of(name) for name in names - DRAWING_PACKAGES)


@dataclass(frozen=True)
class Closure:
    """What a module's code is: files by module name (`module:file` for one that a module names), and constants by name."""

    files: Mapping[str, Path]
    constants: Mapping[str, str]


@cache
def code_closure(module_name: str) -> Closure:
    """A module and what writes its artifact, the packages they lie in, what they import of the project, and files they name.

    Of a module that is imported for constants alone (the name of a file, a version) only these are taken: importing runs no
    work here. Modules are found as files, never imported: asking Python about `trainer.train.train` would import JAX.
    Raises: ValueError for a module without a source file.
    """
    files: dict[str, Path] = {}
    constants: dict[str, str] = {}
    pending = [module_name, *([WRITING] if _module_path(WRITING) is not None else [])]
    while pending:
        name = pending.pop()
        if name in files:
            continue
        path = _module_path(name)
        if path is None:
            raise ValueError(f"module {name!r} has no source file to fingerprint")
        files[name] = path
        pending += [parent for parent in _parents(name) if _module_path(parent) is not None]
        if path.suffix != ".py":
            continue
        for beside in sorted(path.parent / called for called in _facts(path).file_names):
            if beside.suffix == ".py" and beside.is_file():
                pending.append(f"{_package(name, path)}.{beside.stem}")
            elif beside.is_file():
                files[f"{name}:{beside.name}"] = beside
        for dots, module, imported in _facts(path).imports:
            base = _absolute(dots, module, name, path)
            if base.split(".")[0] not in PROJECT_PACKAGES:
                continue
            whole = f"{base}.{imported}" if imported else base
            found = _module_path(base)
            if _module_path(whole) is not None:
                pending.append(whole)
            elif found is not None and imported in _facts(found).literals:
                constants[whole] = _facts(found).literals[imported]
            elif found is not None:
                pending.append(base)
    return Closure(files, constants)


@dataclass(frozen=True)
class _Facts:
    """What a file says. Trees are large and slow to make, so a file is parsed once and only this is kept of it."""

    imports: tuple[tuple[int, str, str], ...]
    """(dots, module, name in it or "")"""
    third_party: frozenset[str]
    """Import names."""
    file_names: frozenset[str]
    """What may be names of files."""
    literals: Mapping[str, str]
    """Names that get one plain value (numbers, text, tuples of them) at the top level, and the value's syntax."""
    syntax: str
    """The syntax tree as text, without docstrings, imports that stand together in one order."""


@lru_cache(maxsize=1024)
def _facts(path: Path) -> _Facts:
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    imports = tuple(dict.fromkeys(_imports(nodes)))
    top = {module.split(".")[0] for dots, module, _ in imports if not dots}
    constants = {n.value for n in nodes if type(n) is ast.Constant and isinstance(n.value, str)}
    literals = _literals(tree)
    return _Facts(
        imports,
        frozenset(top - PROJECT_PACKAGES - sys.stdlib_module_names),
        frozenset(text for text in constants if _FILE_NAME.fullmatch(text)),
        literals,
        _syntax(tree, nodes),
    )


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.level, node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in _IMPORTERS and isinstance(node.args[0].value, str):
                yield 0, node.args[0].value, ""


def _literals(tree: ast.Module) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        value = getattr(statement, "value", None)
        plain = value is not None and all(isinstance(n, ast.Constant | ast.Tuple | ast.Load) for n in ast.walk(value))
        for target in targets:
            if isinstance(target, ast.Name):
                found.setdefault(target.id, []).append(ast.dump(value) if plain and value is not None else "")
    return {name: values[0] for name, values in found.items() if len(values) == 1 and values[0]}


def _absolute(dots: int, module: str, name: str, path: Path) -> str:
    if not dots:
        return module
    base = _package(name, path).split(".")
    base = base[: len(base) - dots + 1]
    return ".".join([*base, module] if module else base)


def _package(name: str, path: Path) -> str:
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


def _parents(name: str) -> list[str]:
    """Packages whose `__init__` runs before a project module does."""
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))] if parts[0] in PROJECT_PACKAGES else []


@lru_cache(maxsize=4096)
def _module_path(name: str) -> Path | None:
    """Source file of a module, or None when the name is none (a function inside a module, say)."""
    if name.split(".")[0] in PROJECT_PACKAGES:
        base = REPOSITORY.joinpath(*name.split("."))
        return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)
    loaded = sys.modules.get(name)
    return Path(loaded.__file__) if loaded is not None and loaded.__file__ else None


def _syntax(tree: ast.Module, nodes: Iterable[ast.AST]) -> str:
    """Changes the tree."""
    for node in nodes:
        if isinstance(node, _DOCUMENTED) and node.body and _is_docstring(node.body[0]):
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(body := getattr(node, "body", None), list):
            _sort_imports(body)
    return ast.dump(tree)


def _sort_imports(body: list[ast.stmt]) -> None:
    """Sort runs of import statements in place: what they bring is the same in any order, and formatters choose theirs."""
    start = 0
    for end in range(len(body) + 1):
        if end < len(body) and isinstance(body[end], ast.Import | ast.ImportFrom):
            continue
        for statement in body[start:end]:
            assert isinstance(statement, ast.Import | ast.ImportFrom)
            if len(statement.names) > 1:
                statement.names.sort(key=ast.dump)
        if end - start > 1:
            body[start:end] = sorted(body[start:end], key=ast.dump)
        start = end + 1


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
    )
