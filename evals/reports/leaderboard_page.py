"""The leaderboard as one HTML file: one board a policy, one row a task, one column a model, and the newest scores as a
picture.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from evals.reports.leaderboard import cells
from evals.scoring.report_page import Table, image, page
from lineage.figures import new_figure

COLOURS = ("#2b3a55", "#b9772e", "#4f8a6b", "#8a4f7d", "#7286a8", "#a34a3f")
SHOWN_MODELS = len(COLOURS)


def write_page(rows: pl.DataFrame, path: Path) -> None:
    """Write the page for the rows of `primary_scores`."""
    newest = newest_steps(rows)
    sections = []
    for board in rows["board"].unique().sort().to_list():
        on_board = newest.filter(board=board)
        with tempfile.TemporaryDirectory() as scratch:
            picture = Path(scratch) / f"{board}.png"
            board_png(on_board, f"newest day and step of every model, policy {board}", picture)
            sections.append((f"Policy {board}", image(picture) + _table(on_board).html()))
    sentences = (
        "Ranks go by the bound of the interval that speaks against a model; incomplete: less than 90 % of the items graded. "
        "NAME@VERSION: policies of one name that differ in what they ask or in the items."
    )
    facts = {
        "scores": f"{rows.height:,}",
        "models": str(rows["model"].n_unique()),
        "tasks": str(rows["task"].n_unique()),
        "policies": str(rows["board"].n_unique()),
    }
    path.write_text(page("Leaderboard", facts, [*sections, ("How to read it", f"<p>{sentences}</p>")]))


def newest_steps(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the last evaluated day and step of every model and task on a board; of two results there the newer one."""
    last = rows.sort("day", "step", "created").unique(("board", "model", "task"), keep="last", maintain_order=True)
    return rows.join(
        last.select("address", "board", "task"), on=["address", "board", "task"], how="semi", maintain_order="left"
    )


def board_png(rows: pl.DataFrame, title: str, path: Path) -> None:
    """One row for each task: every model's value with its interval, accuracies on the left, bits per byte on the right.

    Raises: ValueError for no rows.
    """
    if not rows.height:
        raise ValueError(f"{title}: there is no score to draw")
    models = rows["model"].unique().sort().to_list()[:SHOWN_MODELS]
    shown = rows.filter(pl.col("model").is_in(models))
    sides = [shown.filter(better=way) for way in ("higher", "lower")]
    sides = [side for side in sides if side.height]
    tallest = max(side["task"].n_unique() for side in sides)
    height = 1.4 + tallest * max(0.28, 0.16 * len(models))
    figure = new_figure(5.4 * len(sides), height)
    for number, side in enumerate(sides):
        axes = figure.add_subplot(1, len(sides), number + 1)
        _draw(axes, side, models)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=90)


def _draw(axes, side: pl.DataFrame, models: Sequence[str]) -> None:
    tasks = side["task"].unique().sort().to_list()
    for place, model in enumerate(models):
        rows = side.filter(model=model)
        heights = [tasks.index(task) + (place - (len(models) - 1) / 2) * 0.7 / len(models) for task in rows["task"]]
        values = rows["value"].to_numpy()
        spread = [values - rows["low"].to_numpy(), rows["high"].to_numpy() - values]
        axes.errorbar(values, heights, xerr=spread, fmt="o", markersize=4, color=COLOURS[place], label=model, capsize=2)
        for value, level, partial in zip(values, heights, rows["incomplete"], strict=True):
            if partial:
                axes.plot([value], [level], "o", markersize=4, markerfacecolor="white", color=COLOURS[place], zorder=5)
    axes.set_yticks(range(len(tasks)), tasks, fontsize=8)
    axes.set_ylim(len(tasks) - 0.4, -0.6)
    axes.grid(axis="x", color="#e4e8ef", linewidth=0.6)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    lower = side["better"][0] == "lower"
    axes.set_xlabel(
        "bits per byte, lower is better" if lower else "share of items, higher is better; hollow: incomplete", fontsize=8
    )


def _table(rows: pl.DataFrame) -> Table:
    columns = ("task", "metric", "model", "step", "checkpoint", "value", "95 % interval", "items", "rank")
    shown = [tuple(cells(row)[column] for column in columns) for row in rows.iter_rows(named=True)]
    return Table(columns, shown, frozenset({"step", "value", "95 % interval", "items", "rank"}))
