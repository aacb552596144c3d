"""Build the lab as one wheel: all packages under the import name `marin_lab`, with the extras of pyproject.toml.

    python tools/build_wheel.py FOLDER   # writes FOLDER/marin_lab-VERSION-py3-none-any.whl and prints its path

Only imports of the project's packages are rewritten. Names of stages, keys and identities do not change, so an artifact of this
checkout is the same artifact for a lab that runs the wheel (docs/design/second_lab.md). Equal files give equal bytes.
"""

import ast
import base64
import hashlib
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NAME = "marin_lab"
SCRIPT = "[console_scripts]\nmarin = marin_lab.marin_assets.cli.app:app\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: tools/build_wheel.py\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
LEFT_OUT = ("__pycache__", "own")
"""Folders that the wheel leaves out: byte code, and the recipe files of this lab's own text."""
EPOCH = (1980, 1, 1, 0, 0, 0)


def build(folder: Path) -> Path:
    """Write the wheel and return its path. Raises: ValueError for an import that cannot be rewritten."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = package_names(project)
    facts = project["project"]
    info = f"{NAME}-{facts['version']}.dist-info"
    files = dict(package_files(packages))
    files |= {
        f"{NAME}/__init__.py": b'"""An open language-model lab as one Dagster asset graph: its packages, under one name."""\n',
        f"{NAME}/COMMIT": commit().encode(),
        f"{NAME}/dagster.yaml": (ROOT / "dagster.yaml").read_bytes(),
        f"{info}/METADATA": metadata(facts).encode(),
        f"{info}/WHEEL": WHEEL.encode(),
        f"{info}/entry_points.txt": SCRIPT.encode(),
    }
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in sorted(files.items()))
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = folder / f"{NAME}-{facts['version']}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in sorted(files.items()):
            wheel.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED)
    return path


def package_names(project: Mapping[str, Any]) -> list[str]:
    """Return the top-level packages that pyproject.toml lists."""
    return [pattern.removesuffix("*") for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]]


def package_files(packages: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the name in the wheel and the bytes of every file of the packages and of `data/`."""
    for top in (*packages, "data"):
        for path in sorted((ROOT / top).rglob("*")):
            inside = path.relative_to(ROOT)
            if path.is_file() and not set(LEFT_OUT) & set(inside.parts):
                data = path.read_bytes()
                if path.suffix == ".py":
                    data = rewritten(data.decode(), packages, str(inside)).encode()
                yield f"{NAME}/{inside.as_posix()}", data


def rewritten(source: str, packages: list[str], where: str) -> str:
    """Return a module whose imports of the packages are imports from `marin_lab`.

    Raises: ValueError for `import datakit.text`, which would bind another name: use `from` or `as`.
    """
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and not node.level and _top(node.module) in packages:
            _put(lines, node, f"from {node.module}", f"from {NAME}.{node.module}")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _top(alias.name) in packages:
                    if alias.asname is None or len(node.names) > 1:
                        raise ValueError(f"{where}:{node.lineno}: write `import {alias.name} as NAME`, alone on its line")
                    _put(lines, node, f"import {alias.name}", f"import {NAME}.{alias.name}")
    return "".join(lines)


def metadata(facts: Mapping[str, Any]) -> str:
    """Return the METADATA file, from the fields of pyproject.toml's `project`."""
    lines = ["Metadata-Version: 2.1", f"Name: {facts['name']}", f"Version: {facts['version']}"]
    lines += [f"Summary: {facts['description']}", f"Requires-Python: {facts['requires-python']}"]
    lines += [f"Requires-Dist: {needed}" for needed in facts["dependencies"]]
    for extra, needed in facts["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {each}; extra == "{extra}"' for each in needed)]
    return "\n".join(lines) + "\n"


def commit() -> str:
    """Return the commit of this checkout, with `-dirty` if files differ, or `unknown` without git."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _put(lines: list[str], node: ast.stmt, old: str, new: str) -> None:
    """Replace the beginning of a statement in its line; columns count bytes."""
    line = lines[node.lineno - 1].encode()
    before, after = line[: node.col_offset], line[node.col_offset :]
    assert after.startswith(old.encode()), (old, line)
    lines[node.lineno - 1] = (before + new.encode() + after[len(old.encode()) :]).decode()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    target.mkdir(parents=True, exist_ok=True)
    print(build(target))
