"""Draw functions for a reader's test: `python tools/reader_test.py COMMIT [COUNT]` prints them, each without its surroundings.

A fresh reader sees only these functions and writes what each does; the author counts the wrong answers. The commit hash is
the seed, so the draw cannot be chosen. docs/log.md keeps the results.
"""

import ast
import random
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("lineage", "datakit", "trainer", "serving", "evals", "recipes", "marin_assets", "resources", "sensors", "jobs")
SHORTEST_LINES = 6
"""A shorter function says nothing about the language that it is written in."""


def functions() -> list[tuple[str, str]]:
    """Return (place, source) of every function of the product, in the order of files and lines."""
    drawn = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno + 1 >= SHORTEST_LINES:
                    source = ast.get_source_segment(text, node) or ""
                    drawn.append((f"{path.relative_to(ROOT)}:{node.lineno}", source))
    return sorted(drawn)


def main() -> None:
    """Print the drawn functions as Markdown."""
    commit, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 30
    for number, (place, source) in enumerate(random.Random(commit).sample(functions(), count), 1):
        print(f"## {number}. {place}\n\n```python\n{source}\n```\n")


if __name__ == "__main__":
    main()
