"""HTML of reports: plain tables and embedded pictures, one file that opens anywhere."""

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.scoring.statistics import graded_of

type Row = Sequence[str]


@dataclass(frozen=True)
class Table:
    """Column heads, rows of text, and which columns hold numbers (aligned right)."""

    columns: Sequence[str]
    rows: Sequence[Row]
    numbers: frozenset[str] = frozenset()

    def html(self) -> str:
        kinds = [' class="n"' if column in self.numbers else "" for column in self.columns]
        head = "".join(f"<th{kind}>{html.escape(name)}</th>" for name, kind in zip(self.columns, kinds, strict=True))
        body = "".join(
            "<tr>" + "".join(f"<td{kind}>{html.escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
            for row in self.rows
        )
        return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'

    def markdown(self) -> str:
        rules = ["---:" if column in self.numbers else "---" for column in self.columns]
        lines = [self.columns, rules, *([cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in self.rows)]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page(title: str, facts: Mapping[str, str], sections: Sequence[tuple[str, str]]) -> str:
    """Return a whole page: headline numbers, then sections of (heading, HTML)."""
    cards = "".join(f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>" for name, value in facts.items())
    body = "".join(f"<section><h2>{html.escape(name)}</h2>{content}</section>" for name, content in sections)
    return _FRAME.format(title=html.escape(title), cards=cards, body=body)


def scores_table(scores: Sequence[Mapping[str, Any]]) -> Table:
    """Return every score with its interval and its number of items."""
    numbers = ("value", "95 % interval", "items")
    return Table(("task", "metric", *numbers), [score_cells(score) for score in scores], frozenset(numbers))


def score_cells(score: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    """Return task, metric, value, interval, items; results of older evaluators do not say how many they attempted."""
    items = graded_of(score["n"], score.get("attempted", score["n"]))
    interval = f"{score['low']:.4f} to {score['high']:.4f}"
    return score["task"], score["metric"], f"{score['value']:.4f}", interval, items


def image(path: Path) -> str:
    """Return a picture as an `img` element that contains its bytes."""
    return f'<img alt="{path.stem}" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">'


_FRAME = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
body{{font:15px/1.5 system-ui,sans-serif;color:#1d2433;max-width:76rem;margin:2rem auto;padding:0 1rem}}
h1{{font-size:1.4rem}} h2{{font-size:1.1rem;margin-top:2rem;border-bottom:1px solid #d8dde6}}
.cards{{display:flex;flex-wrap:wrap;gap:.75rem}} .cards div{{background:#f6f7f9;border-radius:.4rem;padding:.5rem .9rem}}
.cards b{{display:block;font-size:1.15rem}} .cards span{{color:#5b6577;font-size:12px}}
table{{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;margin:.5rem 0}}
td,th{{padding:.25rem .6rem;text-align:left;border-bottom:1px solid #eceff4;vertical-align:top}}
td.n,th.n{{text-align:right;white-space:nowrap}} .scroll{{overflow-x:auto}} img{{max-width:100%}}
</style><h1>{title}</h1><div class="cards">{cards}</div>{body}</html>
"""
