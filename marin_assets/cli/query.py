"""The command `marin query`: answers of the ledger (`operations.ledger`)."""

import datetime
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lineage.artifact.store import Store
from marin_assets.cli.console import print_json, print_table
from marin_assets.cli.options import AS_JSON, ROOT
from marin_assets.cli.show_lineage import stores_of
from operations.ledger.database import opened, save
from operations.ledger.database import query as answer
from operations.ledger.ledger import Ledger, open_ledger
from operations.ledger.questions import QUESTIONS
from recipes.prices import price_table


def query(
    sql: Annotated[str | None, typer.Argument(help="One SELECT over the ledger's tables; `show tables` lists them.")] = None,
    question: Annotated[str | None, typer.Option(help="The name of a canned question; without SQL all are listed.")] = None,
    to: Annotated[Path | None, typer.Option(help="Write every table to this new DuckDB file.")] = None,
    dagster: Annotated[bool, typer.Option("--dagster", help="With runs and checks of Dagster's database.")] = False,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Ask in SQL what ran, what it cost and what is kept; the answer comes from the stores alone."""
    console = Console()
    if to is None and sql is None and question is None:
        print_questions(console, as_json=as_json)
        return
    if question is not None and question not in QUESTIONS:
        raise ValueError(f"--question is {question!r}; there are: {', '.join(QUESTIONS)}")
    ledger = ledger_of(root, with_dagster=dagster)
    for what, why in sorted(ledger.unreadable.items()):
        typer.echo(f"not in the ledger: {what}: {why}", err=True)
    if to is not None:
        save(ledger, to)
        console.print(f"{to}: {len(ledger.tables)} tables", soft_wrap=True, markup=False)
    text = QUESTIONS[question].sql if question is not None else sql
    if text is not None:
        with opened(ledger) as connection:
            print_rows(answer(connection, text), console, as_json=as_json)


def ledger_of(root: str | None, *, with_dagster: bool = False) -> Ledger:
    """Return the ledger of a root, or of both stores of the lab."""
    dagster_tables = None
    if with_dagster:
        from marin_assets.ledger_dagster import tables_of_instance

        dagster_tables = tables_of_instance()
    return ledger_of_stores(stores_of(root), dagster_tables)


def ledger_of_stores(stores: Sequence[Store], dagster_tables: Mapping[str, pl.DataFrame] | None = None) -> Ledger:
    """Return the ledger of stores as of today; `dagster_tables`: those of Dagster's database."""
    today = datetime.datetime.now(datetime.UTC).date()
    return open_ledger(stores, price_table(), today, dagster_tables, with_accepted=True)


def print_questions(console: Console, *, as_json: bool) -> None:
    """Print the named questions; JSON has their SQL too."""
    if as_json:
        print_json({name: {"asks": question.asks, "sql": question.sql} for name, question in QUESTIONS.items()})
        return
    table = Table(title="marin query --question NAME", title_justify="left", pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("question")
    for name, question in QUESTIONS.items():
        table.add_row(name, escape(question.asks))
    print_table(table, console)


def print_rows(rows: pl.DataFrame, console: Console, *, as_json: bool) -> None:
    """Print rows as a table or JSON. Decimals are text in JSON, so that no digit is lost."""
    if as_json:
        print(json.dumps(rows.to_dicts(), indent=1, ensure_ascii=False, default=str))
        return
    table = Table(header_style="bold", pad_edge=False)
    for name in rows.columns:
        table.add_column(name, overflow="fold")
    for row in rows.iter_rows():
        table.add_row(*(escape(_cell(value)) for value in row))
    print_table(table, console)


def _cell(value: Any) -> str:
    """Return a value as text: six digits of a float, nine behind the point of a decimal. JSON has every digit."""
    if isinstance(value, Decimal):
        return f"{value:.9f}".rstrip("0").rstrip(".")
    if isinstance(value, float):
        return f"{value:.0f}" if 1e6 <= abs(value) < 1e9 else f"{value:.6g}"
    return "" if value is None else str(value)
