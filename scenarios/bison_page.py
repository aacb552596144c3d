"""The page of a replay, `bison.html`: evidence, tables, pictures and the lineage in one file that works offline."""

import html
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evals.scoring.report_page import Table, image, page
from scenarios.bison import LINEAGE_PAGE, Replay
from scenarios.bison_plots import composition_png, losses_png, reads_png, surprisal_png
from scenarios.evidence import Evidence, failures
from scenarios.judgement import answer, leak_itself
from scenarios.surprisal import FORMS, bits_per_byte

PAGE = "bison.html"
MARKS = {True: "holds", False: "FAILS", None: "measured"}
COLOURS = {True: "#2f6f4f", False: "#c1121f", None: "#5b6577"}
DETAILS_STYLE = (
    "white-space:pre-wrap;overflow-wrap:anywhere;color:#5b6577;font:12px/1.45 ui-monospace,monospace;margin:0 0 .5rem 1.5rem"
)
LINEAGE_HEIGHT = 560


def write_page(replay: Replay) -> Path:
    """Write `bison.html` into the replay's folder; the file appears atomically."""
    path = replay.world.folder / PAGE
    with tempfile.TemporaryDirectory() as folder:
        text = page("The Bison incident, replayed", _facts(replay), _sections(replay, Path(folder)))
    scratch = path.with_suffix(".tmp")
    scratch.write_text(text, encoding="utf-8")
    return scratch.replace(path)


def _facts(replay: Replay) -> dict[str, str]:
    expected = [each for each in replay.evidence if each.holds is not None]
    failed = failures(replay.evidence)
    own = leak_itself(replay.measured, len(replay.world.leaked), "OLMES")
    return {
        "expectations that hold": f"{len(expected) - len(failed)} of {len(expected)}",
        "leaked items that the audit names": f"{replay.reads['item_id'].n_unique()} of {len(replay.world.leaked)}",
        "reads of them by Bison": f"{replay.reads.height:,}",
        "bits per byte, OLMES form, Bison minus clean twin: leaked items less control items": f"{own:+.3f}",
    }


def _sections(replay: Replay, folder: Path) -> list[tuple[str, str]]:
    reads, surprisal = folder / "reads.png", folder / "surprisal.png"
    reads_png(replay.reads, replay.world.scale.cooldown_steps, reads)
    surprisal_png(replay.differences, surprisal)
    lineage = (replay.world.folder / LINEAGE_PAGE).read_text(encoding="utf-8")
    style = f"width:100%;height:{LINEAGE_HEIGHT}px;border:1px solid #d8dde6"
    frame = f'<iframe title="lineage" style="{style}" srcdoc="{html.escape(lineage)}"></iframe>'
    moved = Table(("artifact", "address before the fix", "address after it"), replay.moved.rows())
    return [
        ("What was claimed and what was found", _evidence(replay.evidence)),
        ("Addresses of the bundle's artifacts", moved.html()),
        ("When Bison read the leaked items", image(reads)),
        ("Surprisal of GSM8K's answers", _surprisal(replay) + image(surprisal)),
        ("The linear permutation on data in blocks", _shuffles(replay, folder)),
        ("Both histories", frame),
    ]


def _evidence(evidence: Sequence[Evidence]) -> str:
    """One heading for each act; each claim with its mark, and the evidence below it."""
    parts = []
    for act in dict.fromkeys(each.act for each in evidence):
        parts.append(f"<h3>{html.escape(act)}</h3>")
        for each in evidence:
            if each.act == act:
                mark = f'<b style="color:{COLOURS[each.holds]}">{MARKS[each.holds]}</b>'
                details = f'<div style="{DETAILS_STYLE}">{html.escape(each.details)}</div>'
                parts.append(f"<div>{mark} {html.escape(each.claim)}</div>{details}")
    return "".join(parts)


def _surprisal(replay: Replay) -> str:
    """A table of every checkpoint in both forms; the picture and the evidence have the paired differences."""
    num_leaked = len(replay.world.leaked)
    rows = []
    for (name, form), each in replay.measured.items():
        is_leaked = np.arange(len(each.bits)) < num_leaked
        for group, which in (("leaked", is_leaked), ("control", ~is_leaked)):
            rows.append((name, form, group, f"{bits_per_byte(each, which):.3f}", str(int(which.sum()))))
    heads = ("checkpoint", "form", "items", "bits per byte of the answer (95 %)", "n")
    [lm_eval] = [each.difference for each in replay.differences if (each.form, each.group) == ("lm-eval", "leaked")]
    caption = (
        f"Forms: {', '.join(FORMS)}, each after the question alone, with no example before it. Leaked items were in test.json, "
        "control items nowhere. The retrospective blames Bison's GSM8K score on surprise at lm-eval's tags. Is Bison here more "
        f"surprised than its clean twin by lm-eval's text of the leaked items? {answer(lm_eval)}."
    )
    return f"<p>{html.escape(caption)}</p>" + Table(heads, rows, frozenset({"n"})).html()


def _shuffles(replay: Replay, folder: Path) -> str:
    shift = replay.phase_shift
    composition = folder / "composition.png"
    composition_png(shift, composition)
    caption = (
        "Shares of the blocks by window of training, for the worst of the keys under the linear permutation. Chance is drawing "
        "without replacement: a ratio of 1. Below it a shuffle spreads the blocks more evenly than chance, above it in phases."
    )
    parts = [f"<p>{html.escape(caption)}</p>", image(composition)]
    if shift.traversals["linear"].losses is not None:
        losses = folder / "losses.png"
        losses_png(shift, losses)
        parts.append(image(losses))
    return "".join(parts)
