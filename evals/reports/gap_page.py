"""The page of a perplexity gap: the sums by tag as a picture and a table, and the documents to read first."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evals.scoring.report_page import Table, image, page
from lineage.figures import new_figure

HARDER, EASIER = "#b9772e", "#2b3a55"
PICTURE = "gap.png"


def write_gap_page(folder: Path, facts: Mapping[str, Any], worst: Sequence[Mapping[str, Any]]) -> None:
    """Draw `gap.png` and write `gap.html` into a folder; `facts` and `worst` are those of the manifest's `gap`."""
    gap_png(facts["tags"], f"{facts['second']}\nless {facts['first']}", folder / PICTURE)
    overall = facts["tags"][0]
    headlines = {
        "first, bits per byte": f"{overall['first']:.4f}",
        "second, bits per byte": f"{overall['second']:.4f}",
        "gap": f"{overall['gap']:+.4f}",
        "95 % interval": f"{overall['low']:+.4f} to {overall['high']:+.4f}",
        "documents": f"{overall['num_documents']:,}",
        "bytes": f"{overall['num_bytes']:,}",
    }
    sentences = (
        "A token's nats are spread evenly over its bytes, so both models are asked about the same bytes whatever their "
        "tokenizers. Above zero the second model finds the text harder. Intervals resample documents."
    )
    sections = [
        ("By tag", image(folder / PICTURE) + _tags(facts["tags"]).html()),
        ("Documents with the largest total gap", _documents(worst).html()),
        ("How to read it", f"<p>{sentences}</p>"),
    ]
    (folder / "gap.html").write_text(page(f"Perplexity gap: {facts['second']} less {facts['first']}", headlines, sections))


def gap_png(tags: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """One bar for each tag with its interval; everything on top."""
    figure = new_figure(7.5, 1.5 + 0.3 * len(tags))
    axes = figure.add_subplot()
    values = [tag["gap"] for tag in tags]
    spread = [[tag["gap"] - tag["low"] for tag in tags], [tag["high"] - tag["gap"] for tag in tags]]
    colours = [HARDER if value > 0 else EASIER for value in values]
    axes.barh(range(len(tags)), values, color=colours, height=0.62)
    axes.errorbar(values, range(len(tags)), xerr=spread, fmt="none", ecolor="#111111", elinewidth=1, capsize=2.5)
    axes.set_yticks(range(len(tags)), [f"{tag['tag'] or 'everything'} ({tag['num_documents']:,})" for tag in tags], fontsize=8)
    axes.set_ylim(len(tags) - 0.4, -0.6)
    axes.axvline(0, color="#5b6577", linewidth=0.8)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("bits per byte, second less first: right of zero the second finds the text harder", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=90)


def _tags(tags: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("tag", "documents", "bytes", "first", "second", "gap", "95 % interval")
    rows = [
        (
            tag["tag"] or "everything",
            f"{tag['num_documents']:,}",
            f"{tag['num_bytes']:,}",
            f"{tag['first']:.4f}",
            f"{tag['second']:.4f}",
            f"{tag['gap']:+.4f}",
            f"{tag['low']:+.4f} to {tag['high']:+.4f}",
        )
        for tag in tags
    ]
    return Table(columns, rows, frozenset(columns[1:]))


def _documents(worst: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("tag", "document", "bytes", "first", "second", "total bits", "its worst stretch", "bits there")
    rows = [
        (
            row["tag"],
            row["id"][:12],
            f"{row['num_bytes']:,}",
            f"{row['first']:.3f}",
            f"{row['second']:.3f}",
            f"{(row['second'] - row['first']) * row['num_bytes']:+,.0f}",
            row["stretch"],
            f"{row['stretch_bits']:+.1f}",
        )
        for row in worst
    ]
    return Table(columns, rows, frozenset(columns) - {"tag", "document", "its worst stretch"})
