"""The house: imports run from the shell to the engines to the ground, never back (DESIGN, section 1)."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHELL = frozenset({"marin_assets", "resources", "sensors", "jobs", "partitions"})
ALLOWED = {
    "lineage": frozenset(),
    "datakit": frozenset({"lineage"}),
    "trainer": frozenset({"lineage"}),
    "evals": frozenset({"lineage", "trainer"}),
    "recipes": frozenset({"lineage", "datakit", "trainer", "evals"}),
    **dict.fromkeys(SHELL, SHELL | {"lineage", "datakit", "trainer", "evals", "recipes"}),
    "scenarios": SHELL | {"lineage", "datakit", "trainer", "evals", "recipes"},
}


def imported_by(path: Path) -> set[str]:
    """Top-level names that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            names.add((node.module or "").split(".")[0])
    return names


def graph() -> dict[str, dict[str, list[str]]]:
    """package -> imported name -> files that import it."""
    found: dict[str, dict[str, list[str]]] = {}
    for package in ALLOWED:
        for path in sorted((ROOT / package).rglob("*.py")):
            for name in imported_by(path) - {package}:
                found.setdefault(package, {}).setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    return found


def test_imports_run_one_way() -> None:
    found = graph()
    for package, targets in found.items():
        print(package, "->", ", ".join(sorted(set(targets) & set(ALLOWED))) or "nothing of ours")
    backwards = {
        (package, name): files
        for package, targets in found.items()
        for name, files in targets.items()
        if name in ALLOWED and name not in ALLOWED[package]
    }
    assert not backwards


def test_only_the_shell_knows_dagster() -> None:
    knows = {package for package, targets in graph().items() if any(name.startswith("dagster") for name in targets)}
    assert knows <= SHELL


def test_private_dagster_stays_in_its_wrapper() -> None:
    private = [
        path.relative_to(ROOT).as_posix()
        for package in SHELL
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dagster._")
    ]
    assert set(private) == {"resources/dagster_private.py"}


def test_nothing_imports_the_tests() -> None:
    names = {path.stem for path in (ROOT / "tests").rglob("*.py")} | {"tests", "pytest", "hypothesis"}
    found = {package: sorted(names & set(targets)) for package, targets in graph().items()}
    assert not any(found.values()), found


def test_the_graph_loads_neither_jax_nor_what_draws() -> None:
    """Every run, every step and every command loads the whole graph first: JAX, `scipy.stats` and matplotlib are
    two and a half seconds of that."""
    ask = "import sys, marin_assets.definitions; print(sorted({'jax', 'scipy.stats', 'matplotlib'} & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
