"""Tables of the command line in a terminal of 80 columns: no line is wider, and no word is cut."""

import re
from pathlib import Path

import pytest
from small import FinishedFerry
from typer.testing import CliRunner

from marin_assets.cli.app import app

NARROW, WIDE = 80, 400
ALONE = 60
"""Characters of a word that stands on a line of its own: the address of an artifact may be wider than the terminal."""
COMMANDS = (
    "status",
    "list",
    "list ferry/datakit --all",
    "leaderboard",
    "lineage ferry/report",
    "query",
    "query --question slowest-stages",
    "query --question storage-by-prefix",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_table_fits_eighty_columns_and_cuts_no_word(
    command: str, finished_ferry: FinishedFerry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARIN_ROOT", str(Path(finished_ferry.lab.store.root).parent))
    monkeypatch.setenv("DAGSTER_HOME", finished_ferry.instance.root_directory)

    def answer(columns: int) -> list[str]:
        terminal = {"COLUMNS": str(columns), "TTY_COMPATIBLE": "1", "TERM": "xterm"}
        result = CliRunner().invoke(app, command.split(), env=terminal)
        assert result.exit_code == 0, result.output
        assert "\x1b[" in result.stdout, "it wrote for a terminal"
        return re.sub(r"\x1b\[[\d;]*m", "", result.stdout).splitlines()

    narrow, wide = answer(NARROW), answer(WIDE)
    too_wide = [line for line in narrow if len(line) > NARROW and max(map(len, line.split())) < ALONE]
    assert (too_wide, words(narrow) - words(wide)) == ([], set())
    assert len(words(narrow)) > 10


def words(lines: list[str]) -> set[str]:
    """Words without the lines of a table, and without numbers and units: an age grows between two answers."""
    found = re.sub("[\u2500-\u257f]", " ", " ".join(lines)).split()
    return {word for word in found if not re.fullmatch(r"[\d.]+|s|min|h|d", word)}
