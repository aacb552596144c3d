"""The tested commands of docs/quickstart.md and docs/recipes, as written: each answer has the lines of the page in their
order.
"""

import re
import shlex
from pathlib import Path

import pytest
from small import repository
from typer.testing import CliRunner

from lineage.private_files import KEY_FOLDER
from marin_assets.cli.app import app

MARKED = re.compile(r"<!-- tested -->\n```console\n(.*?)```", re.S)
COMMAND = "$ ./marin "
PAGE = repository() / "docs/quickstart.md"
RECIPES = [page for page in sorted((repository() / "docs/recipes").glob("*.md")) if MARKED.search(page.read_text())]


def examples(page: Path) -> list[tuple[str, list[str]]]:
    """Every tested command of a page with the lines that it shows."""
    found: list[tuple[str, list[str]]] = []
    for line in (line for block in MARKED.findall(page.read_text()) for line in block.strip().splitlines()):
        if line.startswith(COMMAND):
            found.append((line.removeprefix(COMMAND), []))
        else:
            found[-1][1].append(line)
    return found


def shown_in_order(expected: list[str], answer: str) -> str | None:
    """Return the first expected line that is not in the answer after those before it; `...` matches any text."""
    lines = iter([" ".join(line.split()) for line in answer.splitlines()])
    for line in expected:
        if line == "...":
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in " ".join(line.split()).split("...")) + ".*")
        if not any(pattern.fullmatch(candidate) for candidate in lines):
            return line
    return None


@pytest.mark.parametrize("page", [PAGE, *RECIPES], ids=lambda page: page.name)
def test_every_command_of_the_page_answers_as_it_says(
    page: Path, own_day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One copy of a finished ferry is the lab; the quickstart's own `make ferry` makes a larger one."""
    monkeypatch.chdir(tmp_path)
    environment = {
        "MARIN_ROOT": str(own_day / "lab"),
        "DAGSTER_HOME": str(own_day / "dagster"),
        "COLUMNS": "200",
        KEY_FOLDER: str(own_day / "keys"),
    }
    for command, expected in examples(page):
        line, _, into = command.partition(" > ")
        result = CliRunner().invoke(app, shlex.split(line), env=environment)
        assert result.exit_code == 0, (command, result.output)
        assert shown_in_order(expected, result.output) is None, (command, result.output)
        if into:
            Path(into).write_text(result.stdout)
    assert page != PAGE or (tmp_path / "my_model/config.json").exists()


def test_pages_have_commands_that_are_run() -> None:
    assert len(examples(PAGE)) >= 6 and len(RECIPES) >= 7


def test_a_page_that_says_what_is_not_so_is_found() -> None:
    assert shown_in_order(["a ... c", "...", "d"], "a b c\nx\nd\n") is None
    assert shown_in_order(["d", "a ... c"], "a b c\nx\nd\n") == "a ... c"
