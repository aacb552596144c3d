"""Print the test files that the changes since `main` can affect: `python tools/affected_tests.py [SECONDS]`.

A file depends on the modules that it imports anywhere, on the modules, files and folders that its text constants name, and on
the `conftest.py` files of its folders. A test file is affected if it depends, directly or not, on a file that differs from the
common ancestor of HEAD and main. With SECONDS, files that are fewer steps from a change come first. Only files that fit into
this time on two cores are printed, by the times of earlier runs in .pytest_cache. The number of the others goes to stderr.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
IMPORT_FOLDERS = ("", "tests", "tests/lab", "tests/lineage", "tests/shell")
"""Where tests find modules, besides their own folder: `pythonpath` of pyproject.toml."""

AFFECT_ALL = frozenset({"pyproject.toml", "requirements.lock"})
SECONDS_OF_A_NEW_FILE = 5.0
"""Assumed for a file that no run has timed."""
NUM_CORES = 2
_NAME = re.compile(r"[\w.*/-]+")


def main(arguments: list[str]) -> None:
    """Print affected test files, one on each line."""
    files = tracked_files(ROOT)
    changed = changed_files(ROOT)
    steps = distances(dependencies(ROOT, files), changed)
    affected = [name for name in files if is_test(name) and (name in steps or changed & AFFECT_ALL)]
    names = sorted(affected, key=lambda name: (steps.get(name, len(files)), name))
    chosen = fitting(names, recorded_seconds(ROOT), float(arguments[0]) * NUM_CORES) if arguments else names
    print(f"{len(changed)} changed files affect {len(names)} test files; {len(chosen)} are listed", file=sys.stderr)
    print("\n".join(chosen))


def tracked_files(root: Path) -> frozenset[str]:
    """Paths of files that git tracks or does not ignore, relative to the root, that exist."""
    listed = git(root, "ls-files", "--cached", "--others", "--exclude-standard")
    return frozenset(name for name in listed if (root / name).is_file())


def changed_files(root: Path) -> frozenset[str]:
    """Paths that differ between the working tree and the common ancestor of HEAD and main, new files included."""
    (ancestor,) = git(root, "merge-base", "HEAD", "main")
    new = git(root, "ls-files", "--others", "--exclude-standard")
    return frozenset([*git(root, "diff", "--name-only", "--no-renames", ancestor), *new])


def git(root: Path, *arguments: str) -> list[str]:
    """Return the lines that a git command prints."""
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.splitlines()


def is_test(name: str) -> bool:
    return name.startswith("tests/") and PurePosixPath(name).name.startswith("test_") and name.endswith(".py")


def dependencies(root: Path, files: frozenset[str]) -> dict[str, set[str]]:
    """The files that each Python file depends on directly."""
    by_base: dict[str, list[str]] = {}
    for name in files:
        by_base.setdefault(PurePosixPath(name).name, []).append(name)
    return {name: set(_direct(root, name, files, by_base)) - {name} for name in files if name.endswith(".py")}


def distances(graph: Mapping[str, set[str]], changed: Iterable[str]) -> dict[str, int]:
    """Steps from the nearest changed file to each file that depends on one; 0 for a changed file itself."""
    dependents: dict[str, list[str]] = {}
    for name, targets in graph.items():
        for target in targets:
            dependents.setdefault(target, []).append(name)
    steps = dict.fromkeys(changed, 0)
    pending = list(steps)
    for name in pending:
        for dependent in dependents.get(name, ()):
            if dependent not in steps:
                steps[dependent] = steps[name] + 1
                pending.append(dependent)
    return steps


def recorded_seconds(root: Path) -> dict[str, float]:
    """Seconds of each test file in its last run, as tests/conftest.py keeps them."""
    path = root / ".pytest_cache" / "v" / "marin" / "seconds"
    return json.loads(path.read_text()) if path.is_file() else {}


def fitting(names: Iterable[str], seconds: Mapping[str, float], budget: float) -> list[str]:
    """The names, in order, that fit into that many seconds. A name that does not fit is skipped."""
    chosen = []
    for name in names:
        needed = seconds.get(name, SECONDS_OF_A_NEW_FILE)
        if needed <= budget:
            chosen.append(name)
            budget -= needed
    return chosen


def _direct(root: Path, name: str, files: frozenset[str], by_base: Mapping[str, list[str]]) -> Iterator[str]:
    tree = ast.parse((root / name).read_text())
    folder = PurePosixPath(name).parent
    if is_test(name):
        yield from (str(above / "conftest.py") for above in (folder, *folder.parents) if str(above / "conftest.py") in files)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (file for alias in node.names for file in _modules(alias.name, folder, files))
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield from _modules(f"{node.module}.{alias.name}", folder, files)
        elif isinstance(node, ast.Call):
            yield from (file for job in _started_modules(node) for file in _modules(job, folder, files))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
            if f"{folder}/{node.value}" in files:
                yield f"{folder}/{node.value}"
            elif name.startswith("tests/"):
                yield from _modules(node.value, folder, files) if "." in node.value else ()
                yield from _named(node.value, files, by_base)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and name.startswith("tests/"):
            yield from _in_folder(_joined(node), files)


def _started_modules(call: ast.Call) -> Iterator[str]:
    """Modules that a stage's job or a child process runs: `job="trainer"`, `[..., "-m", "trainer"]`."""
    for keyword in call.keywords:
        if keyword.arg == "job" and isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str):
            yield keyword.value.value
    for listed in (arg for arg in call.args if isinstance(arg, ast.List | ast.Tuple)):
        texts = [item.value if isinstance(item, ast.Constant) else None for item in listed.elts]
        yield from (str(after) for flag, after in pairwise(texts) if flag == "-m")


def _modules(dotted: str, folder: PurePosixPath, files: frozenset[str]) -> Iterator[str]:
    """Files of a module, of the packages above it, and of what `python -m` runs for a package."""
    parts = dotted.split(".")
    if not all(part.isidentifier() for part in parts):
        return
    for base in {*IMPORT_FOLDERS, "" if str(folder) == "." else str(folder)}:
        path = base
        for part in parts:
            path = f"{path}/{part}" if path else part
            yield from (file for file in (f"{path}.py", f"{path}/__init__.py") if file in files)
        if f"{path}/__main__.py" in files:
            yield f"{path}/__main__.py"


def _named(text: str, files: frozenset[str], by_base: Mapping[str, list[str]]) -> Iterator[str]:
    """Files that a constant names by the end of their path, or by a pattern with a folder."""
    if "*" in text and "/" in text:
        yield from (name for name in files if fnmatch(name, text))
    elif "." in text:
        yield from (name for name in by_base.get(PurePosixPath(text).name, ()) if f"/{name}".endswith(f"/{text}"))


def _joined(node: ast.expr) -> str:
    """The constants of `anything / "a" / "b"` as `a/b`."""
    parts = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        if isinstance(node.right, ast.Constant) and isinstance(node.right.value, str):
            parts.append(node.right.value)
        node = node.left
    return "/".join(reversed(parts))


def _in_folder(text: str, files: frozenset[str]) -> Iterator[str]:
    """A file by its path, or the files of a folder except Python files, which are found by imports."""
    if text.strip("/"):
        yield from (n for n in files if n == text or (n.startswith(f"{text.rstrip('/')}/") and not n.endswith(".py")))


if __name__ == "__main__":
    main(sys.argv[1:])
