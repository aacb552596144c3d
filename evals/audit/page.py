"""The pages of an audit: the same blocks as `audit.html` (one file, no network) and as `audit.md` beside its pictures."""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from evals.audit.plots import effects_png, exposures_png
from evals.scoring.report_page import Table, image, page
from lineage.match_tiers import UNKNOWN, WHOLE_ONLY

VERDICTS = {
    "clean": "No benchmark item was found in what the model was trained on.",
    "partial_only": "Only parts of questions are left, about half of each: read them, they may be leaks that were cut.",
    "fragments_only": "Only fragments are left: runs of words that an item shares with a document, too few to give it away.",
    "contaminated": "Benchmark items are in what the model was trained on.",
}  # fmt: skip
EXPOSURES_PICTURE, EFFECTS_PICTURE = "exposures.png", "effects.png"


@dataclass(frozen=True)
class Picture:
    """A file beside the page, and what it shows."""

    path: Path
    caption: str


type Block = str | Table | Picture
type Section = tuple[str, Sequence[Block]]


def write_page(folder: Path, checkpoint: str, report: Mapping[str, Any], exposed: pl.DataFrame) -> None:
    """Draw the pictures and write `audit.html` and `audit.md` into a folder, from the content of `audit.json`."""
    if exposed.height:
        exposures_png(exposed, [leg["steps"] for leg in report["legs"]], folder / EXPOSURES_PICTURE)
    if report["scores"]["scored"]:
        effects_png(report["scores"]["by_task"], folder / EFFECTS_PICTURE)
    title = f"Contamination audit of {checkpoint} at step {report['step']:,}"
    sections = list(page_sections(folder, report))
    (folder / "audit.html").write_text(page(title, _headlines(report), [(head, _html(blocks)) for head, blocks in sections]))
    parts = [f"# {title}", *(f"## {head}\n\n" + "\n\n".join(map(_markdown, blocks)) for head, blocks in sections)]
    (folder / "audit.md").write_text("\n\n".join(parts) + "\n")


def audit_section(report: Mapping[str, Any]) -> str:
    """Return the verdict, items by task and strongest matches as HTML, for the page of a whole ferry."""
    return _html([*_verdict(report), *_worst(report)])


def _headlines(report: Mapping[str, Any]) -> dict[str, str]:
    total = report["counts"]
    return {
        "verdict on the mixture": report["verdict"].replace("_", " "),
        "verdict on what was read": report["verdict_at_step"].replace("_", " "),
        "items": f"{total['items']:,}",
        "matched in the sources": f"{total['matched_before']:,}",
        "left in the mixture": f"{total['matched_after']:,}",
        "seen in training": f"{total['seen_in_training']:,}",
    }


def page_sections(folder: Path, report: Mapping[str, Any]) -> Iterator[Section]:
    """Return (heading, blocks) of an audit; `folder` holds its pictures, `report` is its `audit.json`."""
    yield "Verdict", _verdict(report)
    drawn = folder / EXPOSURES_PICTURE
    if drawn.exists():
        yield "When training saw them", [Picture(drawn, "Reads of documents that hold an item, by step of the run")]
    yield "Strongest matches left", _worst(report)
    if "teachers" in report:
        yield "What the teachers had read", list(_teachers(report["teachers"]))
    if "pairs" in report:
        yield "Preference pairs that hold items", list(_pairs(report["pairs"]))
    yield "What it changed in the scores", list(_effects(folder, report))
    yield "What became of matching documents", [_sources(report)]
    yield "How good the scan is", list(_scan(report))
    rows = sorted(report["digests"].items())
    yield "Digests", [Table(("artifact", "data version"), rows)]


def _teachers(taught: Mapping[str, Any]) -> Iterator[Block]:
    yield (
        "Some sources are completions of other models. An item that such a teacher had read may have been passed on without "
        "its words. A teacher that is known by its URL alone, or without an audit of all that it read, is unknown, not clean."
    )
    heads = (
        "set",
        "teacher",
        "items the teacher had read",
        "of these not read here",
        "unknown",
        "clean",
        "rollouts with an item",
    )
    names = ("teacher exposed", "only_teacher", "unknown", "clean", "rollouts_read")
    rows = [(each["set"], each["teacher"], *(_count(each[name]) for name in names)) for each in taught["sets"]]
    yield Table(heads, rows, frozenset(heads[2:]))
    if taught["only_teacher"]:
        only = [(f"{each['task']} {each['item_id']}", each["status"], each["teacher"]) for each in taught["only_teacher"]]
        yield Table(("item", "status", "teacher"), only)
    if taught["reads"]:
        columns = ("item", "match", "rollout", "prompt", "teacher version", "first read at step")
        reads = [
            (f"{r['task']} {r['item_id']}", r["tier"], r["rollout"], r["prompt_id"], r["teacher_version"], str(r["step"]))
            for r in taught["reads"]
        ]
        yield Table(columns, reads)


def _pairs(pairs: Mapping[str, Any]) -> Iterator[Block]:
    yield (
        f"The run read {pairs['pairs_read']:,} pairs of {', '.join(pairs['components'])} that hold an item. A step that "
        "reads a pair reads its prompt, its chosen side and its rejected side."
    )
    if pairs["reads"]:
        rows = [
            (f"{r['task']} {r['item_id']}", r["tier"], r["pair"], ", ".join(r["sides"]), str(r["leg"]), str(r["step"]))
            for r in pairs["reads"]
        ]
        yield Table(("item", "match", "pair", "stands in", "run", "first read at step"), rows)


def _verdict(report: Mapping[str, Any]) -> list[Block]:
    counts = ("items", "matched_before", "matched_after", "seen_in_training", "matched_heldout", UNKNOWN, WHOLE_ONLY)
    heads = ("task", "items", "matched before", "left after", "seen in training", "in held-out", "unknown", "whole only")
    rows = [(task, *(_count(row[name]) for name in counts)) for task, row in report["by_task"].items()]
    total = report["counts"]
    sentences = (
        f"{VERDICTS[report['verdict']]} {total['matched_before']} of {total['items']:,} items matched a source document "
        f"before decontamination, {total['matched_after']} match a training document after it. "
        f"{report['verified_exposures']} of the reported reads were found again by reading the batch of their step. "
        f"{total[UNKNOWN]:,} items are unknown: they are too short to be found, or a part of them stands somewhere. "
        f"{total[WHOLE_ONLY]:,} stand nowhere as a whole, and a half or an edited copy of them could not have been found."
    )
    legs = report["legs"]
    runs = "; then ".join(f"{leg['run']}, {leg['steps']:,} steps on {leg['mixture']}" for leg in legs)
    history = [f"Runs that led here: {runs}."] if len(legs) > 1 else []
    if origin := report.get("origin"):
        history.append(
            f"The first of them began from {origin['model']}, a published model. What that had read before is not known here: "
            "an item that is clean in this audit may have been seen there."
        )
    return [sentences, *history, Table(heads, rows, frozenset(heads[1:]))]


def _worst(report: Mapping[str, Any]) -> list[Block]:
    heads = ("item", "match", "document", "read at step", "words in a row", "text in the document", "text in the item")
    rows = [
        (
            f"{m['task']} {m['item_id']}",
            m["tier"],
            f"{m['component']} {m['id'][:12]}",
            ", ".join(str(step) for step in m["steps"]) + (" ..." if m["num_steps"] > len(m["steps"]) else ""),
            str(m["longest_run"]),
            m["text"],
            m["item_text"],
        )
        for m in report["worst"]
    ]
    return [Table(heads, rows, frozenset({"words in a row"}))] if rows else ["None."]


def _effects(folder: Path, report: Mapping[str, Any]) -> Iterator[Block]:
    scores = report["scores"]
    if not scores["scored"]:
        yield "Not scored: this audit was given no scores of the items."
        return
    yield (
        "The gold answers of every item that a source holds, and of clean items beside them, scored by this checkpoint. "
        "Different items differ in difficulty, so a difference between groups alone proves little"
        + ("; the change since the run's start compares each item with itself." if scores["has_start"] else ".")
    )
    if (folder / EFFECTS_PICTURE).exists():
        yield Picture(folder / EFFECTS_PICTURE, "Bits per byte of gold answers by group, with 95 % intervals")
    heads = ("task", "group", "items", "bits per byte", "accuracy")
    rows = [
        (task, group, f"{row['items']:,}", _interval(row["bits_per_byte"]), _interval(row.get("accuracy")))
        for task, entry in scores["by_task"].items()
        for group, row in entry["groups"].items()
    ]
    yield Table(heads, rows, frozenset(heads[2:]))
    names = {
        "seen_less_clean": "seen less clean",
        "seen_since_start": "seen items since the run's start (paired)",
        "clean_since_start": "clean items since the run's start (paired)",
        "seen_less_clean_since_start": "change of seen less change of clean",
    }
    differences = [
        (task, label, _interval(entry[name]))
        for task, entry in scores["by_task"].items()
        for name, label in names.items()
        if name in entry
    ]
    if differences:
        yield Table(("task", "difference in bits per byte", "value and 95 % interval"), differences)
    else:
        yield "No task has two seen items, so no difference has an interval."


def _sources(report: Mapping[str, Any]) -> Block:
    fates = sorted({fate for row in report["sources"] for fate in row["fates"]})
    heads = ("corpus", "matching documents", *fates, "items before", "items after")
    rows = [
        (
            row["corpus"],
            _count(row["matching"]),
            *(_count(row["fates"].get(fate, 0)) for fate in fates),
            _count(row["items_before"]),
            _count(row["items_after"]),
        )
        for row in report["sources"]
    ]
    return Table(heads, rows, frozenset(heads[1:])) if rows else "No document of any source holds an item or a piece of one."


def _scan(report: Mapping[str, Any]) -> Iterator[Block]:
    scan = report["scan"]
    if not scan["planted"]:
        yield "No items were planted, so nothing is known of the scan's recall."
        return
    yield (
        f"{scan['planted']:,} benchmark items were planted into clean documents of the sources (policy "
        f"{', '.join(scan['policies'])}) and looked for with the same code and thresholds."
    )
    recalls = [(form, f"{share:.1%}") for form, share in scan["recall"].items()]
    false = [(f"false positives: {form.replace('_', ' ')}", f"{share:.1%}") for form, share in scan["false_positives"].items()]
    yield Table(("form of the leak", "found"), [*recalls, *false], frozenset({"found"}))


def _html(blocks: Sequence[Block]) -> str:
    return "".join(
        block.html()
        if isinstance(block, Table)
        else f"<figure>{image(block.path)}<figcaption>{html.escape(block.caption)}</figcaption></figure>"
        if isinstance(block, Picture)
        else f"<p>{html.escape(block)}</p>"
        for block in blocks
    )


def _markdown(block: Block) -> str:
    if isinstance(block, Table):
        return block.markdown()
    return f"![{block.caption}]({block.path.name})" if isinstance(block, Picture) else block


def _count(value: int) -> str:
    return f"{value:,}" if value else ""


def _interval(values: Sequence[float] | None) -> str:
    if values is None:
        return ""
    value, low, high = values
    return f"{value:.3f} ({low:.3f} to {high:.3f})"
