"""What `marin leaderboard`, `marin compare` and `marin gap` print and write."""

import dataclasses
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evals.items.stage import TaskSpec
from evals.reports.compare import TaskComparison, compare_results
from evals.reports.leaderboard import as_json as rows_json
from evals.reports.leaderboard import cells, open_board, primary_scores
from evals.reports.leaderboard_page import write_page
from evals.reports.perplexity_gap import Reader, perplexity_gap
from evals.tasks.perplexity import heldout_documents
from lineage.artifact.locate import locate
from lineage.artifact.store import Artifact
from marin_assets.cli.console import print_json, print_table
from marin_assets.cli.options import AS_JSON, ROOT
from marin_assets.cli.show_lineage import stores_of
from serving.server.loaded_model import tokenizer_of
from serving.tokenization import open_tokenizer
from trainer.scoring import load_scorer


def leaderboard(
    policy: Annotated[str | None, typer.Option(help="One evaluation policy, e.g. 2026-11-22; all of them by default.")] = None,
    task: Annotated[str | None, typer.Option(help="One task.")] = None,
    sql: Annotated[str | None, typer.Option(help="A DuckDB query over the views results, leaderboard and items.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page instead.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show every evaluation result, a board a policy, ranked by the bound of the interval that speaks against a model."""
    print_leaderboard(root, policy=policy, task=task, sql=sql, html=html, json=as_json, console=Console())


def compare(
    first: Annotated[str, typer.Argument(help=escape("Result, e.g. 'runs/tiny/eval_result[step-00000050|piqa]'."))],
    second: Annotated[str, typer.Argument(help="Another result under the same policy.")],
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Compare two results item by item: McNemar's or the sign test, and a paired bootstrap."""
    print_comparison(first, second, root, Console(), as_json=as_json)


def gap(
    first: Annotated[str, typer.Argument(help=escape("Checkpoint, e.g. 'runs/tiny/checkpoint[step-00000050]'."))],
    second: Annotated[str, typer.Argument(help="Another checkpoint; its tokenizer may be another one.")],
    worst: Annotated[int, typer.Option(min=0, help="Documents to show, the largest gap first.")] = 10,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show where a second checkpoint finds held-out text harder than a first, byte by byte (the first one's corpora)."""
    print_gap(first, second, root, worst=worst, console=Console(), as_json=as_json)


def print_leaderboard(
    root: str | None, *, policy: str | None, task: str | None, sql: str | None, html: Path | None, json: bool, console: Console
) -> None:
    """Print the board as tables, JSON or a page, or a query's result over the views `results`, `leaderboard` and `items`."""
    board = open_board(stores_of(root))
    if sql is not None:
        result = board.query(sql)
        print(rows_json(result)) if json else print_table(_table("", result, result.columns), console)
        return
    rows = primary_scores(board, policy)
    if task is not None:
        known = sorted(rows["task"].unique())
        if known and task not in known:
            raise ValueError(f"no result is of the task {task!r}; there are: {', '.join(known)}")
        rows = rows.filter(pl.col("task") == task)
    if html is not None:
        write_page(rows, html)
        console.print(f"{html}: {rows.height} scores", soft_wrap=True, markup=False)
    elif json:
        print(rows_json(rows))
    elif not rows.height:
        console.print("no result yet: `./marin materialize runs/tiny/training`, and `make ui` evaluates its checkpoints")
    else:
        for name in rows["board"].unique().sort():
            print_table(_board(str(name), rows.filter(board=name)), console)


def print_comparison(first: str, second: str, root: str | None, console: Console, *, as_json: bool = False) -> None:
    """Print the paired comparison of two results, a row for each task and measure."""
    stores = stores_of(root)
    one, two = locate(stores, first), locate(stores, second)
    compared = compare_results(one, two)
    if as_json:
        print_json([dataclasses.asdict(compared_task) for compared_task in compared])
        return
    table = Table(title=f"{escape(two.name)} less {escape(one.name)}, item by item", title_justify="left", pad_edge=False)
    for column in ("task", "measure", "items", "difference", "95 % interval", "better", "worse", "p", ""):
        table.add_column(column, justify="left" if column in ("task", "measure", "") else "right")
    for task in compared:
        table.add_row(*_comparison(task))
    print_table(table, console)


def print_gap(first: str, second: str, root: str | None, *, worst: int, console: Console, as_json: bool = False) -> None:
    """Print the perplexity gap of two checkpoints on the held-out text of the first one's corpora."""
    stores = stores_of(root)
    one, two = locate(stores, first), locate(stores, second)
    corpora = {c.spec.address: c for c in one.store.walk_up(one) if c.spec.stage == "datakit.corpus"}
    documents = heldout_documents(list(corpora.values()), TaskSpec("gap", "perplexity"))
    summaries, gaps = perplexity_gap(_reader(one), _reader(two), documents)
    if as_json:
        print_json({"tags": [dataclasses.asdict(s) for s in summaries], "worst": [dataclasses.asdict(g) for g in gaps[:worst]]})
        return
    title = f"{escape(two.name)} less {escape(one.name)}, bits per byte: above zero the second finds the text harder"
    table = Table(title=title, title_justify="left", pad_edge=False)
    for column in ("tag", "documents", "bytes", "first", "second", "gap", "95 % interval"):
        table.add_column(column, justify="left" if column == "tag" else "right")
    for s in summaries:
        sides = f"{s.first:.4f}", f"{s.second:.4f}", f"{s.gap:+.4f}", f"{s.low:+.4f} to {s.high:+.4f}"
        table.add_row(s.tag or "everything", f"{s.num_documents:,}", f"{s.num_bytes:,}", *sides)
    print_table(table, console)
    for g in gaps[:worst]:
        line = f"{g.id} ({g.tag}): {g.first:.3f} to {g.second:.3f}, {g.stretch_bits:+.1f} bits at {g.stretch!r}"
        console.print(line, markup=False, soft_wrap=True)


def _reader(checkpoint: Artifact) -> Reader:
    scorer = load_scorer(checkpoint)
    return Reader(scorer, *open_tokenizer(tokenizer_of(checkpoint), scorer.vocab_size))


def _comparison(task: TaskComparison) -> tuple[str, ...]:
    c = task.comparison
    left = f" (+{task.left_out} not graded)" if task.left_out else ""
    interval = f"{c.low:+.4f} to {c.high:+.4f}"
    verdict = "differ" if c.decided else "not told apart"
    numbers = (f"{c.num_items}{left}", f"{c.difference:+.4f}", interval, str(c.wins), str(c.losses), f"{c.p_value:.3g}")
    return (task.task, task.measure, *numbers, verdict)


def _board(board: str, rows: pl.DataFrame) -> Table:
    table = Table(title=f"policy {escape(board)}", title_justify="left", header_style="bold", pad_edge=False)
    shown = [cells(row) for row in rows.iter_rows(named=True)]
    for column in shown[0]:
        table.add_column(
            column, justify="left" if column in ("task", "metric", "model", "checkpoint") else "right", overflow="fold"
        )
    for row in shown:
        table.add_row(*map(escape, row.values()))
    return table


def _table(title: str, rows: pl.DataFrame, columns: list[str]) -> Table:
    table = Table(title=title, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows.iter_rows():
        table.add_row(*(escape(str(value)) for value in row))
    return table
