"""Imports run from the shell to the engines to the ground, never back, and never in a circle."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHELL = frozenset({"marin_assets", "resources", "sensors", "jobs", "partitions"})
ENGINES = frozenset(
    {"lineage", "datakit", "trainer", "serving", "evals", "science", "standards", "operations", "post_training"}
)
ALLOWED = {
    "lineage": frozenset(),
    "datakit": frozenset({"lineage"}),
    "trainer": frozenset({"lineage"}),
    "serving": frozenset({"lineage", "trainer"}),
    "evals": frozenset({"lineage", "trainer", "serving"}),
    "post_training": frozenset({"lineage", "datakit", "trainer", "serving", "evals"}),
    "science": frozenset({"lineage", "trainer"}),
    "standards": frozenset({"lineage"}),
    "operations": frozenset({"lineage"}),
    "recipes": ENGINES,
    **dict.fromkeys(SHELL, SHELL | ENGINES | {"recipes"}),
    "scenarios": SHELL | ENGINES | {"recipes"},
}


@cache
def imports_of(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """The import statements of a file, anywhere in it."""
    return tuple(node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom))


def imported_by(path: Path) -> set[str]:
    """Top-level names that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in imports_of(path):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        else:
            assert not node.level, f"{path}: relative import"
            names.add((node.module or "").split(".")[0])
    return names


def graph() -> dict[str, dict[str, list[str]]]:
    """package -> imported name -> files that import it."""
    imports: dict[str, dict[str, list[str]]] = {}
    for package in ALLOWED:
        for path in sorted((ROOT / package).rglob("*.py")):
            for name in imported_by(path) - {package}:
                imports.setdefault(package, {}).setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    return imports


def test_imports_run_one_way() -> None:
    imports = graph()
    for package, targets in imports.items():
        print(package, "->", ", ".join(sorted(set(targets) & set(ALLOWED))) or "nothing of ours")
    backwards = {
        (package, name): files
        for package, targets in imports.items()
        for name, files in targets.items()
        if name in ALLOWED and name not in ALLOWED[package]
    }
    assert not backwards


def module_graph() -> dict[str, set[str]]:
    """module -> modules of ours that it imports, anywhere in it."""
    paths = [path for package in ALLOWED for path in sorted((ROOT / package).rglob("*.py"))]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    edges: dict[str, set[str]] = {}
    for name, path in names.items():
        imported: set[str] = set()
        for node in imports_of(path):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif node.module:
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                imported |= {module if module in names else node.module for module in whole}
        edges[name] = (imported & names.keys()) - {name}
    return edges


def rooms(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same graph with the modules of one subpackage as one node; a module at the root of its package is its own."""

    def room(module: str) -> str:
        return ".".join(module.split(".")[:2])

    merged: dict[str, set[str]] = {}
    for module, targets in edges.items():
        merged.setdefault(room(module), set()).update(room(target) for target in targets if room(target) != room(module))
    return merged


def circle(edges: dict[str, set[str]]) -> list[str]:
    """One circle of imports, or nothing."""
    try:
        list(TopologicalSorter(edges).static_order())
    except CycleError as error:
        return error.args[1]
    return []


def test_a_circle_is_found() -> None:
    assert set(circle({"a.x.m": {"a.y.m"}, "a.y.m": {"a.x.m"}})) == {"a.x.m", "a.y.m"}
    split = {"a.x.m": {"a.y.m"}, "a.y.n": {"a.x.m"}}
    assert not circle(split) and set(circle(rooms(split))) == {"a.x", "a.y"}


def test_no_module_imports_itself_in_a_circle() -> None:
    edges = module_graph()
    assert len(edges) > 300
    assert circle(edges) == []


def test_no_subpackages_import_each_other_in_a_circle() -> None:
    assert circle(rooms(module_graph())) == []


def test_evals_and_serving_use_only_the_public_face_of_the_trainer() -> None:
    face = {"trainer.api", "trainer.inference"}
    beyond = {
        f"{module} -> {target}"
        for module, targets in module_graph().items()
        for target in targets
        if module.split(".")[0] in ("evals", "serving") and target.startswith("trainer.") and target not in face
    }
    assert not beyond


def test_only_the_shell_knows_dagster() -> None:
    knows = {package for package, targets in graph().items() if any(name.startswith("dagster") for name in targets)}
    assert knows <= SHELL


def test_private_dagster_stays_in_its_wrapper() -> None:
    private = [
        path.relative_to(ROOT).as_posix()
        for package in SHELL
        for path in (ROOT / package).rglob("*.py")
        for node in imports_of(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dagster._")
    ]
    assert set(private) == {"resources/dagster_private.py"}


def test_nothing_imports_the_tests() -> None:
    names = {path.stem for path in (ROOT / "tests").rglob("*.py")} | {"tests", "pytest", "hypothesis"}
    imported = {package: sorted(names & set(targets)) for package, targets in graph().items()}
    assert not any(imported.values()), imported


def test_the_graph_loads_neither_jax_nor_what_draws() -> None:
    """Every run, every step and every command loads the whole graph first: JAX, `scipy.stats` and matplotlib are
    two and a half seconds of that."""
    ask = "import sys, marin_assets.definitions; print(sorted({'jax', 'scipy.stats', 'matplotlib'} & set(sys.modules)))"
    child = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "[]"
