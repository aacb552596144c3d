"""Shared output of all commands: a console, tables that fit it without broken words, JSON."""

import json
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

MAX_WIDTH = 400


def print_json(record: Any) -> None:
    """Print an answer as JSON."""
    print(json.dumps(record, indent=1, ensure_ascii=False))


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table so that no word is broken.

    A pipe gets the table at its full width, because names are there to be copied. A terminal that is too narrow for the longest
    words gets one block for each row, with one line for each field.
    """
    console = console or Console()
    options = console.options.update(max_width=MAX_WIDTH)
    whole = Measurement.get(console, options, table).maximum
    if not console.is_terminal or whole <= console.width:
        Console(file=console.file, width=max(whole, console.width), force_terminal=console.is_terminal).print(table)
        return
    for column in table.columns:
        cells = [Measurement.get(console, options, cell) for cell in column.cells]
        words = [each.maximum if column.no_wrap else each.minimum for each in cells]
        column.min_width = max([*words, len(str(column.header))], default=0)
    if Measurement.get(console, options, table).minimum <= console.width:
        console.print(table)
    else:
        _print_blocks(table, console)


def _print_blocks(table: Table, console: Console) -> None:
    if table.title:
        console.print(f"[bold]{table.title}[/]", soft_wrap=True)
    columns = [(str(column.header), list(column.cells)) for column in table.columns]
    width = max(len(name) for name, _ in columns)
    for at in range(table.row_count):
        for name, cells in columns:
            console.print(f"{name:>{width}}  {cells[at]}", soft_wrap=True)
        console.print()
