"""Code fingerprint of a stage: its module and every project module that it imports, without formatting and comments.

The stage version says what a person means; the fingerprint says what the code is. The versions of third-party packages that
the code imports are recorded beside it. If one of them changes and the stage version does not, a reuse is reported as *drift*,
not silently trusted or recomputed. It errs on the safe side: whatever may change bytes changes the fingerprint, and `marin
verify` clears harmless changes. `docs/design/drift.md` lists what neither of them sees.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate, chain
from pathlib import Path

from lineage.artifact.packages import distribution_of, installed_versions
from lineage.memory import without_collections
from lineage.project import CODE, PREFIX
from lineage.storage.digests import DIGEST_CHARS, file_digest, identity_digest
from lineage.trust.code_files import (
    Nodes,
    called_modules,
    matching_files,
    matching_modules,
    module_texts,
    named_files,
    nodes_of,
    of_types,
    texts_at_the_top,
)
from lineage.trust.constants import plain_constants
from lineage.trust.syntax import syntax_text

REPOSITORY = CODE
PROJECT_PACKAGES = frozenset(
    {
        "lineage",
        "datakit",
        "trainer",
        "serving",
        "evals",
        "recipes",
        "marin_assets",
        "resources",
        "sensors",
        "jobs",
        "partitions",
        "scenarios",
        "standards",
        "post_training",
        "science",
        "operations",
    }
)
QUIET: Mapping[str, str] = {
    "lineage.trust.gate": "says whether work may start",
    "lineage.trust.fingerprint": "says which code it was",
    "lineage.artifact.newest": "finds what a person typed",
    "lineage.artifact.locate": "finds what a person typed",
    "lineage.artifact.made_by": "says who made it",
    "lineage.artifact.packages": "says with which packages",
    "lineage.artifact.trash": "marks what a purge may bring back",
    "lineage.artifact.verified": "refuses bytes that changed",
    "lineage.commit_log.entries.announce": "tells others of a commit",
    "lineage.commit_log.entries.announce_deletion": "tells others of a deletion",
    "lineage.jobs.child_processes": "starts jobs",
    "lineage.jobs.regions": "refuses reads from far away",
    "lineage.names": "refuses names that lead elsewhere",
    "lineage.private_files": "keeps keys",
    "lineage.signing": "signs what is committed",
    "lineage.project": "says where the code lies",
    "lineage.messages": "tells how far work is",
    "lineage.progress": "draws how far work is",
    "lineage.shards.cores": "chooses a core for a worker",
    "lineage.shards.measure": "measures seconds and memory",
    "lineage.shards.oom_kills": "says why a worker died",
    "lineage.trust.verdict_log": "keeps what people say of an artifact",
    "serving.server.metrics": "counts requests",
    "trainer.faults": "kills what a test names",
    "trainer.picture": "draws beside a checkpoint, for a person at a terminal",
    "trainer.profiling": "measures",
    "trainer.progress": "tells how far a run is",
    "trainer.records": "copies metrics elsewhere",
    "trainer.resume_checks": "refuses a run with other inputs",
    "trainer.spec.checks": "refuses a config",
    "trainer.trackers": "sends metrics elsewhere",
}
"""Modules, and names in modules, that watch or refuse work and decide no byte of an artifact: they, and what only they import,
are no stage's code. A module that some stage asks for an answer is not one of them (`lineage.commit_log`: an audit asks it)."""
DRAWING_PACKAGES = frozenset({"rich"})
"""They draw progress bars (lineage/progress.py, datakit/sources/download.py); no bytes of artifacts come from them."""

CODE_FINGERPRINT = "code_fingerprint"
"""Name of a code fingerprint in manifests."""

WRITING = "lineage.writing.write"
"""The module that writes every artifact, though no stage imports it: it decides which files of a stage are committed."""

_IMPORT_MARK = re.compile(r"§(\d+)§([\w.]*)§(\w*|\*)§")
"""An import of the project in `_Facts.syntax`: dots, module, name in it."""
_NO_CODE = frozenset(ast.dump(ast.parse(text)) for text in ("", "pass"))


@dataclass(frozen=True)
class Code:
    """The code of a stage today: its fingerprint, and the versions of Python and of the packages that it imports."""

    fingerprint: str
    packages: Mapping[str, str]

    @property
    def id(self) -> str:
        """Digest of both, 32 hex characters: evidence is stored under it."""
        return identity_digest([self.fingerprint, dict(self.packages)])


def stage_code(module_name: str) -> Code:
    """Return the code of a stage by its module name (`Stage.module`), in this checkout or wheel and this Python.

    Names of modules count as in a checkout, so the wheel of a commit has the same fingerprints.
    Files are read once in a process, like Python's imports.
    """
    with without_collections():
        return Code(code_fingerprint(module_name), installed_versions(imported_distributions(module_name)))


@cache
def code_fingerprint(module_name: str) -> str:
    """Return the digest over `code_closure`: syntax trees of Python and bytes of other files; 32 hex characters.

    Where a module lies does not count: an imported module counts in its importer by content, and digests are sorted by value.
    A module without code (the `__init__` of a subpackage, say) adds nothing.
    """
    files = code_closure(module_name).files
    contents: dict[str, str] = {}
    digests = {
        _content(name, path, contents) if path.suffix == ".py" else file_digest(path)
        for name, path in sorted(files.items())
        if path.suffix != ".py" or _facts(path).syntax not in _NO_CODE
    }
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()[:DIGEST_CHARS]


def _content(name: str, path: Path, contents: dict[str, str]) -> str:
    """Return the digest of a module's syntax, in which each import of the project is replaced by the content that it brings.

    `contents` keeps digests by module name. A module that imports itself in a circle counts there without its imports; the
    project has no circle (tests/test_imports.py).
    """
    if name in contents:
        return contents[name]
    syntax = _facts(path).syntax
    contents[name] = hashlib.sha256(_IMPORT_MARK.sub("", syntax).encode()).hexdigest()

    def brought(mark: re.Match[str]) -> str:
        dots, module, imported = mark.groups()
        base = _absolute(int(dots), module, name, path)
        whole = f"{base}.{imported}" if imported else base
        if _is_quiet(whole):
            return whole
        if (target := _module_path(whole)) is not None:
            return _content(whole, target, contents)
        if (target := _module_path(base)) is None:
            return whole
        literal = _facts(target).literals.get(imported)
        return f"{imported} = {literal}" if literal else f"{imported} of {_content(base, target, contents)}"

    contents[name] = hashlib.sha256(_IMPORT_MARK.sub(brought, syntax).encode()).hexdigest()
    return contents[name]


def imported_distributions(module_name: str) -> frozenset[str]:
    """Return the distributions of the third-party packages that a module's closure imports, inside functions too."""
    paths = [path for path in code_closure(module_name).files.values() if path.suffix == ".py"]
    names = {name for path in paths for name in _facts(path).third_party}
    return frozenset(distribution_of(name) for name in names - DRAWING_PACKAGES)


@dataclass(frozen=True)
class Closure:
    """The code of a module: files by module name (`module:file` for a file that a module names), and constants by name."""

    files: Mapping[str, Path]
    constants: Mapping[str, str]


@cache
def code_closure(module_name: str) -> Closure:
    """Return a module, the code that writes artifacts, their packages, the project modules that they import, and files they
    name.

    Of a module that is imported for constants only (a file name, a version), only these constants count. Modules are found as
    files and never imported: asking Python about `trainer.train.train` would import JAX.
    Raises: ValueError for a module without a source file.
    """
    files: dict[str, Path] = {}
    constants: dict[str, str] = {}
    pending = [module_name.removeprefix(PREFIX), *([WRITING] if _module_path(WRITING) is not None else [])]
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
        for beside in matching_files(path, _facts(path).file_names, REPOSITORY):
            if beside.suffix == ".py" and beside.parent == path.parent:
                pending.append(f"{_package(name, path)}.{beside.stem}")
            elif beside.suffix == ".py" and _module_path(dotted := _dotted(beside)) is not None:
                pending.append(dotted)
            else:
                files[f"{name}:{beside.relative_to(REPOSITORY) if beside.is_relative_to(REPOSITORY) else beside}"] = beside
        for dots, module, imported in _facts(path).imports:
            base = _absolute(dots, module, name, path)
            whole = f"{base}.{imported}" if imported else base
            if not _is_ours(base) or _is_quiet(whole):
                continue
            module_path = _module_path(base)
            if _module_path(whole) is not None:
                pending.append(whole)
            elif module_path is not None and imported in _facts(module_path).literals:
                constants[whole] = _facts(module_path).literals[imported]
            elif module_path is not None:
                pending.append(base)
    return Closure(files, constants)


@dataclass(frozen=True)
class _Facts:
    """Facts about a file. Syntax trees are large and slow to make, so a file is parsed once and only its facts are kept."""

    imports: tuple[tuple[int, str, str], ...]
    """(dots, module, name in it or "")"""
    third_party: frozenset[str]
    """Import names."""
    file_names: frozenset[str]
    """Strings that may be file names."""
    literals: Mapping[str, str]
    """Names that get one plain value (numbers, text, tuples of them) at the top level, and the value's syntax."""
    syntax: str
    """The syntax tree as text, without docstrings, adjacent imports in one order, those of the project marked."""


@lru_cache(maxsize=1024)
def _facts(path: Path) -> _Facts:
    tree = ast.parse(path.read_text())
    nodes = nodes_of(tree)
    imports = tuple(dict.fromkeys(_imports(nodes, texts_at_the_top(tree))))
    top = {module.split(".")[0] for dots, module, _ in imports if not dots}
    literals = plain_constants(tree, nodes)
    return _Facts(
        imports,
        frozenset(name for name in top - sys.stdlib_module_names if not _is_ours(name)),
        named_files(nodes, texts_at_the_top(tree)),
        literals,
        syntax_text(tree, nodes, _is_ours),
    )


def _imports(nodes: Nodes, constants: Mapping[str, str]) -> Iterator[tuple[int, str, str]]:
    for node in of_types(nodes, ast.Import):
        yield from ((0, alias.name.removeprefix(PREFIX), "") for alias in node.names)
    for node in of_types(nodes, ast.ImportFrom):
        yield from ((node.level, (node.module or "").removeprefix(PREFIX), alias.name) for alias in node.names)
    named = (text for text in module_texts(nodes, constants) if text.startswith(".") or _is_ours(text))
    for called in (*called_modules(nodes, constants), *named):
        if name := called.lstrip("."):
            dots = len(called) - len(name)
            yield from ((dots, each, "") for each in ([name] if dots else matching_modules(name, REPOSITORY)))


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)


def _absolute(dots: int, module: str, name: str, path: Path) -> str:
    if not dots:
        return module
    base = _package(name, path).split(".")
    base = base[: len(base) - dots + 1]
    return ".".join([*base, module] if module else base)


def _package(name: str, path: Path) -> str:
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


def _parents(name: str) -> list[str]:
    """Return the packages whose `__init__` runs before a project module."""
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))] if parts[0] in PROJECT_PACKAGES else []


@lru_cache(maxsize=4096)
def _module_path(name: str) -> Path | None:
    """Return the source file of a module, or None if the name is no module (for example a function in a module)."""
    if _is_ours(name):
        base = REPOSITORY.joinpath(*name.split("."))
        sources = chain((base.with_suffix(".py"), base / "__init__.py"), _compiled(base))
        return next((path for path in sources if path.is_file()), None)
    loaded = sys.modules.get(name)
    return Path(loaded.__file__) if loaded is not None and loaded.__file__ else None


def _compiled(base: Path) -> Iterator[Path]:
    yield from sorted(base.parent.glob(f"{base.name}.*so")) if base.parent.is_dir() else []


def _is_ours(module: object) -> bool:
    """Whether a name is of one of the project's packages, or of a module at the repository's root."""
    top = module.split(".")[0] if isinstance(module, str) else ""
    return top in PROJECT_PACKAGES or (top.isidentifier() and _is_at_the_root(top))


@lru_cache(maxsize=4096)
def _is_at_the_root(module: str) -> bool:
    return (REPOSITORY / f"{module}.py").is_file()


def _is_quiet(name: str) -> bool:
    """Whether a module, or a name in one, is in `QUIET` or below it."""
    return any(above in QUIET for above in accumulate(name.split("."), "{}.{}".format))
