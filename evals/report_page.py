"""The HTML of a ferry's report: plain tables and embedded pictures, one file that opens anywhere."""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

type Row = Sequence[str]

VERDICTS = {
    "clean": "No benchmark item was found in what the model was trained on.",
    "fragments_only": "Only fragments are left: runs of words that an item shares with a document, too few to give it away.",
    "contaminated": "Benchmark items are in what the model was trained on.",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Column heads, rows of text, and which columns hold numbers (set to the right)."""

    columns: Sequence[str]
    rows: Iterable[Row]
    numbers: frozenset[str] = frozenset()

    def html(self) -> str:
        kinds = [' class="n"' if column in self.numbers else "" for column in self.columns]
        head = "".join(f"<th{kind}>{html.escape(name)}</th>" for name, kind in zip(self.columns, kinds, strict=True))
        body = "".join(
            "<tr>" + "".join(f"<td{kind}>{html.escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
            for row in self.rows
        )
        return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def page(title: str, facts: Mapping[str, str], sections: Sequence[tuple[str, str]]) -> str:
    """A whole page: headline numbers, then sections of (heading, HTML)."""
    cards = "".join(f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>" for name, value in facts.items())
    body = "".join(f"<section><h2>{html.escape(name)}</h2>{content}</section>" for name, content in sections)
    return _FRAME.format(title=html.escape(title), cards=cards, body=body)


def scores_table(scores: Sequence[Mapping[str, Any]]) -> Table:
    """Every score with its interval."""
    rows = [(s["task"], s["metric"], f"{s['value']:.4f}", f"{s['low']:.4f} to {s['high']:.4f}", f"{s['n']:,}") for s in scores]
    return Table(("task", "metric", "value", "95 % interval", "n"), rows, frozenset({"value", "95 % interval", "n"}))


def audit_section(details: Mapping[str, Any]) -> str:
    """The verdict in words, items by task, and the strongest matches that are left, each with the steps that read it."""
    counts = ("items", "matched_before", "matched_after", "seen_in_training", "matched_heldout", "unknown")
    heads = ("task", "items", "matched before", "left after", "seen in training", "in held-out", "too short to match")
    tasks = [(task, *(_count(row[name]) for name in counts)) for task, row in details["by_task"].items()]
    matches = [
        (
            f"{m['task']} {m['item_id']}",
            m["tier"],
            f"{m['component']} {m['id'][:12]}",
            ", ".join(str(step) for step in m["steps"]) + (" ..." if m["num_steps"] > len(m["steps"]) else ""),
            str(m["longest_run"]),
            m["text"],
        )
        for m in details["worst"]
    ]
    total = details["counts"]
    told = (
        f"{VERDICTS[details['verdict']]} {total['matched_before']} of {total['items']:,} items matched a source document "
        f"before decontamination, {total['matched_after']} match a training document after it. "
        f"{details['verified_exposures']} of the reported reads were found again by reading the batch of their step."
    )
    worst = Table(
        ("item", "match", "document", "read at step", "words in a row", "text"), matches, frozenset({"words in a row"})
    )
    return f"<p>{html.escape(told)}</p>" + Table(heads, tasks, frozenset(heads[1:])).html() + (worst.html() if matches else "")


def image(path: Path) -> str:
    return f'<img alt="{path.stem}" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">'


def _count(value: int) -> str:
    return f"{value:,}" if value else ""


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
