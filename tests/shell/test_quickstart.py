"""docs/quickstart.md, as written: each tested command runs, and its answer has the lines of the page in their order."""

import re
import shlex
from pathlib import Path

import pytest
from small import repository
from typer.testing import CliRunner

from lineage.private_files import KEY_FOLDER
from marin_assets.cli.app import app

MARKED = re.compile(r"<!-- tested -->\n```console\n(.*?)```", re.S)
PAGE = repository() / "docs/quickstart.md"


def examples(page: Path) -> list[tuple[str, list[str]]]:
    """Every tested command of a page with the lines that it shows."""
    blocks = [block.strip().splitlines() for block in MARKED.findall(page.read_text())]
    return [(lines[0].removeprefix("$ ./marin "), lines[1:]) for lines in blocks]


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


def test_every_command_of_the_page_answers_as_it_says(own_day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One copy of a finished ferry is the lab; the page's own `make ferry` makes a larger one."""
    monkeypatch.chdir(tmp_path)
    environment = {
        "MARIN_ROOT": str(own_day / "lab"),
        "DAGSTER_HOME": str(own_day / "dagster"),
        "COLUMNS": "200",
        KEY_FOLDER: str(tmp_path / "keys"),
    }
    commands = examples(PAGE)
    assert len(commands) >= 6
    for command, expected in commands:
        result = CliRunner().invoke(app, shlex.split(command), env=environment)
        assert result.exit_code == 0, (command, result.output)
        assert shown_in_order(expected, result.output) is None, (command, result.output)
    assert (tmp_path / "my_model/config.json").exists()


def test_a_page_that_says_what_is_not_so_is_found() -> None:
    assert shown_in_order(["a ... c", "...", "d"], "a b c\nx\nd\n") is None
    assert shown_in_order(["d", "a ... c"], "a b c\nx\nd\n") == "a ... c"
