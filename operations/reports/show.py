"""A week as JSON, Markdown and HTML. The HTML is one page without scripts; wide tables scroll on a phone."""

import html
import json
from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from operations.reports.week import Row, Week

TITLES = {
    "runs": "Runs",
    "spending": "Spending",
    "campaigns": "Ferries and canaries",
    "forecasts": "Forecasts judged",
    "contamination": "Contamination audits",
    "storage": "Storage",
    "waivers": "Waivers given",
    "verdicts": "Verdicts",
    "incidents": "Incidents",
}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 75rem; padding: 1rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .7rem; text-align: left; border-bottom: 1px solid color-mix(in srgb, currentColor 25%, transparent); }}
td.number {{ text-align: right; white-space: nowrap; }}
</style></head><body><main><h1>{title}</h1>
{body}
</main></body></html>
"""


def as_json(week: Week) -> str:
    """Return the record as JSON. Dollars are text, so that no digit is lost."""
    return json.dumps(asdict(week), indent=1, ensure_ascii=False, default=str) + "\n"


def as_markdown(week: Week) -> str:
    """Return the week for a chat or a repository."""
    parts = [f"# {title_of(week)}", *(f"- {line}" for line in notes(week)), ""]
    for name, rows in _shown(week):
        parts += [f"## {TITLES[name]}", "", *_markdown_table(rows), ""]
    return "\n".join(parts)


def as_html(week: Week) -> str:
    """Return one page. Every value is escaped."""
    parts = ["<ul>", *(f"<li>{html.escape(line)}</li>" for line in notes(week)), "</ul>"]
    for name, rows in _shown(week):
        parts.append(f'<h2 id="{name}">{TITLES[name]}</h2>')
        parts.append(_html_table(TITLES[name], rows) if rows else "<p>None.</p>")
    return PAGE.format(title=html.escape(title_of(week)), body="\n".join(parts))


def title_of(week: Week) -> str:
    """Return the title of a week's report."""
    return f"The week of {week.monday}"


def notes(week: Week) -> list[str]:
    """Return what a reader must know first: the sum, what has no price, what is missing."""
    spent = [row["dollars"] for row in week.sections["spending"]]
    total = sum((cost for cost in spent if cost is not None), Decimal(0))
    unpriced = sum(row["unpriced"] for row in week.sections["spending"])
    lines = [f"runs that ended or saved: {len(week.sections['runs'])}", f"cost of all attempts of the week: ${total:.4f}"]
    if unpriced:
        lines.append(f"{unpriced} attempts have no known price and are not in that sum")
    lines += [f"{TITLES[name]}: not here, because only Dagster's database has it" for name in week.only_in_dagster]
    if week.unreadable:
        lines.append(f"{len(week.unreadable)} files could not be read: {', '.join(sorted(week.unreadable)[:5])}")
    return lines


def _shown(week: Week) -> list[tuple[str, Sequence[Row]]]:
    return [(name, week.sections[name]) for name in TITLES if name in week.sections]


def _markdown_table(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return ["None."]
    names = list(rows[0])
    cells = [[_cell(row[name]).replace("|", "\\|").replace("\n", " ") for name in names] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (names, ["---"] * len(names), *cells)]


def _html_table(title: str, rows: Sequence[Row]) -> str:
    names = list(rows[0])
    head = "".join(f'<th scope="col">{html.escape(name.replace("_", " "))}</th>' for name in names)
    body = "".join(f"<tr>{''.join(_td(row[name]) for name in names)}</tr>" for row in rows)
    label = html.escape(f"{title}, table")
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide" role="region" tabindex="0" aria-label="{label}">{table}</div>'


def _td(value: Any) -> str:
    number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return f"<td{' class="number"' if number else ''}>{html.escape(_cell(value))}</td>"


def _cell(value: Any) -> str:
    """Return a value for people; NULL is a dash, never 0."""
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, Decimal):
        return f"${value:.4f}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
