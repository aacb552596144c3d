"""Draw public functions for a reader's test: `python tools/reader_test.py COMMIT [COUNT]` prints each of them.

A new reader sees only these functions and writes what each does. The author counts the wrong answers. The commit hash is the
seed, so nobody can choose the functions. docs/log.md has the results.
"""

import ast
import random
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENGINES = ("lineage", "datakit", "trainer", "serving", "evals", "science", "standards", "operations", "post_training")
SHELL = ("recipes", "marin_assets", "resources", "sensors", "jobs", "partitions")
SHORTEST_LINES = 6
"""A shorter function shows nothing about the language of the code."""


def functions() -> list[tuple[str, str]]:
    """Return (place, source) of every public function of the product, in the order of files and lines."""
    drawn = []
    for package in (*ENGINES, *SHELL):
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and _lines(node) >= SHORTEST_LINES:
                    source = ast.get_source_segment(text, node) or ""
                    drawn.append((f"{path.relative_to(ROOT)}:{node.lineno}", source))
    return sorted(drawn)


def _lines(node: ast.FunctionDef) -> int:
    return (node.end_lineno or 0) - node.lineno + 1


def main() -> None:
    """Print the drawn functions as Markdown."""
    commit, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 30
    for number, (place, source) in enumerate(random.Random(commit).sample(functions(), count), 1):
        print(f"## {number}. {place}\n\n```python\n{source}\n```\n")


if __name__ == "__main__":
    main()
