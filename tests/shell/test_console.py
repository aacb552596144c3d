"""Tables of commands: no word is broken, whatever the width of the terminal; a pipe gets them whole."""

import io
import re
from decimal import Decimal

import polars as pl
import pytest
from rich.console import Console
from rich.table import Table

from marin_assets.cli.console import print_table
from marin_assets.cli.query import print_rows

NAME = "ferry/runs/smoke/contamination_audit[2026-11-23]@00000480"
WORDS = (NAME, "independent", "state", "partial_only", "0.2480", "0.1986 to 0.3051")


def shown(width: int, *, is_terminal: bool) -> str:
    table = Table()
    for head in ("artifact", "independent state", "verdict", "value", "95 % interval"):
        table.add_column(head)
    table.add_row(NAME, "independent state", "partial_only", "0.2480", "0.1986 to 0.3051")
    out = io.StringIO()
    print_table(table, Console(file=out, width=width, force_terminal=is_terminal))
    return re.sub(r"\033\[[0-9;]*m", "", out.getvalue())


@pytest.mark.parametrize("width", [30, 80, 100, 200])
def test_no_word_is_broken_on_a_terminal(width: int) -> None:
    text = shown(width, is_terminal=True)
    for word in " ".join(WORDS).split():
        assert word in text, word


def test_a_wide_terminal_is_used_and_not_exceeded() -> None:
    lines = shown(200, is_terminal=True).splitlines()
    assert max(map(len, lines)) <= 200 and any(all(word in line for word in WORDS) for line in lines)


def test_a_pipe_gets_every_row_in_one_line() -> None:
    assert any(all(word in line for word in WORDS) for line in shown(40, is_terminal=False).splitlines())


def test_small_amounts_have_no_exponent() -> None:
    out = io.StringIO()
    rows = pl.DataFrame({"dollars": [Decimal("0.000000006407"), Decimal("12.5"), None]}, schema={"dollars": pl.Decimal(38, 12)})
    print_rows(rows, Console(file=out, width=80), as_json=False)
    assert re.findall(r"[\d.]+(?:E-?\d+)?", out.getvalue()) == ["0.000000006", "12.5"]


def test_numbers_of_a_query_are_short() -> None:
    out = io.StringIO()
    print_rows(pl.DataFrame({"x": [16798187520.0, 2e7, 6.069661235809326, None]}), Console(file=out, width=80), as_json=False)
    assert [word for word in re.findall(r"[\d.e+]+", out.getvalue()) if word != "e"] == ["1.67982e+10", "20000000", "6.06966"]
